"""What a suite is."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from torchstone.records import MODES, UsageError
from torchstone.workloads.workload import Workload

TIERS = ("quick", "standard", "full")


@dataclass(frozen=True)
class BuildSetting:
    """What a suite may need to know of the arm that it builds for."""

    scale: str = "full"
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class ModelInfo:
    """A model as it is listed, without importing anything heavy.

    `tier` is the smallest tier that holds it; `quick_modes` are the modes it runs in the quick
    tier. `missing` says why it cannot run here (a library that is not installed), where that can
    be known without importing; the rest is found by `build`, which raises `NotSupported`.
    """

    name: str
    family: str = ""
    """`text`, `vision`, `audio`, `recommendation`, …; for people."""
    tier: str = "full"
    quick_modes: tuple[str, ...] = ()
    modes: tuple[str, ...] = MODES
    missing: str = ""
    target: str = ""
    """What is measured, where it is not `PREFIX:NAME@SCALE` (user suites)."""


class Suite(Protocol):
    """Models by name. Found by entry point; the entry point's name is the targets' prefix."""

    @property
    def name(self) -> str:
        """How the suite is named on the command line of `run` and in tables: `huggingface`."""

    @property
    def prefix(self) -> str:
        """What its targets begin with: `hf` in `hf:BertForMaskedLM@small`."""

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales it can build: `("small", "full")`, or empty where there is only one."""

    def models(self) -> Sequence[ModelInfo]:
        """Every model, in a fixed order, without importing torch."""

    def import_library(self, model: str) -> None:
        """Import what the model needs, in the worker, before the memory baseline is taken.

        Raises `NotSupported` where it is not installed or does not work.
        """

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The workload, in the worker. Raises `NotSupported` with the reason where it cannot.

        Every dropout and drop-path is set to 0 before construction, and the workload's `notes`
        say so: two processes, or eager and compiled code, never draw the same random masks.
        """


def tier_of(name: str, quick: Container[str], standard: Container[str]) -> str:
    """The smallest tier that holds a model, by a suite's two short lists."""
    if name in quick:
        return "quick"
    return "standard" if name in standard else "full"


def check_scale(suite: Suite, scale: str) -> None:
    """Refuse a scale that the suite cannot build."""
    if scale not in suite.scales:
        raise UsageError(
            f"{suite.name} has no scale {scale!r}.", f"Use {' or '.join(suite.scales)}."
        )
