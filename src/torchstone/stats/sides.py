"""Which side moved between two runs, and whether costs did: from single, absolute observations.

**Sides.** A speed-up changes when the arm (compiled) or the baseline (eager) does. Their times are
absolute and of different days, so they carry the machine's drift. That is estimated as the median
log ratio of the baselines over the whole comparison, and its spread by the median absolute
deviation: a few models that really changed move neither. A side has moved where its log ratio lies
further from the drift than chance would carry it (`CHANCE`), and further than the smallest change
worth believing. With fewer baselines than `LEAST_NUMBER` there is no drift to speak of, and it
cannot be told.

**Costs.** Compile times and memory peaks are observed once a run, so no interval can be made from
a case alone. What a case's ratio is worth is taken from the others: how the log ratios of the group
spread about their median, by the middle half or by the outer tenth, whichever is wider. A case is
marked beyond the size that chance alone would reach in one of twenty groups, if all cases of the
group are equally noisy; one that is noisier than the others may be marked without a change, which
nothing but another run can tell. So a mark is no verdict, and no gate asks for it. The group's mean
is held against the plain standard error, noisy cases included, and marked beyond what it would
reach in one of 370. Compile times carry the machine's drift too, so that much is added; and nothing
below a named least is marked. A change of all cases alike leaves the spread small and is found; one
of very different sizes, in more than a tenth of the cases, widens it and may be missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, stdev

from torchstone.records import Verdict
from torchstone.stats.distributions import exp_or_inf, student_t_quantile

CHANCE = 0.0027
"""The share of unchanged ones that may be called changed: that of three standard deviations."""
LEAST_NUMBER = 8
"""Numbers that a robust spread needs: that of eight is itself known to about 40 %."""
TO_SIGMA = 1.4826
"""The median absolute deviation of normal numbers times this is their standard deviation."""
EFFICIENCY = 0.37
"""Of that estimate: it is worth as much as the plain one from this share of the numbers. Student's
t is taken with so many fewer degrees of freedom; with the normal distribution, 17 % of simulated
groups of 30 unchanged cases had one called changed, where 5 % were meant."""
COST_ALPHA = 0.05
"""The chance that any case of a group, all of them unchanged, is called changed."""
LEAST_COMPILE_CHANGE = 0.10
LEAST_MEMORY_CHANGE = 0.05
"""Costs are observed once: smaller changes than these are not called so, however alike the cases.
Between two runs of one machine and torch, peaks of small models moved by up to 4 %, compile times
by several per cent where the machine was quiet, and by far more where it was not."""
OUTER, OUTER_SIGMAS = 0.9, 1.645
"""Of normal numbers nine in ten lie within so many standard deviations."""
LEAST_COMPILE_NS = 100_000_000
"""A first call that costs less above a steady one has compiled nothing (as in a run's table)."""

ARM, BASELINE, BOTH, NEITHER, CANNOT_TELL = "arm", "baseline", "both", "neither", "cannot tell"


@dataclass(frozen=True)
class Drift:
    """The middle of log ratios, their robust standard deviation, and how many they are."""

    log: float
    spread: float
    n: int

    @property
    def enough(self) -> bool:
        """Whether there are enough numbers to judge others by."""
        return self.n >= LEAST_NUMBER

    def reach(self, chance: float) -> float:
        """How far from the middle a number lies with no more than that chance."""
        freedom = EFFICIENCY * (self.n - 1)
        return student_t_quantile(1.0 - 0.5 * chance, freedom) * self.spread


def drift_of(log_ratios: Sequence[float]) -> Drift | None:
    """Of the baselines' times; None where there is none."""
    if not log_ratios:
        return None
    centre = median(log_ratios)
    spread = TO_SIGMA * median(abs(value - centre) for value in log_ratios)
    return Drift(centre, spread, len(log_ratios))


def side_moved(
    verdict: Verdict | None, baseline: float, arm: float, drift: Drift | None, threshold: float
) -> str:
    """Which side explains a case's change: log ratios of both times, new over base.

    `threshold` is the smallest relative change worth believing.
    """
    if drift is None or not drift.enough or verdict is None:
        return CANNOT_TELL
    # The middle itself is known only so well: the variance of a median of normal numbers.
    middle = math.sqrt(1.0 + 0.5 * math.pi / drift.n)
    limit = max(middle * drift.reach(CHANCE), math.log1p(threshold))
    baseline_moved, arm_moved = (abs(log - drift.log) > limit for log in (baseline, arm))
    changed = verdict.different
    if baseline_moved and arm_moved:
        return BOTH
    if not baseline_moved and not arm_moved:
        # The speed-up did change, so something moved, but by less than the machine's own drift.
        return CANNOT_TELL if changed else NEITHER
    if not changed:
        return CANNOT_TELL
    return ARM if arm_moved else BASELINE


@dataclass(frozen=True)
class CostThresholds:
    """Relative changes of a cost beyond which a case, and the group's mean, are called changed."""

    case: float
    mean: float

    def case_changed(self, ratio: float) -> bool:
        """Whether one case's ratio lies beyond it."""
        return abs(math.log(ratio)) > math.log1p(self.case)

    def mean_changed(self, ratio: float) -> bool:
        """Whether the group's mean ratio lies beyond it."""
        return abs(math.log(ratio)) > math.log1p(self.mean)


def cost_thresholds(
    log_ratios: Sequence[float], least: float, drift: Drift | None = None
) -> CostThresholds | None:
    """From the spread of the ratios themselves; None where they are too few for that."""
    found = drift_of(log_ratios)
    if found is None or not found.enough:
        return None
    lowest, offset = math.log1p(least), abs(drift.log) if drift is not None else 0.0
    beside = sorted(abs(value - found.log) for value in log_ratios)
    outer = beside[math.floor(OUTER * found.n) - 1] / OUTER_SIGMAS
    spread = replace(found, spread=max(found.spread, outer))
    error = stdev(log_ratios) / math.sqrt(found.n)
    of_mean = student_t_quantile(1.0 - 0.5 * CHANCE, found.n - 1) * error
    return CostThresholds(
        case=exp_or_inf(max(lowest, offset + spread.reach(COST_ALPHA / found.n))) - 1.0,
        mean=exp_or_inf(max(lowest, offset + of_mean)) - 1.0,
    )
