"""What a suite is."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Protocol, TypeVar, cast

from torchstone.records import MODES, UsageError
from torchstone.records.plugins import Registry, did_you_mean
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


class HasName(Protocol):
    """An entry of a suite's own table."""

    @property
    def name(self) -> str:
        """The model's."""


Named = TypeVar("Named", bound=HasName)


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
        """Import what the model needs, in the worker, before the memory baseline is taken. Raises
        `NotSupported` where it is not installed or does not work."""

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The workload, in the worker. Raises `NotSupported` with the reason where it cannot. Every
        dropout and drop-path is set to 0 before construction, and the workload's `notes` say so:
        two processes, or eager and compiled code, never draw the same random masks."""


def list_model(
    name: str,
    family: str,
    quick: Mapping[str, tuple[str, ...]],
    standard: Container[str],
    missing: str,
) -> ModelInfo:
    """A model as it is listed, its tier by a suite's two short lists; `quick` has its modes."""
    tier = "quick" if name in quick else "standard" if name in standard else "full"
    return ModelInfo(name, family, tier, quick.get(name, ()), missing=missing)


def find_model(suite: str, models: Sequence[Named], name: str) -> Named:
    """The entry of that name in a suite's table; a `UsageError` otherwise."""
    for model in models:
        if model.name == name:
            return model
    raise UsageError(
        f"{suite} has no model {name!r}.", f"`torchstone list models {suite}` lists them."
    )


def check_scale(suite: Suite, scale: str) -> None:
    """Refuse a scale that the suite cannot build."""
    if scale not in suite.scales:
        raise UsageError(
            f"{suite.name} has no scale {scale!r}.", f"Use {' or '.join(suite.scales)}."
        )


# Suites by prefix or name, through entry points.


SUITES = Registry(
    "torchstone.suites",
    {
        "hf": "torchstone.workloads.suites.huggingface:HUGGINGFACE",
        "timm": "torchstone.workloads.suites.timm_models:TIMM",
        "torchbench": "torchstone.workloads.suites.torchbench_builtin:TORCHBENCH",
        "torchbench-checkout": "torchstone.workloads.suites.torchbench_builtin:TORCHBENCH_CHECKOUT",
        "torchvision": "torchstone.workloads.suites.torchvision_models:TORCHVISION",
    },
)


@cache
def known_suites() -> dict[str, metadata.EntryPoint]:
    """Installed suites by the prefix of their targets; nothing is imported."""
    return SUITES.by_name()


@cache
def load_suite(prefix: str) -> Suite:
    """The suite behind a prefix; a `UsageError` that names the package where it is broken."""
    point = known_suites()[prefix]
    try:
        found: Any = point.load()
        if callable(getattr(found, "models", None)):
            return cast("Suite", found)
        said = f"{point.value} is no suite"
    except Exception as error:  # a plug-in may fail in any way
        said = f"{type(error).__name__}: {error}"
    package = point.dist.name if point.dist is not None else point.value
    raise UsageError(
        f"The suite {prefix} cannot be loaded: {said}.", f"Mend or remove the package {package}."
    )


def load_suites() -> tuple[dict[str, Suite], dict[str, str]]:
    """All suites by prefix; and by prefix what is wrong with those that cannot be loaded."""
    suites: dict[str, Suite] = {}
    broken: dict[str, str] = {}
    for prefix in sorted(known_suites()):
        try:
            suites[prefix] = load_suite(prefix)
        except UsageError as error:
            broken[prefix] = f"{error.message} {error.remedy}"
    return suites, broken


def find_suite(text: str) -> Suite:
    """The suite of that prefix or name; a `UsageError` that names the nearest ones otherwise. A
    broken plug-in costs the others nothing, and is named where what is asked for may be in it."""
    if text in known_suites():
        return load_suite(text)
    suites, broken = load_suites()
    by_name = {suite.name: suite for suite in suites.values()}
    if text in by_name:
        return by_name[text]
    names = sorted(by_name)
    hint = did_you_mean(text, [*names, *suites], most=2)
    known = f"{hint}Suites: {', '.join(names)}; or a file: suite.toml, suite.py."
    raise UsageError(f"There is no suite {text!r}.", " ".join((known, *broken.values())))
