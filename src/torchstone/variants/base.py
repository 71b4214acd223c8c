"""What a variant is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torchstone.records import ArmSpec, UsageError
from torchstone.variants.techniques import TECHNIQUES
from torchstone.workloads import Inputs


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Applied:
    """A transformed callable and how to take the transformation back."""

    call: Callable[..., Any]
    undo: Callable[[], None] = _nothing


class Variant(Protocol):
    """A way of running a callable. Importing one must not import torch; `apply` may.

    `changes` names the contract fields that the variant may change (`dtype`, `memory_format`,
    `parameters`, ...); any other change is a wrong answer. A variant may have `modules`, names of
    libraries that are imported before memory and time are looked at, and `summary`, a line
    for lists.
    """

    @property
    def name(self) -> str:
        """How it is written on the command line."""

    @property
    def changes(self) -> frozenset[str]:
        """Contract fields it may change."""

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Variant:
        """The variant for `name+modifier+...`; raises `UsageError` for one it does not know."""

    def unsupported(self, arm: ArmSpec) -> str | None:
        """Why it cannot run this arm, or None."""

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """The transformed callable."""


# The callable as it is.


@dataclass(frozen=True)
class Eager:
    """No transformation: what the user's own code does."""

    name: str = "eager"
    changes: frozenset[str] = frozenset()
    summary: str = "the model as it is, without compiling"

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Eager:
        """Eager has none."""
        if modifiers:
            techniques = ", ".join(f"+{name}" for name in TECHNIQUES if TECHNIQUES[name].modifier)
            raise UsageError(f"eager has no modifier {modifiers[0]!r}.", f"Known: {techniques}.")
        return self

    def unsupported(self, arm: ArmSpec) -> str | None:
        """Always possible."""
        return None

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """The callable itself."""
        return Applied(call)


EAGER = Eager()
