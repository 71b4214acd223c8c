"""The callable as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.records import ArmSpec, UsageError
from torchstone.variants.base import Applied
from torchstone.workloads import Inputs


@dataclass(frozen=True)
class Eager:
    """No transformation: what the user's own code does."""

    name: str = "eager"
    changes: frozenset[str] = frozenset()
    summary: str = "the model as it is, without compiling"

    def with_modifiers(self, modifiers: tuple[str, ...]) -> Eager:
        """Eager has none."""
        if modifiers:
            raise UsageError(f"eager has no modifier {modifiers[0]!r}.", "Write eager alone.")
        return self

    def unsupported(self, arm: ArmSpec) -> str | None:
        """Always possible."""
        return None

    def apply(self, call: Callable[..., Any], example: Inputs, arm: ArmSpec) -> Applied:
        """The callable itself."""
        return Applied(call)


EAGER = Eager()
