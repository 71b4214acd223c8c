"""Variant names to variants, through entry points."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from typing import cast

from torchstone.records import UsageError
from torchstone.variants.base import Variant
from torchstone.variants.compiled import Compiled

ENTRY_POINTS = "torchstone.variants"
_NOT_FOR_USERS = ("_TESTING_ONLY", "minifier_backend", "_crossref")
"""Endings of backends that torch keeps for itself: they can be named, and are not recommended."""


@cache
def known_variants() -> dict[str, metadata.EntryPoint]:
    """Installed variants by name."""
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}


def resolve_variant(text: str) -> Variant:
    """The variant for `backend+modifier`; a name no plug-in offers is a torch.compile backend."""
    head, *modifiers = text.split("+")
    point = known_variants().get(head)
    variant = cast("Variant", point.load()) if point else Compiled(head)
    return variant.with_modifiers(tuple(modifiers))


def check_variant(text: str, backends: Callable[[], Sequence[str]]) -> None:
    """Refuse an unknown name. `backends` lists torch's own; it is slow, so asked only if needed."""
    head = text.split("+")[0]
    known = sorted(known_variants())
    if not known:
        raise UsageError(
            "Torchstone's own plug-ins are not to be found.",
            "Install the package (`pip install .`); a folder on PYTHONPATH is not enough.",
        )
    if head not in known:
        registered = backends()
        if head not in registered:
            usual = [name for name in registered if not name.endswith(_NOT_FOR_USERS)]
            names = sorted({*known, *usual})
            near = difflib.get_close_matches(head, names, n=2, cutoff=0.4)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(
                f"There is no variant {head!r}.", f"{hint}Known here: {', '.join(names)}."
            )
    resolve_variant(text)
