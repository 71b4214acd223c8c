"""One number for one process: the estimators by name (`benchmarks/aa_estimators.py` has those that
were tried and did worse).

Floor-type estimators look at the fastest samples, because on a shared machine noise only ever
adds time. Each takes `n`: the number of samples to count as, so that two arms with different
sample counts are compared as if both had n. The typical ones do not depend on n and ignore it.
Every estimator gives NaN when the process has too little data for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from torchstone.records import Measurement, UsageError
from torchstone.stats.distributions import expected_low_mean, smallest
from torchstone.stats.process import Floats, Ints, ProcessData, np

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
