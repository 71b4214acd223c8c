"""How speed-ups changed between two runs: the ratio of each case, its verdict, and the mean's.

**A case's change** is the new run's speed-up over the base run's. Each speed-up was measured
against its own baseline, turn by turn, so what slowed the machine in one of the runs has cancelled
already. On the log scale it is d = log S_new - log S_base; the runs' errors are independent, so
its variance is the sum of theirs, with the degrees of freedom of Welch and Satterthwaite (rounded
down a little, see `drift`). Errors count as the cases' own intervals promise them, that is wider
where a case was looked at before it ended. Interval and p-value are made from the same numbers: the
95 % interval leaves out 1 exactly where p < 0.05.

**Verdicts** are those of two arms (`verdict`). A difference is significant where its p-value is at
most 0.05 and survives Benjamini and Hochberg's procedure over all paired cases of the suite in both
runs; the floor is what two identical arms are seen to differ by, in both runs together
(`change_floor`). A case that is not called different by itself enters the procedure with 1: it
counts, and lends no other its certainty.

**The mean change** of a suite is the geometric mean of its cases' changes. The cases are a fixed
set and each is paired with itself, so neither the models' differences nor the differences of their
changes are errors; only the measuring errors are, process by process within case by case. The
interval says how far the mean would move if these models were measured again in both versions. It
is no claim about other models. It does not widen where some models gain and others lose: that is
what the verdicts of the cases are for.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from torchstone.records import CaseMetrics, Ratio, Verdict
from torchstone.stats.distributions import exp_or_inf, student_t_quantile, two_sided
from torchstone.stats.drift import (
    CASE_ALPHA,
    Error,
    error_of_mean,
    error_of_sum,
    log_speedup,
    promised_error,
    rounded_down,
)
from torchstone.stats.ratio import POWER
from torchstone.stats.suite import FALSE_DISCOVERY_RATE
from torchstone.stats.verdict import (
    Logs,
    benjamini_hochberg,
    by_interval,
    decide,
    least_effect,
    needed_budget,
)

MARGIN = 0.02
"""A change within this is `same` when its whole interval is (the method)."""


@dataclass(frozen=True)
class Change:
    """The log of a ratio, and its error; None where a run had a single process."""

    log: float
    error: Error | None = None

    def ratio(self, level: float = 0.95) -> Ratio:
        """The ratio with its interval."""
        value = exp_or_inf(self.log)
        if self.error is None:
            return Ratio(value, None, level)
        half = self.error.half_width(level)
        return Ratio(value, (exp_or_inf(self.log - half), exp_or_inf(self.log + half)), level)

    @property
    def p_value(self) -> float | None:
        """Two-sided, of "nothing changed"; None without an error."""
        return None if self.error is None else two_sided(self.log, *self.error)


@dataclass(frozen=True)
class Rules:
    """What verdicts are given by: the margin of `same`, the rate of wrong ones, the level."""

    margin: float = MARGIN
    q: float = FALSE_DISCOVERY_RATE
    level: float = 0.95

    def __post_init__(self) -> None:
        if not (self.margin > 0.0 and 0.0 < self.q < 1.0 and 0.0 < self.level < 1.0):
            raise ValueError(f"need margin > 0, q and level in (0, 1), got {self}")


@dataclass(frozen=True)
class Evaluated:
    """A verdict after the correction for all of them, what it would be by itself, and the least
    effect that it was held to."""

    verdict: Verdict
    alone: Verdict
    least: float


def change_of(base: CaseMetrics, new: CaseMetrics) -> Change | None:
    """How the speed-up of a case changed; None where one of the runs has none."""
    before, after = log_speedup(base), log_speedup(new)
    if before is None or after is None:
        return None
    errors = promised_error(base), promised_error(new)
    if errors[0] is None or errors[1] is None:
        return Change(after - before)
    return Change(after - before, rounded_down(error_of_sum([errors[0], errors[1]])))


def mean_change(changes: Sequence[Change]) -> Change | None:
    """The mean of log changes; without an error where one of them has none."""
    if not changes:
        return None
    centre = math.fsum(change.log for change in changes) / len(changes)
    errors = [change.error for change in changes if change.error is not None]
    if len(errors) < len(changes):
        return Change(centre)
    return Change(centre, rounded_down(error_of_mean(errors)))


def change_floor(base_floor: float, new_floor: float) -> float:
    """What identical arms make a speed-up change by, from what they differ by in each run.

    Each run's speed-up may be off by its own floor, so their ratio by the root of the sum of both
    squares. Floors are relative: 0.005 is half a percent.
    """
    return math.expm1(math.hypot(math.log1p(base_floor), math.log1p(new_floor)))


def mean_floor(floors: Sequence[float]) -> float:
    """The same for a mean: what stands behind the floors may favour one arm in all cases alike,
    so it does not average out."""
    return math.expm1(math.fsum(map(math.log1p, floors)) / len(floors))


def evaluate(
    changes: Sequence[Change], floors: Sequence[float], rules: Rules | None = None
) -> list[Evaluated]:
    """The verdict of each, in order, corrected over all of them.

    A change without an error cannot be told and is not among those that are corrected for.
    """
    rules = rules or Rules()
    least = [least_effect(floor, rules.margin) for floor in floors]
    alone = [_alone(change, size, rules) for change, size in zip(changes, least, strict=True)]
    found = [change.p_value for change in changes]
    # What is not to be called different counts among those looked at and helps no other: a suite of
    # small true changes, all of them `same`, would lower the bar for whatever is merely noisy.
    tested = [
        p if verdict.different else 1.0
        for p, verdict in zip(found, alone, strict=True)
        if p is not None
    ]
    corrected = iter(benjamini_hochberg(tested))
    survives = [p is not None and next(corrected) <= rules.q for p in found]
    return [
        Evaluated(
            by_interval(_ends(change, rules), rules.margin)
            if verdict.different and not kept
            else verdict,
            verdict,
            size,
        )
        for change, verdict, kept, size in zip(changes, alone, survives, least, strict=True)
    ]


def deciding_budget(
    change: Change, evaluated: Evaluated, spent_s: float, rules: Rules
) -> float | None:
    """The budget of each run that would probably show a change as small as the margin, where the
    verdict leaves something open; None where this data could, or an hour could not."""
    if change.error is None or not evaluated.verdict.undecided:
        return None
    size, freedom = change.error
    quantiles = [student_t_quantile(share, freedom) for share in (0.5 + 0.5 * rules.level, POWER)]
    detectable = exp_or_inf(math.fsum(quantiles) * size) - 1.0
    if not rules.margin < detectable < math.inf:
        return None
    needed = needed_budget(spent_s, detectable, rules.margin, evaluated.least)
    return needed if math.isfinite(needed) else None


def evaluate_families(
    changes: Sequence[Change],
    floors: Sequence[float],
    families: Sequence[Hashable],
    rules: Rules | None = None,
) -> list[Evaluated]:
    """The verdict of each, in order, corrected over those of the same family."""
    places: dict[Hashable, list[int]] = {}
    for place, family in enumerate(families):
        places.setdefault(family, []).append(place)
    found: dict[int, Evaluated] = {}
    for own in places.values():
        evaluated = evaluate([changes[i] for i in own], [floors[i] for i in own], rules)
        found.update(zip(own, evaluated, strict=True))
    return [found[place] for place in range(len(changes))]


def _alone(change: Change, least: float, rules: Rules) -> Verdict:
    """The verdict of a change by itself."""
    p = change.p_value
    significant = p is not None and p <= CASE_ALPHA
    return decide(-change.log, _ends(change, rules), significant, rules.margin, least)


def _ends(change: Change, rules: Rules) -> Logs:
    """Of the time: a speed-up that grew is a time that fell. Without an error there are none."""
    if change.error is None:
        return -math.inf, math.inf
    half = change.error.half_width(rules.level)
    return -change.log - half, -change.log + half
