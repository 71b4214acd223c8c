"""Formats by name, through entry points."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import cast

from torchstone.interop.base import Format
from torchstone.records import UsageError
from torchstone.records.doors import by_name, did_you_mean, must_be_some

ENTRY_POINTS = "torchstone.formats"


@cache
def known_formats() -> dict[str, metadata.EntryPoint]:
    """Installed formats by name; nothing is imported."""
    return by_name(ENTRY_POINTS)


def find_format(name: str) -> Format:
    """The format of that name; a `UsageError` that names the nearest ones otherwise."""
    known = known_formats()
    if name in known:
        return cast("Format", known[name].load())
    must_be_some(known)
    names = ", ".join(sorted(known))
    raise UsageError(
        f"There is no format {name!r}.", f"{did_you_mean(name, known)}Formats: {names}."
    )
