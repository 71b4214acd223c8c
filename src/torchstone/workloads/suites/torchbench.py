"""TorchBench, twice: the user's own checkout of pytorch/benchmark, and models in its manner.

They are two suites with two prefixes, so that a target says which of the two it is, whatever the
environment, and two sources never share a name. Where the checkout is says `--torchbench PATH` or
the variable `TORCHSTONE_TORCHBENCH`.
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
from torchstone.workloads.suites.torchbench_checkout import VARIABLE, list_models, need_checkout
from torchstone.workloads.workload import Workload

__all__ = ["TORCHBENCH", "TORCHBENCH_CHECKOUT", "VARIABLE", "CheckoutSuite", "TorchBenchSuite"]


@dataclass(frozen=True)
class TorchBenchSuite:
    """The models that need no checkout. Satisfies `Suite`."""

    name: str = "torchbench"
    prefix: str = "torchbench"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Those that the installed libraries and this project can make; nothing is imported."""
        return list_builtin()

    def import_library(self, model: str) -> None:
        """Import torch, which is all that these models have in common, and what this one needs."""
        _import_torch()
        _find(model).import_library()

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model with random weights."""
        check_scale(self, setting.scale)
        return _find(model).build(setting)


@dataclass(frozen=True)
class CheckoutSuite:
    """The checkout's models and nothing else; a `UsageError` without one. Satisfies `Suite`."""

    name: str = "torchbench-checkout"
    prefix: str = "torchbench-checkout"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Every model of the checkout; nothing is imported."""
        return list_models(need_checkout())

    def import_library(self, model: str) -> None:
        """Import torch, and the model's package."""
        _import_torch()
        import_model(need_checkout(), model)

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model as the checkout makes it."""
        check_scale(self, setting.scale)
        return build_model(need_checkout(), model, setting)


TORCHBENCH = TorchBenchSuite()
TORCHBENCH_CHECKOUT = CheckoutSuite()


def _import_torch() -> None:
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise NotSupported(f"torch cannot be imported: {error}") from error


def _find(name: str) -> Own | Vision | Text:
    found = find_builtin(name)
    if found is None:
        raise UsageError(
            f"torchbench has no model {name!r}.",
            f"A checkout's model is {TORCHBENCH_CHECKOUT.prefix}:{name}.",
        )
    return found
