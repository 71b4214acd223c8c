"""Doors for plug-ins: what is installed behind a group of entry points. Nothing is loaded here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import metadata

from torchstone.records.errors import UsageError


def by_name(group: str) -> dict[str, metadata.EntryPoint]:
    """One a name: where there are several, the last one that is found."""
    return {point.name: point for point in metadata.entry_points(group=group)}


def all_of(group: str) -> tuple[metadata.EntryPoint, ...]:
    """All of them in order of name. Two of one name are both there: no plug-in silences another."""
    unique = {(point.name, point.value): point for point in metadata.entry_points(group=group)}
    return tuple(unique[key] for key in sorted(unique))


def must_be_some(known: Iterable[object]) -> None:
    """Refuse to go on without our own plug-ins: the package is there, its entry points are not."""
    if not any(True for _ in known):
        raise UsageError(
            "Torchstone's own plug-ins are not to be found.",
            "Install the package (`pip install .`); a folder on PYTHONPATH is not enough.",
        )


def did_you_mean(word: str, names: Iterable[str], most: int = 1, cutoff: float = 0.5) -> str:
    """A question with the nearest names, and a space after it; nothing where none is near."""
    near = difflib.get_close_matches(word, list(names), n=most, cutoff=cutoff)
    return f"Did you mean {' or '.join(near)}? " if near else ""
