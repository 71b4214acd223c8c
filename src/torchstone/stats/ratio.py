"""The time ratio of two arms, and the time of one, with intervals that respect processes.

The process is the unit. Each replicate gives one log ratio (both arms ran in it, turn by turn,
so what slowed both cancels), and Student's t over the replicates gives the interval. Samples of
one process share its memory layout, its hash seed and its neighbours' mood: pooling them over
processes as if independent finds differences that are not there.

**The variance floor.** With few replicates their log ratios agree closely now and then by
chance, and the interval would be far too short. Their true variance is the process-to-process
part plus the turn-to-turn part, so it is at least the latter, which can be estimated from many
more numbers: a jackknife that leaves out one turn at a time (from both arms, because their
turns of the same index were neighbours in time). Without weights the standard error is
sqrt(max(variance over replicates, pooled jackknife variance) / R). Pooled means the median over
replicates, not the mean: the jackknife variance of a minimum or a median is on average twice too
large but very skewed, so its median is close to the truth, while the mean doubled intervals for
nothing.

**Degrees of freedom** are R - 1 where the variance over replicates decides. Where the floor does,
the standard error is known better than that, and they are twice as many from three replicates on:
whatever the process-to-process part may be, the interval covers as often as it says (simulated
from none of it to thirty times the turn-to-turn part, see `tests/stats/test_coverage.py`).

**Weights.** Ratios of floors are a weighted mean over replicates (`speed_weights`). Its variance is
taken as if all replicates were equally good: sum(w (d - m)^2) times S / (1 - S) with S = sum(w^2),
and its floor is S times the weighted median of the jackknife variances. That is right where the
weights tell nothing and too large where they are right: an interval does not owe its width to a
weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torchstone.records import Estimate, Measurement
from torchstone.stats.estimators import (
    PAIRS_ESTIMATOR,
    Estimator,
    Floats,
    ProcessData,
    exp_or_inf,
    find_estimator,
    is_floor,
    np,
    pairs_log_ratio,
    pool_variances,
    process_data,
    processes_of,
    replicates_with_samples,
    student_t_quantile,
    two_sided,
)

# How much each replicate's ratio of floors is to be believed: by what the probe saw.
#
# A floor is only a floor where the process met the core at full speed. On a shared machine a
# neighbour can slow the core for seconds, and the process that met nothing else has a "fastest"
# sample half as slow again. The probe (the same few instructions between all samples of all arms)
# tells: over 811 recorded replicates of a 5 ms step whose true ratio is known
# (`benchmarks/results/aa-live.jsonl`), a replicate was off by 0.4 % (1.48 times the median) where
# the fastest probes of both its processes were within 0.5 % of full speed, by 0.7 % at 2-3 %, by
# 1.5 % at 3-4 %, by 2 % at 4-6 %. The weights follow that line.
#
# They only steer the estimate. The interval does not rely on them: see `combine`.

FASTEST = 4
"""Probes whose mean is a process's fastest: no single odd reading decides."""
FULL_SPEED = 0.25
"""Full speed is this quantile of all processes' fastest probes, not the very fastest: in one
process of 50 the probe itself is lucky with its place in memory and a quarter faster."""
STEADY, PER_EXCESS, MOST_EXCESS = 0.006, 0.4, 0.06
"""The error of a replicate at full speed, and what it grows by with each per cent that its probes
lack; beyond 6 % it is believed as little as at 6 %, a seventeenth as much as at full speed."""


def fastest_probe(data: ProcessData) -> float:
    """Seconds; NaN where too few probes were taken."""
    probes = np.sort(data.probes)
    return float(probes[:FASTEST].mean()) if probes.size >= FASTEST else math.nan


def speed_weights(fastest: Sequence[tuple[float, float]]) -> list[float]:
    """A weight for each replicate from the fastest probes of its two processes; all 1 without."""
    known = [probe for pair in fastest for probe in pair]
    if not known or not all(math.isfinite(probe) and probe > 0.0 for probe in known):
        return [1.0] * len(fastest)
    full = float(np.quantile(known, FULL_SPEED))
    return [_weight(math.log(max(pair) / full)) for pair in fastest]


def _weight(excess: float) -> float:
    error = PER_EXCESS * min(max(excess, 0.0), MOST_EXCESS)
    return STEADY**2 / (STEADY**2 + error**2)


ROUNDING = 1e-9
"""Sums of shares are equal within this."""
POWER = 0.8
"""The chance of being found that a "detectable" effect must have (the usual convention)."""

Statistic = Callable[[Sequence[ProcessData]], float]


class Interval(NamedTuple):
    """A value with its interval."""

    value: float
    lo: float
    hi: float


@dataclass(frozen=True)
class LogFit:
    """A mean of logs over processes, with its standard error; NaN when nothing was measured."""

    centre: float
    std_error: float
    replicates: int
    floored: bool = False
    """Whether the variance over turns decided, not that over replicates."""
    freedom: float | None = None
    """Degrees of freedom of a fit that was made from others; None where the processes tell."""

    @property
    def df(self) -> float:
        """Degrees of freedom: processes less one, twice that where the floor decided."""
        if self.freedom is not None:
            return self.freedom
        return (self.replicates - 1) * (2 if self.floored and self.replicates > 2 else 1)

    def interval(self, level: float) -> tuple[float, float]:
        """The interval of exp(centre); (0, inf) with fewer than two processes."""
        if self.replicates < 2:
            return 0.0, math.inf
        half = student_t_quantile(0.5 + 0.5 * level, self.df) * self.std_error
        return exp_or_inf(self.centre - half), exp_or_inf(self.centre + half)

    def p_value(self) -> float:
        """Two-sided p-value of "the ratio is 1"; 1 with fewer than two processes."""
        return 1.0 if self.replicates < 2 else two_sided(self.centre, self.std_error, self.df)

    def detectable(self, alpha: float, power: float = POWER) -> float | None:
        """The relative effect found with that power; None when no effect could be."""
        if self.replicates < 2:
            return None
        quantiles = student_t_quantile(1.0 - 0.5 * alpha, self.df) + student_t_quantile(
            power, self.df
        )
        effect = exp_or_inf(quantiles * self.std_error) - 1.0
        return effect if math.isfinite(effect) else None


def ratio(base: Measurement, new: Measurement, estimator: str, level: float = 0.95) -> Estimate:
    """The time ratio new / base by one estimator, with a Student t interval over replicates.

    With one common replicate the interval is (0, inf): turns of one process cannot tell how
    much processes differ. With none the ratio is NaN.
    """
    return as_estimate(fit_ratio(base, new, estimator), estimator, level)


def as_estimate(fit: LogFit, estimator: str, level: float) -> Estimate:
    """A fit as the record that others read."""
    return Estimate(
        estimator=estimator,
        time_ratio=exp_or_inf(fit.centre),
        interval=fit.interval(level),
        level=level,
        replicates=fit.replicates,
    )


# The time of one arm by itself. Unlike a ratio, it has no neighbour with which a disturbance could
# cancel, so a floor rests on processes that were not disturbed, and is withheld without any.

DISTURBED = 1.10
"""A process whose floor lies this far above the lowest was disturbed all its life: processes of one
program differ by memory layout by less (standard deviation 0.6 % with memory kept), by neighbours
and lack of cores by several times (430, 71 and 182 ms)."""
FEW_SAMPLES = 30
"""Below this the fastest three of a process are more than a tenth of its samples."""
LEAST_UNDISTURBED = 2
"""One process below all others shows what is possible once; a floor is what comes again."""


@dataclass(frozen=True)
class CallTime:
    """Seconds per call of one arm by one estimator, and what each of its processes has by itself.

    `value` is None where it is not known, `interval` where the processes are too few or too
    different to bound it.
    """

    value: float | None
    interval: tuple[float, float] | None
    processes: tuple[float, ...]
    used: int
    """Processes that the value is made from: for a floor the undisturbed ones."""


def absolute(measurement: Measurement, estimator: str, level: float = 0.95) -> Interval:
    """Seconds per call of one arm: the geometric mean over processes, with its interval; of floors
    over undisturbed processes, weighed by what the probes saw. NaN, 0 to inf where not known."""
    processes = processes_of(measurement)
    values = [process_time(estimator, data, data.samples.size) for data in processes]
    fit = _own_fit(values, processes, estimator)
    return Interval(exp_or_inf(fit.centre), *fit.interval(level))


def call_time(measurement: Measurement, estimator: str, level: float = 0.95) -> CallTime:
    """`absolute` as it may be shown.

    An interval that begins below anything possible is none: a typical time is not below the
    fastest of all samples, and a floor not further below it than processes differ.
    """
    processes = processes_of(measurement)
    values = [process_time(estimator, data, data.samples.size) for data in processes]
    fit = _own_fit(values, processes, estimator)
    own = tuple(exp_or_inf(log) for log, _ in values if math.isfinite(log))
    if not fit.replicates:
        return CallTime(None, None, own, 0)
    low, high = fit.interval(level)
    fastest = min(float(data.samples.min()) for data in processes)
    possible = fastest / DISTURBED if is_floor(estimator) else fastest
    bounded = fit.replicates > 1 and possible <= low <= high < math.inf
    return CallTime(exp_or_inf(fit.centre), (low, high) if bounded else None, own, fit.replicates)


def central_time(measurement: Measurement, estimator: str) -> float | None:
    """The value of `absolute` without its interval, whose jackknife is most of the work; None
    where it is not known."""
    function = find_estimator(estimator)
    processes = processes_of(measurement)
    values = [(_log(function(data)), math.nan) for data in processes]
    fit = _own_fit(values, processes, estimator)
    return exp_or_inf(fit.centre) if fit.replicates else None


def process_times(measurement: Measurement, estimator: str) -> tuple[float, ...]:
    """Seconds per call of each process by itself, where it has enough samples."""
    function = find_estimator(estimator)
    every = (function(data) for data in processes_of(measurement))
    return tuple(time for time in every if math.isfinite(time))


NO_FLOOR = LogFit(math.nan, math.nan, 0)


def reaches_fastest(floor: float, processes: Sequence[ProcessData]) -> bool:
    """Whether a floor of few samples lies near the fastest of them. The mean of the fastest three
    of four is no time of an undisturbed call where one took far less."""
    if all(data.samples.size >= FEW_SAMPLES for data in processes):
        return True
    return floor <= DISTURBED * min(float(data.samples.min()) for data in processes)


def _own_fit(
    values: Sequence[tuple[float, float]], processes: Sequence[ProcessData], estimator: str
) -> LogFit:
    """One arm's processes to one fit; of a floor that no second process reached, an empty one."""
    if not is_floor(estimator):
        return combine(values)
    lowest = min((log for log, _ in values if math.isfinite(log)), default=math.nan)
    most = lowest + math.log(DISTURBED)
    kept = [(v, p) for v, p in zip(values, processes, strict=True) if v[0] <= most]
    if len(kept) < min(LEAST_UNDISTURBED, len(values)):
        return NO_FLOOR
    fit = combine([v for v, _ in kept], own_weights([p for _, p in kept], estimator))
    return fit if reaches_fastest(exp_or_inf(fit.centre), [p for _, p in kept]) else NO_FLOOR


def geometric_mean(ratios: Sequence[float], level: float = 0.95) -> Interval:
    """exp(mean log) of positive ratios with a Student t interval over them.

    The interval speaks of the cases as a sample of such cases. One ratio: (0, inf); none: NaN.
    """
    if not all(0.0 < r < math.inf for r in ratios):
        raise ValueError("ratios must be positive and finite")
    fit = combine([(math.log(r), math.nan) for r in ratios])
    return Interval(math.exp(fit.centre), *fit.interval(level))


def own_weights(processes: Sequence[ProcessData], estimator: str) -> list[float] | None:
    """Of the processes of one arm, by their own probes, as ratios of floors have them."""
    if not is_floor(estimator):
        return None
    return speed_weights([(probe, probe) for probe in map(fastest_probe, processes)])


def fit_ratio(base: Measurement, new: Measurement, estimator: str) -> LogFit:
    """The log of the time ratio, over the replicates in which both arms have samples."""
    return fit_ratios(base, new, (estimator,))[estimator]


def fit_ratios(base: Measurement, new: Measurement, estimators: Sequence[str]) -> dict[str, LogFit]:
    """`fit_ratio` by several estimators at once, reading the samples only once."""
    functions = {name: find_estimator(name) for name in estimators}
    values: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    fastest: list[tuple[float, float]] = []
    common = set(replicates_with_samples(base)) & set(replicates_with_samples(new))
    for replicate in sorted(common):
        pair = process_data(base, replicate), process_data(new, replicate)
        fastest.append((fastest_probe(pair[0]), fastest_probe(pair[1])))
        own = {name: f for name, f in functions.items() if name != PAIRS_ESTIMATOR}
        statistics = [log_ratio_at_equal_n(function, pair) for function in own.values()]
        for name, value in zip(own, with_jackknife(statistics, pair), strict=True):
            values[name].append(value)
        if PAIRS_ESTIMATOR in values:
            values[PAIRS_ESTIMATOR].append(pairs_log_ratio(*pair))
    weights = speed_weights(fastest)
    return {name: combine_by(name, of_name, weights) for name, of_name in values.items()}


def combine_by(
    estimator: str, values: Sequence[tuple[float, float]], weights: Sequence[float]
) -> LogFit:
    """`combine` as the estimator has it: floors weighed, pairs pooled."""
    if estimator == PAIRS_ESTIMATOR:
        return combine_pairs(values)
    return combine(values, weights if is_floor(estimator) else None)


def process_time(estimator: str, data: ProcessData, n: int) -> tuple[float, float]:
    """One process's log time, counted as having n samples, and its variance over turns."""
    function = find_estimator(estimator)
    share = min(1.0, n / data.samples.size)

    def log_time(arms: Sequence[ProcessData]) -> float:
        return _log(function(arms[0], max(1, round(share * arms[0].samples.size))))

    (value,) = with_jackknife([log_time], (data,))
    return value


def combine(
    values: Sequence[tuple[float, float]], weights: Sequence[float] | None = None
) -> LogFit:
    """Processes' (log value, variance over turns) to one fit; processes without a value drop out.

    A NaN variance (a process of one turn) says nothing and lifts no floor.
    """
    given = weights or [1.0] * len(values)
    usable = [(*v, w) for v, w in zip(values, given, strict=True) if math.isfinite(v[0])]
    count = len(usable)
    if not count:
        return LogFit(math.nan, math.nan, 0)
    logs = np.asarray([value for value, _, _ in usable])
    shares = np.asarray([weight for _, _, weight in usable])
    shares = shares / shares.sum()
    centre = float((shares * logs).sum())
    if count == 1:
        return LogFit(centre, math.nan, 1)
    squares = float((shares**2).sum())
    between = float((shares * (logs - centre) ** 2).sum()) * squares / (1.0 - squares)
    floor = squares * _weighted_median([variance for _, variance, _ in usable], shares)
    return LogFit(centre, math.sqrt(max(between, floor)), count, floored=floor > between)


def combine_pairs(values: Sequence[tuple[float, float]]) -> LogFit:
    """Processes' (median log ratio, its variance) to one fit (`pool_variances`)."""
    usable = [value for value in values if math.isfinite(value[0])]
    count = len(usable)
    if not count:
        return LogFit(math.nan, math.nan, 0)
    logs = [value for value, _ in usable]
    centre = math.fsum(logs) / count
    if count == 1:
        return LogFit(centre, math.nan, 1)
    between = math.fsum((log - centre) ** 2 for log in logs) / (count - 1)
    within = math.fsum(variance for _, variance in usable) / count
    variance, freedom = pool_variances(between, within, count)
    error = math.sqrt(variance / count)
    return LogFit(centre, error, count, floored=within >= between, freedom=freedom)


def _weighted_median(values: Sequence[float], shares: Floats) -> float:
    """The mean of the two middle values where half of the weight lies on either side; NaN drop
    out, and without any value it is 0."""
    known = [(v, float(s)) for v, s in zip(values, shares, strict=True) if math.isfinite(v)]
    if not known:
        return 0.0
    known.sort()
    half = 0.5 * math.fsum(share for _, share in known)
    below, middle = 0.0, []
    for value, share in known:
        if below <= half * (1.0 + ROUNDING) and below + share >= half * (1.0 - ROUNDING):
            middle.append(value)
        below += share
    return math.fsum(middle) / len(middle)


def log_ratio_at_equal_n(function: Estimator, pair: tuple[ProcessData, ProcessData]) -> Statistic:
    """log(new / base) with both arms counted as having the smaller one's number of samples."""
    sizes = tuple(data.samples.size for data in pair)
    shares = tuple(min(sizes) / size for size in sizes)

    def log_ratio(arms: Sequence[ProcessData]) -> float:
        # Where the jackknife left a turn out, the number falls by the same share.
        counts = (max(1, round(s * a.samples.size)) for s, a in zip(shares, arms, strict=True))
        base, new = (_log(function(a, n)) for a, n in zip(arms, counts, strict=True))
        return new - base

    return log_ratio


def _leave_one_out(arms: Sequence[ProcessData]) -> Iterator[list[ProcessData]]:
    """The arms without each turn in turn, where every arm still has samples.

    One at a time: all of them together would take the memory of the samples once for each turn.
    """
    for turn in sorted({turn for data in arms for turn in data.turn.tolist()}):
        rest = [data.without(turn) for data in arms]
        if all(data.samples.size for data in rest):
            yield rest


def with_jackknife(
    statistics: Sequence[Statistic], arms: Sequence[ProcessData]
) -> list[tuple[float, float]]:
    """Each statistic, and its variance over turns; NaN with fewer than two turns."""
    rows = [[statistic(rest) for statistic in statistics] for rest in _leave_one_out(arms)]
    columns = list(zip(*rows, strict=True)) or [()] * len(statistics)
    return [
        (statistic(arms), _jackknife_variance(parts))
        for statistic, parts in zip(statistics, columns, strict=True)
    ]


def _jackknife_variance(values: Sequence[float]) -> float:
    parts = [value for value in values if math.isfinite(value)]
    count = len(parts)
    if count < 2:
        return math.nan
    mean = math.fsum(parts) / count
    return math.fsum((part - mean) ** 2 for part in parts) * (count - 1) / count


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else math.nan
