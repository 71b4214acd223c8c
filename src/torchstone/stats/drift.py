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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low, stdev
from typing import NamedTuple

from torchstone.records import CaseMetrics, Measurement, Verdict
from torchstone.stats.estimators import (
    ProcessData,
    exp_or_inf,
    normal_quantile,
    processes_of,
    student_t_quantile,
)
from torchstone.stats.ratio import LogFit, combine, own_weights, process_time

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
        """Whether there are enough numbers to evaluate others by."""
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


# Measuring errors of cases, and how they add up: what means and differences both are made from.
#
# A case's error is the standard error of its log speed-up with its degrees of freedom. Errors of
# different cases, and of one case in two runs, are taken as independent.

CASE_ALPHA = 0.05
"""What a case's own interval may err by, all its looks taken together."""

LEAST_FREEDOM = 1.0
"""Two processes have one degree of freedom. A record that says less was not made by measuring."""

FREEDOM_STEP = 0.125
"""Degrees of freedom are rounded down to multiples of this, which makes a 95 % interval wider by at
most 2.6 % at 3 of them and by 0.6 % at 6. A suite then needs a few dozen quantiles instead of one
for each case, and each takes longer than everything else that is done for the case."""


class Error(NamedTuple):
    """A standard error and its degrees of freedom."""

    size: float
    freedom: float

    def half_width(self, level: float) -> float:
        """Half the interval at that level: Student's t."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level}")
        if self.size == 0.0:
            return 0.0
        return student_t_quantile(0.5 + 0.5 * level, self.freedom) * self.size


def known_error(case: CaseMetrics) -> Error | None:
    """Standard error of the log speed-up and its degrees of freedom, where both are known."""
    error, freedom = case.log_error, case.log_freedom
    if error is None or freedom is None:
        return None
    if not (0.0 <= error < math.inf and freedom >= LEAST_FREEDOM):
        return None
    return Error(error, freedom)


def promised_error(case: CaseMetrics) -> Error | None:
    """The error that the case's own interval promises: wider where it was looked at earlier."""
    known = known_error(case)
    alpha = alpha_left(case)
    if known is None or alpha == CASE_ALPHA:
        return known
    promised = student_t_quantile(1.0 - 0.5 * alpha, known.freedom)
    usual = student_t_quantile(1.0 - 0.5 * CASE_ALPHA, known.freedom)
    return Error(known.size * promised / usual, known.freedom)


def alpha_left(case: CaseMetrics) -> float:
    """What was left to err by at the look at which the case stopped; all of it, if one look."""
    return min(CASE_ALPHA, 1.0 - case.level) if 0.0 < case.level < 1.0 else CASE_ALPHA


def error_of_sum(errors: Sequence[Error]) -> Error:
    """Of a sum or difference of independent numbers: Welch and Satterthwaite's freedom."""
    largest = max(error.size for error in errors)
    if largest == 0.0:
        return Error(0.0, math.inf)
    # Relative to the largest, so that fourth powers of small errors do not vanish.
    squares = [((error.size / largest) ** 2, error.freedom) for error in errors]
    total = math.fsum(square for square, _ in squares)
    spread = math.fsum(square * square / freedom for square, freedom in squares)
    freedom = total * total / spread if spread > 0.0 else math.inf
    return Error(largest * math.sqrt(total), freedom)


def error_of_mean(errors: Sequence[Error]) -> Error:
    """Of the arithmetic mean of independent numbers."""
    total = error_of_sum(errors)
    return Error(total.size / len(errors), total.freedom)


def rounded_down(error: Error) -> Error:
    """The same with its degrees of freedom on the grid of `FREEDOM_STEP`: never narrower."""
    steps = error.freedom / FREEDOM_STEP
    if not 1.0 <= steps < math.inf:
        return error
    # A hair is added: 4 + 4 degrees may come out as 7.999999 and are meant to be 8.
    return Error(error.size, math.floor(steps * (1.0 + 1e-9)) * FREEDOM_STEP)


def logs(values: Iterable[float | None]) -> tuple[float, ...]:
    """The logarithms of those that have one."""
    return tuple(math.log(v) for v in values if v is not None and 0.0 < v < math.inf)


def log_speedup(case: CaseMetrics) -> float | None:
    """None where there is no speed-up to take the log of."""
    value = case.speedup
    return math.log(value) if value is not None and 0.0 < value < math.inf else None


# The time ratio of one arm in two sessions, which share neither processes nor turns.
#
# A process of one session is no partner of the process with the same number in the other, and the
# sessions need not have equally many. So each session is summed up by itself: one log time for each
# process, their mean and its standard error (`combine`, with the same weights and the same
# floor of the variance). The log ratio is the difference of the two means, and its variance the sum
# of theirs, with the degrees of freedom of Welch and Satterthwaite (`error_of_sum`).
#
# A floor falls with the number of samples it is taken from. All processes therefore count as having
# as many as a typical one of the session that has fewer.


def fit_sessions(
    base: Measurement, new: Measurement, estimators: Sequence[str]
) -> dict[str, LogFit]:
    """The log of the time ratio new / base by each estimator, over all processes of both."""
    old_session, new_session = processes_of(base), processes_of(new)
    sizes = [_typical_size(session) for session in (old_session, new_session) if session]
    n = min(sizes, default=1)
    return {
        name: _difference(_time(old_session, name, n), _time(new_session, name, n))
        for name in estimators
    }


def _typical_size(session: Sequence[ProcessData]) -> int:
    """Not the smallest: one process that was cut short would cost all others their floors."""
    return median_low(data.samples.size for data in session)


def _time(session: Sequence[ProcessData], estimator: str, n: int) -> LogFit:
    """The mean log time of one session. Probes of two sessions may be of two sizes, so full
    speed is the session's own."""
    values = [process_time(estimator, data, n) for data in session]
    return combine(values, own_weights(session, estimator))


def _difference(base: LogFit, new: LogFit) -> LogFit:
    """Of two means of independent processes; without an error where one is of a single process."""
    centre, fewest = new.centre - base.centre, min(base.replicates, new.replicates)
    if fewest < 2:
        return LogFit(centre, math.nan, fewest)
    error = error_of_sum([Error(base.std_error, base.df), Error(new.std_error, new.df)])
    return LogFit(centre, error.size, fewest, freedom=error.freedom)


# The interval of a share that was seen in samples.

SHARE_LEVEL = 0.95


def share_interval(part: float, whole: float, level: float = SHARE_LEVEL) -> tuple[float, float]:
    """Wilson's interval of the share `part` of `whole` independent samples; all of 0–1 for none.

    It has a closed form, so that a page can compute the same figures for what is pointed at.
    """
    if not whole > 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, part / whole))
    z = normal_quantile((1 + level) / 2)
    widened = 1 + z * z / whole
    centre = (share + z * z / (2 * whole)) / widened
    half = z / widened * math.sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole))
    return max(0.0, centre - half), min(1.0, centre + half)
