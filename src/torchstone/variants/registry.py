"""Variant names to variants, through entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any, cast

from torchstone.records import ArmSpec, UsageError
from torchstone.records.plugins import Registry, did_you_mean
from torchstone.variants.base import Applied, Variant
from torchstone.variants.compiled import Compiled
from torchstone.variants.recipe import (
    find_recipe,
    is_recipe,
    prepare_process,
    recipe_techniques,
    with_recipe,
)
from torchstone.variants.techniques import TECHNIQUES, Technique
from torchstone.workloads import Inputs, Workload

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
    """The variant for `backend+modifier`; a name no plug-in offers is a torch.compile backend.

    A modifier that is a technique changes the workload; any other is the backend's own.
    """
    if is_recipe(text):
        return find_recipe(text)
    head, *modifiers = text.split("+")
    point = known_variants().get(head)
    variant = cast("Variant", point.load()) if point else Compiled(head)
    own = tuple(name for name in modifiers if not _is_technique(name))
    variant = variant.with_modifiers(own)
    techniques = techniques_of(text)
    return Technical(variant, techniques) if techniques else variant


def techniques_of(text: str) -> tuple[Technique, ...]:
    """The techniques among a variant's modifiers, each once, in the order given."""
    names = () if is_recipe(text) else dict.fromkeys(text.split("+")[1:])
    return tuple(TECHNIQUES[name] for name in names if _is_technique(name))


def _is_technique(name: str) -> bool:
    """Whether it is one that is written behind a variant."""
    return name in TECHNIQUES and TECHNIQUES[name].modifier


def before_loading(text: str) -> None:
    """What the techniques of that variant do before the target is imported."""
    if is_recipe(text):
        prepare_process(text)
    for technique in techniques_of(text):
        if technique.before is not None:
            technique.before()


def with_techniques(workload: Workload, text: str) -> Workload:
    """The workload as the techniques of that variant change it."""
    if is_recipe(text):
        return with_recipe(workload, text)
    for technique in techniques_of(text):
        if technique.apply is not None:
            workload = technique.apply(workload)
    return workload


@dataclass(frozen=True)
class Technical:
    """A variant of a workload that techniques have changed."""

    variant: Variant
    techniques: tuple[Technique, ...]

    @property
    def name(self) -> str:
        """As written: the variant's own name, then the techniques."""
        return "+".join((self.variant.name, *(one.name for one in self.techniques)))

    @property
    def changes(self) -> frozenset[str]:
        """What the variant or any of the techniques may change."""
        return self.variant.changes.union(*(one.changes for one in self.techniques))

    @property
    def modules(self) -> tuple[str, ...]:
        """The variant's."""
        return tuple(getattr(self.variant, "modules", ()))

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Variant:
        """The same techniques beside other modifiers."""
        return replace(self, variant=self.variant.with_modifiers(modifiers))

    def unsupported(self, arm: ArmSpec) -> str | None:
        """Why the variant cannot run this arm, or None."""
        return self.variant.unsupported(arm)

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """As the variant does."""
        return self.variant.apply(call, example, arm)


def uses_torch(text: str) -> bool:
    """Whether the variant, or a technique of it, means something for torch alone."""
    if is_recipe(text):
        names = recipe_techniques(text)
        return any(name not in TECHNIQUES or TECHNIQUES[name].needs_torch for name in names)
    return text.split("+")[0] != "eager" or any(one.needs_torch for one in techniques_of(text))


def check_variant(text: str, backends: Callable[[], Sequence[str]]) -> None:
    """Refuse an unknown name. `backends` lists torch's own; it is slow, so asked only if needed."""
    if is_recipe(text):
        find_recipe(text)
        return
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
