"""Variant names to variants, through entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from typing import cast

from torchstone.records import UsageError
from torchstone.records.plugins import Registry, did_you_mean
from torchstone.variants.base import Variant
from torchstone.variants.compiled import Compiled

VARIANTS = Registry(
    "torchstone.variants",
    {
        "eager": "torchstone.variants.base:EAGER",
        "inductor": "torchstone.variants.compiled:INDUCTOR",
        "aot_eager": "torchstone.variants.compiled:AOT_EAGER",
        "cudagraphs": "torchstone.variants.compiled:CUDAGRAPHS",
        "jit-trace": "torchstone.variants.compiled:JIT_TRACE",
        "export": "torchstone.variants.compiled:EXPORT",
        "aoti": "torchstone.variants.compiled:AOTI",
    },
)
NOT_FOR_USERS = ("_TESTING_ONLY", "minifier_backend", "_crossref")
"""Endings of backends that torch keeps for itself: they can be named, and are not recommended."""


@cache
def known_variants() -> dict[str, metadata.EntryPoint]:
    """Installed variants by name."""
    return VARIANTS.by_name()


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
    if head not in known:
        registered = backends()
        if head not in registered:
            usual = [name for name in registered if not name.endswith(NOT_FOR_USERS)]
            names = sorted({*known, *usual})
            hint = did_you_mean(head, names, most=2, cutoff=0.4)
            raise UsageError(
                f"There is no variant {head!r}.", f"{hint}Known here: {', '.join(names)}."
            )
    resolve_variant(text)
