"""The shape of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from torchstone.records import Check, Measurement, Result

CONSTANT_OUTPUT_NOTE = "the output does not depend on the input"
"""The note by which the measuring side says so; the rule `constant-output` looks for it."""


class Rule(Protocol):
    """Reads a result and says what it found, `ok` included; says nothing where it cannot look.

    `source` tells where the rule and its thresholds come from.
    """

    @property
    def name(self) -> str:
        """The name that checks carry."""

    @property
    def source(self) -> str:
        """Where the rule comes from."""

    def judge(self, result: Result, /) -> Iterable[Check]:
        """What the rule found."""


@dataclass(frozen=True)
class FunctionRule:
    """A rule that is one function."""

    name: str
    source: str
    judge: Callable[[Result], Iterable[Check]]


def each_arm(
    look: Callable[[Measurement], Iterable[Check]],
) -> Callable[[Result], Iterator[Check]]:
    """A judge that looks at every arm by itself."""

    def judge(result: Result) -> Iterator[Check]:
        for arm in result.arms:
            yield from look(arm)

    return judge
