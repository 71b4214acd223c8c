"""Which format a file of a given name is to have."""

from __future__ import annotations

from pathlib import Path

from torchstone.profile.doors import find_format, known_formats
from torchstone.profile.formats.files import shown
from torchstone.records import UsageError


def format_of(path: Path, others: tuple[str, ...] = ()) -> str:
    """The format whose ending the name has; the longest ending wins. `others` are endings that
    somebody else knows, to be told of."""
    name = path.name.removesuffix(".gz").lower()
    best, found = "", ""
    endings = []
    for one in sorted(known_formats()):
        for ending in find_format(one).endings:
            endings.append(ending)
            if name.endswith(ending) and len(ending) > len(best):
                best, found = ending, one
    if found:
        return found
    known = ", ".join(sorted({*endings, *others}))
    raise UsageError(
        f"{shown(path)} does not end in a way that says its format.", f"Endings: {known}."
    )
