"""Estimators of one process that compete with those of `stats`, and one replicate's ratio by any.

Each takes `n`, the number of samples to count as: see `stats.estimators`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from torchstone import stats
from torchstone.stats import (
    ESTIMATORS,
    MIN_GATED,
    MIN_LOWEST,
    PAIRS_ESTIMATOR,
    PROBE_TOLERANCE,
    Estimator,
    ProcessData,
    log_ratio_at_equal_n,
    low_mean,
    middle,
    pairs_log_ratio,
    rank_weights,
    with_jackknife,
)

Floats = npt.NDArray[np.float64]

QUIET_TURNS = 0.25
"""The share of turns, by their minima, that counts as quiet."""


def minimum(data: ProcessData, n: int | None = None) -> float:
    """The fastest sample."""
    if not data.samples.size:
        return math.nan
    return expected_order_statistic(np.sort(data.samples), _count(data, n), 1)


def quantile_05(data: ProcessData, n: int | None = None) -> float:
    """The 5th percentile, interpolated between the two nearest samples."""
    count = _count(data, n)
    if not count:
        return math.nan
    ordered = np.sort(data.samples)
    position = 0.05 * (count - 1)
    below = int(position)
    low = expected_order_statistic(ordered, count, below + 1)
    if below + 1 >= count:
        return low
    high = expected_order_statistic(ordered, count, below + 2)
    return low + (position - below) * (high - low)


def low_5(data: ProcessData, n: int | None = None) -> float:
    """The mean of the fastest 5 % (at least 3 samples)."""
    return low_mean(data, n, 0.05)


def turn_min_median(data: ProcessData, n: int | None = None) -> float:
    """The median over turns of each turn's fastest sample."""
    turns = np.unique(data.turn).size
    return _turn_minima(data, n, range((turns + 1) // 2, turns // 2 + 2))


def turn_min_low(data: ProcessData, n: int | None = None) -> float:
    """The mean of the fastest quarter of the turns' fastest samples (at least 3 turns)."""
    turns = np.unique(data.turn).size
    lowest = min(turns, max(MIN_LOWEST, math.ceil(QUIET_TURNS * turns)))
    return _turn_minima(data, n, range(1, lowest + 1))


def gated(data: ProcessData, n: int | None = None) -> float:
    """The median of the samples between two probes that ran at full speed.

    Full speed is within 3 % of the process's fastest probe. NaN with fewer than 5 of them.
    """
    probes = np.concatenate([data.probe_before, data.probe_after])
    probes = probes[np.isfinite(probes)]
    if not probes.size:
        return math.nan
    limit = float(probes.min()) * (1.0 + PROBE_TOLERANCE)
    quiet = data.samples[(data.probe_before <= limit) & (data.probe_after <= limit)]
    return middle(quiet) if quiet.size >= MIN_GATED else math.nan


def mean(data: ProcessData, n: int | None = None) -> float:
    """The mean of all samples."""
    return float(data.samples.mean()) if data.samples.size else math.nan


COMPETING: Mapping[str, Estimator] = {
    "min": minimum,
    "p05": quantile_05,
    "low1": ESTIMATORS["low1"],
    "low5": low_5,
    "turn-min-median": turn_min_median,
    "turn-min-low": turn_min_low,
    "gated": gated,
    "median": ESTIMATORS["median"],
    "mean": mean,
    PAIRS_ESTIMATOR: ESTIMATORS[PAIRS_ESTIMATOR],
}


def is_floor(name: str) -> bool:
    """Whether the estimator looks at the fastest samples, so that replicates are weighed."""
    return name != "mean" and stats.is_floor(name)


def process_ratio(estimator: str, base: ProcessData, new: ProcessData) -> tuple[float, float]:
    """One process's log ratio and its variance over turns: what `stats.combine` makes a fit of."""
    pair = base, new
    if estimator == PAIRS_ESTIMATOR:
        return pairs_log_ratio(*pair)
    statistic = log_ratio_at_equal_n(COMPETING[estimator], pair)
    (value,) = with_jackknife([statistic], pair)
    return value


def expected_order_statistic(sorted_samples: Floats, n: int, rank: int) -> float:
    """The mean, over all choices of n out of the samples, of the rank-th smallest (from 1)."""
    return float(rank_weights(sorted_samples.size, n, rank) @ sorted_samples)


def expected_ranks_of_minima(
    groups: Sequence[Floats], draws: Sequence[int], ranks: Sequence[int]
) -> float:
    """The mean of the wanted ranks (from 1) among the groups' minima, each of its own draws.

    Each sorted group keeps `draws` of its samples, independently. The minima's order mixes the
    groups, so the expected minima cannot stand in for the minima. Exact: at each sample x the
    number of minima <= x is a sum of independent coins, one a group.
    """
    values = np.unique(np.concatenate(groups))
    at_most = np.zeros((len(groups) + 1, values.size))  # [j]: P(exactly j minima are <= x)
    at_most[0] = 1.0
    for group, n in zip(groups, draws, strict=True):
        reached = np.concatenate([[0.0], np.cumsum(rank_weights(group.size, n, 1))])
        coin = np.minimum(reached[np.searchsorted(group, values, side="right")], 1.0)
        moved = at_most[:-1] * coin
        at_most *= 1.0 - coin
        at_most[1:] += moved
    # E[rank-th] = smallest value + the sum of steps weighted by P(fewer than rank are <= x).
    steps = np.diff(values)
    fewer = np.cumsum(at_most, axis=0)[:, :-1]
    return float(values[0] + np.mean([fewer[rank - 1] @ steps for rank in ranks]))


def _count(data: ProcessData, n: int | None) -> int:
    return data.samples.size if n is None else min(n, data.samples.size)


def _turn_minima(data: ProcessData, n: int | None, ranks: range) -> float:
    """The mean of some ranks of the turns' minima; `n` thins each turn by the same share."""
    if not data.samples.size:
        return math.nan
    groups = [np.sort(data.samples[data.turn == turn]) for turn in np.unique(data.turn)]
    share = _count(data, n) / data.samples.size
    draws = [max(1, round(share * group.size)) for group in groups]
    return expected_ranks_of_minima(groups, draws, ranks)
