"""Suites by prefix or name, through entry points."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import cast

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
    """The suite behind a prefix."""
    return cast("Suite", known_suites()[prefix].load())


def find_suite(text: str) -> Suite:
    """The suite of that name or prefix; a `UsageError` that names the nearest ones otherwise."""
    suites = {prefix: load_suite(prefix) for prefix in known_suites()}
    by_name = {suite.name: suite for suite in suites.values()}
    found = suites.get(text) or by_name.get(text)
    if found is not None:
        return found
    names = sorted(by_name)
    hint = did_you_mean(text, [*names, *suites], most=2)
    raise UsageError(
        f"There is no suite {text!r}.",
        f"{hint}Suites: {', '.join(names)}; or a file: suite.toml, suite.py.",
    )
