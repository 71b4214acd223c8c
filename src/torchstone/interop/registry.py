"""Formats by name, through entry points."""

from __future__ import annotations

import difflib
from functools import cache
from importlib import metadata
from typing import cast

from torchstone.interop.base import Format
from torchstone.records import UsageError

ENTRY_POINTS = "torchstone.formats"


@cache
def known_formats() -> dict[str, metadata.EntryPoint]:
    """Installed formats by name; nothing is imported."""
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}


def find_format(name: str) -> Format:
    """The format of that name; a `UsageError` that names the nearest ones otherwise."""
    known = known_formats()
    if name in known:
        return cast("Format", known[name].load())
    if not known:
        raise UsageError(
            "Torchstone's own plug-ins are not to be found.",
            "Install the package (`pip install .`); a folder on PYTHONPATH is not enough.",
        )
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"There is no format {name!r}.", f"{hint}Formats: {', '.join(sorted(known))}.")
