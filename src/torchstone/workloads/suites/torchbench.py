"""The TorchBench suite: the user's own checkout of pytorch/benchmark, or models in its manner.

With a checkout (`--torchbench PATH`, or the variable `TORCHSTONE_TORCHBENCH`) the suite is that
checkout's models and nothing else, so that two sources never share a name.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.records import SCALES, NotSupported, UsageError
from torchstone.workloads.suites.base import BuildSetting, ModelInfo, check_scale
from torchstone.workloads.suites.torchbench_adapter import build_model, import_model
from torchstone.workloads.suites.torchbench_builtin import (
    Own,
    Text,
    Vision,
    find_builtin,
    list_builtin,
)
from torchstone.workloads.suites.torchbench_checkout import VARIABLE, find_checkout, list_models
from torchstone.workloads.workload import Workload

__all__ = ["TORCHBENCH", "VARIABLE", "TorchBenchSuite"]


@dataclass(frozen=True)
class TorchBenchSuite:
    """Satisfies `Suite`."""

    name: str = "torchbench"
    prefix: str = "torchbench"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """The checkout's models, or the built-in ones; nothing is imported."""
        checkout = find_checkout()
        return list_builtin() if checkout is None else list_models(checkout)

    def import_library(self, model: str) -> None:
        """Import torch, which is all that these models have in common, and what this one needs."""
        try:
            importlib.import_module("torch")
        except ImportError as error:
            raise NotSupported(f"torch cannot be imported: {error}") from error
        checkout = find_checkout()
        if checkout is None:
            _find(model).import_library()
        else:
            import_model(checkout, model)

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model with random weights, or as the checkout makes it."""
        check_scale(self, setting.scale)
        checkout = find_checkout()
        if checkout is None:
            return _find(model).build(setting)
        return build_model(checkout, model, setting)


TORCHBENCH = TorchBenchSuite()


def _find(name: str) -> Own | Vision | Text:
    found = find_builtin(name)
    if found is None:
        raise UsageError(
            f"torchbench has no model {name!r} without a checkout.",
            f"Set {VARIABLE}, or see `torchstone list models torchbench`.",
        )
    return found
