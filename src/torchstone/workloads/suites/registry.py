"""Suites by prefix or name, through entry points."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Any, cast

from torchstone.records import UsageError
from torchstone.records.doors import by_name, did_you_mean
from torchstone.workloads.suites.base import Suite

ENTRY_POINTS = "torchstone.suites"


@cache
def known_suites() -> dict[str, metadata.EntryPoint]:
    """Installed suites by the prefix of their targets; nothing is imported."""
    return by_name(ENTRY_POINTS)


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
    """The suite of that prefix or name; a `UsageError` that names the nearest ones otherwise.

    A broken plug-in costs the others nothing, and is named where what is asked for may be in it.
    """
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
