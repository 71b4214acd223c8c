"""Two arms set against each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """What may be said of the new arm's time against the base's (`stats.verdict` has the rule)."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOT_SLOWER = "not slower"
    NOT_FASTER = "not faster"
    CANNOT_TELL = "cannot tell"

    @property
    def different(self) -> bool:
        """A difference is claimed."""
        return self in (Verdict.FASTER, Verdict.SLOWER)

    @property
    def undecided(self) -> bool:
        """One side or both are still open: more data could say more."""
        return self in (Verdict.NOT_SLOWER, Verdict.NOT_FASTER, Verdict.CANNOT_TELL)

    @property
    def excludes_slower(self) -> bool:
        """Slower by more than the margin is ruled out: what a gate wants to know."""
        return self in (Verdict.FASTER, Verdict.SAME, Verdict.NOT_SLOWER)


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

    `smallest_detectable` is the smallest relative change that this data could have shown,
    `threshold` the smallest that would have been called faster or slower, however well known.
    `deciding_budget_s` would probably show a change as small as the margin; None where this data
    could already, where an hour could not, or where it is not known. `reason` says why the verdict
    leaves something open, or what withholds it.
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
    threshold: float | None = None
    deciding_budget_s: float | None = None

    @property
    def speedup(self) -> float | None:
        """Base time / new time."""
        return None if not self.time_ratio else 1.0 / self.time_ratio
