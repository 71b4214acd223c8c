"""Plug-ins of every kind: ours from a list, other packages' by entry point; nothing is loaded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib import metadata


class Registry:
    """What is known of one kind of plug-in.

    Ours are named in `built_in` (`name: "module:object"`), so that adding one is a line beside it
    and a folder on PYTHONPATH is enough; those of other packages come by entry points of `group`.
    """

    def __init__(self, group: str, built_in: Mapping[str, str]) -> None:
        self.group = group
        self._built_in = tuple(metadata.EntryPoint(n, v, group) for n, v in built_in.items())

    def all(self) -> tuple[metadata.EntryPoint, ...]:
        """All in order of name. Two of one name are both there: no plug-in silences another."""
        unique = {(point.name, point.value): point for point in self._points()}
        return tuple(unique[key] for key in sorted(unique))

    def by_name(self) -> dict[str, metadata.EntryPoint]:
        """One a name: a package's own comes before ours."""
        return {point.name: point for point in self._points()}

    def _points(self) -> tuple[metadata.EntryPoint, ...]:
        # What an installer wrote down for another version of ours does not count.
        found = metadata.entry_points(group=self.group)
        theirs = (point for point in found if not point.value.startswith("torchstone."))
        return (*self._built_in, *theirs)


def did_you_mean(word: str, names: Iterable[str], most: int = 1, cutoff: float = 0.5) -> str:
    """A question with the nearest names, and a space after it; nothing where none is near."""
    near = difflib.get_close_matches(word, list(names), n=most, cutoff=cutoff)
    return f"Did you mean {' or '.join(near)}? " if near else ""
