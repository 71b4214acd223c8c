"""One number for one process: the estimators by name (`benchmarks/aa_estimators.py` has those that
were tried and did worse).

Floor-type estimators look at the fastest samples, because on a shared machine noise only ever
adds time. Each takes `n`: the number of samples to count as, so that two arms with different
sample counts are compared as if both had n. The typical ones do not depend on n and ignore it.
Every estimator gives NaN when the process has too little data for it.

One process's samples as arrays: what every estimator looks at.

The few distributions that intervals need: Student t, by way of beta, and normal.

Written here so that nobody has to install scipy; the tests hold them against scipy to 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from importlib import import_module
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from torchstone.records import Measurement, Turn, UsageError

# mypy: implicit-reexport


# numpy, imported when it is first used: it takes a tenth of a second, and much here needs none.
# Other modules of the package take `np` from here.


class LazyModule:
    """A module that is imported with the first thing that is asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)  # the next time it is found without coming here
        return found


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
else:
    np = LazyModule("numpy")
    Floats = Ints = Bools = Any

NANOSECONDS = 1e9


@dataclass(frozen=True, eq=False)
class ProcessData:
    """The samples of one process, in seconds per call, each with its turn and its two probes.

    `turn` holds the turn's index. `probe_before` and `probe_after` are the probe times in
    seconds on either side of the sample's block; NaN where no probe was taken. `reading` is the
    number of the one before among all of the process: the same for all samples of a block.
    """

    samples: Floats
    turn: Ints
    probe_before: Floats
    probe_after: Floats
    reading: Ints

    def without(self, turn: int) -> ProcessData:
        """The same process with one turn left out."""
        return self.only(self.turn != turn)

    def only(self, keep: Bools) -> ProcessData:
        """The same process with some of its samples."""
        return ProcessData(
            self.samples[keep],
            self.turn[keep],
            self.probe_before[keep],
            self.probe_after[keep],
            self.reading[keep],
        )

    @property
    def probes(self) -> Floats:
        """Every reading of the probe once, in no order; those that were not taken left out."""
        places = np.concatenate([self.reading, self.reading + 1])
        readings = np.concatenate([self.probe_before, self.probe_after])
        _, once = np.unique(places, return_index=True)
        found: Floats = readings[once]
        kept: Floats = found[np.isfinite(found)]
        return kept


def process_data(measurement: Measurement, replicate: int) -> ProcessData:
    """The samples of one replicate of an arm; empty arrays when it has none."""
    turns = sorted(
        (t for t in measurement.turns if t.replicate == replicate and t.wall_ns),
        key=lambda t: t.index,
    )
    counts = np.asarray([len(t.wall_ns) for t in turns], dtype=np.int64)
    walls = np.asarray([w for t in turns for w in t.wall_ns], dtype=np.float64)
    before, after, reading = _probes(turns, counts)
    return ProcessData(
        samples=walls / (measurement.loops * NANOSECONDS),
        turn=np.repeat(np.asarray([t.index for t in turns], dtype=np.int64), counts),
        probe_before=before,
        probe_after=after,
        reading=reading,
    )


def replicates_with_samples(measurement: Measurement) -> tuple[int, ...]:
    """The replicates of an arm that have at least one sample, in order."""
    return tuple(sorted({t.replicate for t in measurement.turns if t.wall_ns}))


def processes_of(measurement: Measurement) -> list[ProcessData]:
    """The samples of every replicate that has any."""
    return [process_data(measurement, r) for r in replicates_with_samples(measurement)]


def _probes(turns: Sequence[Turn], counts: Ints) -> tuple[Floats, Floats, Ints]:
    """The probe before and after each sample's block of `probe_every` samples, in seconds."""
    probes: list[float] = []
    starts = []
    for turn in turns:
        starts.append(len(probes))
        probes.extend(_known_probes(turn))
    table = np.asarray(probes, dtype=np.float64) / NANOSECONDS
    every = np.asarray([_probe_every(t) for t in turns], dtype=np.int64)
    place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    block = place // np.repeat(every, counts) + np.repeat(np.asarray(starts, np.int64), counts)
    return table[block], table[block + 1], block


def _known_probes(turn: Turn) -> list[float]:
    """One probe before each block and one after the last, NaN where none was taken.

    A last block cut short has no probe behind it, so its samples never count as quiet.
    """
    needed = (len(turn.wall_ns) - 1) // _probe_every(turn) + 2
    taken: list[float] = list(turn.probe_ns[:needed]) if turn.probe_every > 0 else []
    return taken + [math.nan] * (needed - len(taken))


def _probe_every(turn: Turn) -> int:
    return turn.probe_every if turn.probe_every > 0 else len(turn.wall_ns)


_NORMAL = NormalDist()
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_TINY = 1e-300
_EPS = 1e-16
_MAX_TERMS = 100_000
_STIRLING_FROM = 15.0
"""Below this log-gamma is small enough to lose no digits; above it the series' first left-out
term, x**-13 / 156, is under 1e-17."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def normal_cdf(x: float) -> float:
    """P(Z <= x) for a standard normal Z."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """The x for which P(Z <= x) = p."""
    _check_probability(p)
    if p in (0.0, 1.0):
        return math.inf if p == 1.0 else -math.inf
    return _NORMAL.inv_cdf(p)


def student_t_cdf(t: float, df: float) -> float:
    """P(T <= t) with `df` degrees of freedom (`inf` gives the normal)."""
    _check_df(df)
    if math.isinf(df):
        return normal_cdf(t)
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    ratio = abs(t) / math.sqrt(df)
    x = 1.0 / (1.0 + ratio * ratio)
    y = ratio * ratio * x if ratio < 1.0 else 1.0 - x
    tail, centre = _beta_tails(0.5 * df, 0.5, x, y)
    return 0.5 * tail if t < 0 else 0.5 + 0.5 * centre


def two_sided(centre: float, std_error: float, df: float) -> float:
    """The two-sided p-value of "the log ratio is 0" by Student's t."""
    if centre == 0.0:
        return 1.0
    if std_error == 0.0:
        return 0.0
    return 2.0 * student_t_cdf(-abs(centre) / std_error, df)


@lru_cache(maxsize=1024)
def student_t_quantile(p: float, df: float) -> float:
    """The t for which P(T <= t) = p with `df` degrees of freedom."""
    _check_probability(p)
    _check_df(df)
    if p in (0.0, 1.0):
        return math.inf if p == 1.0 else -math.inf
    if p == 0.5:
        return 0.0
    if math.isinf(df):
        return normal_quantile(p)
    # df / (df + T**2) is Beta(df / 2, 1 / 2); its logit u gives |t| = sqrt(df * exp(-u)).
    tail = p if p < 0.5 else 1.0 - p
    u = _beta_logit_quantile(0.5 * df, 0.5, 2.0 * tail, 2.0 * abs(p - 0.5))
    size = math.sqrt(df) * math.exp(-0.5 * u)
    return -size if p < 0.5 else size


def exp_or_inf(value: float) -> float:
    """exp(value); infinity where that is too large for a float."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _beta_tails(a: float, b: float, x: float, y: float) -> tuple[float, float]:
    """(I_x(a, b), 1 - I_x(a, b)), each exact to its own size; `y` is 1 - x."""
    if x <= 0.0:
        return 0.0, 1.0
    if y <= 0.0:
        return 1.0, 0.0
    front = _beta_front(a, b, x, y)
    if x * (a + b + 2.0) < a + 1.0:
        lower = min(1.0, front * _beta_fraction(a, b, x) / a)
        return lower, 1.0 - lower
    upper = min(1.0, front * _beta_fraction(b, a, y) / b)
    return 1.0 - upper, upper


def _beta_front(a: float, b: float, x: float, y: float) -> float:
    """x**a * y**b / B(a, b), by deviances: differences of large log-gammas lose digits."""
    n = a + b
    log = (
        _stirling_error(n)
        - _stirling_error(a)
        - _stirling_error(b)
        - _deviance(a, n * x)
        - _deviance(b, n * y)
    )
    return math.sqrt(a * b / (2.0 * math.pi * n)) * math.exp(log)


def _stirling_error(x: float) -> float:
    """log(Gamma(x + 1)) minus Stirling's formula."""
    if x < _STIRLING_FROM:
        return math.lgamma(x + 1.0) - (x + 0.5) * math.log(x) + x - _HALF_LOG_TWO_PI
    square = 1.0 / (x * x)
    total = 0.0
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / x


def _deviance(x: float, mean: float) -> float:
    """x * log(x / mean) + mean - x without cancellation where the two are close."""
    difference = x - mean
    if abs(difference) >= 0.1 * (x + mean):
        return x * (math.log(x) - math.log(mean)) - difference if mean > 0.0 else math.inf
    v = difference / (x + mean)
    total, term, power = difference * v, 0.0, 2.0 * x * v
    for j in range(1, 1000):
        power *= v * v
        term = power / (2 * j + 1)
        if total + term == total:
            break
        total += term
    return total


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method.

    Nearly all the time that a comparison of runs spends in p-values is spent in this loop, so it
    calls nothing.
    """
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    total = d = 1.0 / (_TINY if -_TINY <= d <= _TINY else d)
    for m in range(1, _MAX_TERMS):
        place = a + 2 * m
        even = m * (b - m) * x / ((place - 1.0) * place)
        c, d = 1.0 + even / c, 1.0 + even * d
        c = _TINY if -_TINY <= c <= _TINY else c
        d = 1.0 / (_TINY if -_TINY <= d <= _TINY else d)
        total *= d * c
        odd = -(a + m) * (a + b + m) * x / (place * (place + 1.0))
        c, d = 1.0 + odd / c, 1.0 + odd * d
        c = _TINY if -_TINY <= c <= _TINY else c
        d = 1.0 / (_TINY if -_TINY <= d <= _TINY else d)
        change = d * c
        total *= change
        if abs(change - 1.0) <= 3.0 * _EPS:
            break
    return total


def _beta_logit_quantile(a: float, b: float, p: float, q: float) -> float:
    """log(x / (1 - x)) at the p-quantile x of Beta(a, b); `q` is 1 - p.

    The logit keeps both ends exact. Newton on the log of the smaller tail, kept inside a
    bracket: both tails are log-concave in the logit, so it cannot run away for long.
    """
    lower = p <= q
    target = math.log(p if lower else q)

    def gap(u: float) -> tuple[float, float]:
        x, y = _logistic(u), _logistic(-u)
        value = _beta_tails(a, b, x, y)[0 if lower else 1]
        if value <= 0.0:
            return (-math.inf if lower else math.inf), 0.0
        slope = _beta_front(a, b, x, y) / value
        return (math.log(value) - target if lower else target - math.log(value)), slope

    low, high = _bracket(gap, math.log(a / b))
    return _newton(gap, low, high)


def _bracket(gap: Callable[[float], tuple[float, float]], start: float) -> tuple[float, float]:
    step, low, high = 1.0, start, start
    while gap(low)[0] > 0.0 and low > -1e5:
        low, step = low - step, step * 2.0
    step = 1.0
    while gap(high)[0] < 0.0 and high < 1e5:
        high, step = high + step, step * 2.0
    return low, high


def _newton(gap: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    u = 0.5 * (low + high)
    for _ in range(200):
        value, slope = gap(u)
        if value == 0.0:
            return u
        low, high = (u, high) if value < 0.0 else (low, u)
        new = u - value / slope if slope > 0.0 and math.isfinite(value) else math.nan
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - u) <= 1e-15 * max(1.0, abs(u)):
            return new
        u = new
    return u


def _logistic(u: float) -> float:
    if u >= 0.0:
        return 1.0 / (1.0 + math.exp(-u))
    return math.exp(u) / (1.0 + math.exp(u))


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a probability must lie in [0, 1], got {p}")


def _check_df(df: float) -> None:
    if not df > 0.0:
        raise ValueError(f"the degrees of freedom must be positive, got {df}")


# Order statistics of fewer draws: what a larger sample's floor would be with n samples only.
#
# A minimum falls as n grows, so an arm with more samples looks faster than it is. Instead of
# throwing samples away at random, these functions give the exact mean over all ways to keep n.

KEPT_SIZE = 4096
"""Weights of more samples are made again each time: a thousand of them would take gigabytes."""


def expected_low_mean(samples: Floats, n: int, lowest: int) -> float:
    """The mean, over all choices of n out of the samples, of the mean of the `lowest` smallest.

    The samples may be in any order.
    """
    weights = _low_weights(samples.size, n, lowest)
    return float(weights @ smallest(samples, weights.size))


def smallest(samples: Floats, count: int) -> Floats:
    """The `count` smallest in order; of many samples quicker than to sort them all."""
    if count < samples.size:
        samples = np.partition(samples, count - 1)[:count]
    return np.asarray(np.sort(samples))


def _kept_if_small(make: Callable[..., Floats]) -> Callable[..., Floats]:
    """Remember weights of small samples: they are asked for again and again."""
    kept = lru_cache(maxsize=1024)(make)

    @wraps(make)
    def weights(size: int, *rest: int) -> Floats:
        return kept(size, *rest) if size <= KEPT_SIZE else make(size, *rest)

    return weights


@_kept_if_small
def rank_weights(size: int, n: int, rank: int) -> Floats:
    """P(the i-th smallest of all is the rank-th of n kept)."""
    _check(size, n, rank)
    # Of the i-1 smaller ones rank-1 are kept, of the size-i larger ones n-rank: none but these i.
    i = np.arange(rank, size - n + rank, dtype=np.float64)
    # The ratio of each probability to the one before it falls with i and passes 1 at the highest.
    # From there outwards the products only shrink, so that they neither overflow nor drift.
    steps = i / (i - rank + 1.0) * ((size - n + rank - i) / (size - i))
    top = int(np.count_nonzero(steps >= 1.0))
    below = np.cumprod(1.0 / steps[:top][::-1])[::-1]
    shares = np.concatenate([below, [1.0], np.cumprod(steps[top:])])
    weights = np.zeros(size)
    weights[rank - 1 : size - n + rank] = shares / shares.sum()
    return weights


@_kept_if_small
def _low_weights(size: int, n: int, lowest: int) -> Floats:
    """P(the i-th smallest of all is among the `lowest` smallest of n kept), over `lowest`.

    Only of the first ones, up to where it is no more than a float can tell from 0. The i-th is
    kept (n / size), and of the n-1 others kept fewer than `lowest` are below it: the lowest-th of
    them is above it. So one rank's weights are summed up from the far end.
    """
    _check(size, n, lowest)
    above = np.ones(size)
    if lowest < n:
        ranked = rank_weights(size - 1, n - 1, lowest)
        above = np.cumsum(ranked[::-1])[::-1]
    return np.asarray(n / size / lowest * above[: np.count_nonzero(above)], dtype=np.float64)


def _check(size: int, n: int, rank: int) -> None:
    if not 1 <= rank <= n <= size:
        raise ValueError(f"need 1 <= rank <= n <= size, got {rank}, {n}, {size}")


PROBE_TOLERANCE = 0.03
"""A probe within 3 % of its floor ran at full speed: samples between two such probes spread by
about 1 %, all samples together by 50-90 % (measured on a shared machine)."""
MIN_GATED = 5
"""Fewer quiet samples than this are no sample of the process."""
MIN_LOWEST = 3
"""A low mean takes at least three samples, so that no single reading decides."""
SORTED_SIZE = 4096
"""Up to here a sort is as quick as anything else."""


class Estimator(Protocol):
    """Seconds per call of one process; `n` is the sample count to compare at."""

    def __call__(self, data: ProcessData, n: int | None = None) -> float: ...


def low_1(data: ProcessData, n: int | None = None) -> float:
    """The mean of the fastest 1 % (at least 3 samples)."""
    return low_mean(data, n, 0.01)


def low_mean(data: ProcessData, n: int | None, share: float) -> float:
    """The mean of the fastest share of samples (at least 3)."""
    size = data.samples.size
    count = size if n is None else min(n, size)
    if not count:
        return math.nan
    lowest = min(count, max(MIN_LOWEST, math.ceil(share * count)))
    if count == size:
        return float(smallest(data.samples, lowest).sum()) / lowest
    return expected_low_mean(data.samples, count, lowest)


def median_of(data: ProcessData, n: int | None = None) -> float:
    """The median of all samples: the typical time, noise and all."""
    return middle(data.samples) if data.samples.size else math.nan


FLOOR_ESTIMATOR = "low1"
"""The floor-type estimator that reports call "floor": as sharp as the minimum where only one
sample in ten is quiet, and no single odd reading decides it."""
TYPICAL_ESTIMATOR = "median"
"""The estimator that reports call "typical"."""
PAIRS_ESTIMATOR = "pairs"
"""The middle of the ratios of calls that were neighbours in time (`pair_logs`). Of a single arm:
the median of its calls."""
LONG_STEP_NS = 10_000_000
"""From here on a process gives dozens of calls, not hundreds, and their fastest per cent is a
single call: pairs of neighbours were 3 to 10 times as repeatable as floors (benchmarks/aa.py)."""

ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        FLOOR_ESTIMATOR: low_1,
        "floor": low_1,
        TYPICAL_ESTIMATOR: median_of,
        "typical": median_of,
        PAIRS_ESTIMATOR: median_of,
    }
)


def deciding_estimator(sample_ns: float) -> str:
    """The estimator that decides for samples of this length: known before any is compared."""
    return PAIRS_ESTIMATOR if sample_ns >= LONG_STEP_NS else FLOOR_ESTIMATOR


def estimator_of(base: Measurement) -> str:
    """The one that decides what is compared with this arm, by its step in the pass alone.

    Statements are blocks of a length that we chose, or so slow that each execution counts.
    """
    cost = base.compile
    return deciding_estimator(cost.steady_ns * base.loops) if cost else FLOOR_ESTIMATOR


def is_floor(name: str) -> bool:
    """Whether the estimator looks at the fastest samples."""
    return name not in (TYPICAL_ESTIMATOR, "typical", PAIRS_ESTIMATOR)


def find_estimator(name: str) -> Estimator:
    """The estimator of that name; a `UsageError` that lists the names when there is none."""
    if name not in ESTIMATORS:
        raise UsageError(
            f"There is no estimator named {name!r}.", f"Use one of {', '.join(ESTIMATORS)}."
        )
    return ESTIMATORS[name]


def middle(samples: Floats) -> float:
    """The median; several times quicker on small arrays than numpy's own."""
    places = (samples.size - 1) // 2, samples.size // 2
    few = samples.size <= SORTED_SIZE
    ordered = np.sort(samples) if few else np.partition(samples, places)
    return 0.5 * float(ordered[places[0]] + ordered[places[1]])


# The time ratio of two arms from pairs of calls that were neighbours in time.
#
# Where arms take turns call by call, the two calls of a round meet the machine in the same mood: a
# neighbour on the same core, a slow minute. Their ratio does not have it any more, and the middle
# of many such ratios is known far better than the ratio of two middles.
#
# **The interval.** The process is the unit. But the rounds of a process also tell how well its own
# median is known (`median_variance`), from many more numbers than there are processes, and with
# memory kept the medians of processes differ by no more: over 22 recorded conditions of five real
# models the variance between processes was 0.85 times what rounds alone give. So where it is at
# most `ALIKE` times that, both are pooled, the rounds' part counting for twice the degrees of
# freedom, and the result is never less than that part. Where it is more, processes do differ, and
# they alone decide. Simulated from no difference between processes to thirty times the rounds'
# part, such intervals of four to eight processes hold the truth in 93.7 to 98 %
# (tests/stats/test_pairs.py); by Student's t over processes alone they would be up to 30 % wider.

Z = 1.96
"""Normal quantile of the order statistics that the variance of a median is taken from."""
LEAST_PAIRS = 6
"""Fewer have no order statistics that far from their median."""
ALIKE = 1.5
"""Processes whose values vary by no more than so many times the rounds' part count as alike."""
WITHIN_COUNTS = 2.0
"""Degrees of freedom that the rounds' part counts for, in those of the processes."""


def pair_logs(base: ProcessData, new: ProcessData) -> Floats:
    """log(new / base) of each round in which both arms took a turn; of longer turns the medians."""
    rounds, base_logs = _turn_logs(base)
    others, new_logs = _turn_logs(new)
    _, left, right = np.intersect1d(rounds, others, assume_unique=True, return_indices=True)
    found: Floats = new_logs[right] - base_logs[left]
    return found


def pairs_log_ratio(base: ProcessData, new: ProcessData) -> tuple[float, float]:
    """The median over the rounds and its variance; NaN where there are too few for them."""
    logs = pair_logs(base, new)
    return (float(np.median(logs)), median_variance(logs)) if logs.size else (math.nan, math.nan)


def median_variance(values: Floats) -> float:
    """The variance of a median from the order statistics around it (McKean and Schrader), which
    needs no assumption about the tails; NaN of too few values."""
    n = values.size
    if n < LEAST_PAIRS:
        return math.nan
    rank = max(1, round(0.5 * (n + 1) - Z * math.sqrt(0.25 * n)))
    ordered = np.sort(values)
    return float((ordered[n - rank] - ordered[rank - 1]) / (2.0 * Z)) ** 2


def pool_variances(between: float, within: float, processes: int) -> tuple[float, float]:
    """The variance of one process's value, and its degrees of freedom."""
    freedom = float(processes - 1)
    if not math.isfinite(within) or between > ALIKE * within:
        return between, freedom
    pooled = (WITHIN_COUNTS * within + between) / (WITHIN_COUNTS + 1.0)
    return max(within, pooled), (WITHIN_COUNTS + 1.0) * freedom


def _turn_logs(data: ProcessData) -> tuple[Ints, Floats]:
    """The turns' indices, in order, and the log of each one's median sample."""
    turns, starts = np.unique(data.turn, return_index=True)
    if turns.size == data.samples.size:
        return turns, np.log(data.samples[starts])
    medians = [float(np.median(data.samples[data.turn == turn])) for turn in turns]
    return turns, np.log(np.asarray(medians))
