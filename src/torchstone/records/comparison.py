"""Two arms set against each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """What may be said of the new arm's time against the base's."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Estimate:
    """A time ratio (new / base) by one named estimator, with its interval."""

    estimator: str
    time_ratio: float
    interval: tuple[float, float]
    level: float
    replicates: int


@dataclass(frozen=True)
class Comparison:
    """Floor and typical ratio, each by its name, and the one that decided.

    `smallest_detectable` is the smallest relative change that this data could have shown.
    `reason` says why the verdict is `cannot tell`, or what withholds it.
    """

    base: str
    new: str
    verdict: Verdict
    decided_by: str
    time_ratio: float | None = None
    interval: tuple[float, float] | None = None
    floor: Estimate | None = None
    typical: Estimate | None = None
    smallest_detectable: float | None = None
    margin: float = 0.02
    aa_floor: float = 0.0
    reason: str = ""

    @property
    def speedup(self) -> float | None:
        """Base time / new time."""
        return None if not self.time_ratio else 1.0 / self.time_ratio
