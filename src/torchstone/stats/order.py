"""Order statistics of fewer draws: what a larger sample's floor would be with n samples only.

A minimum falls as n grows, so an arm with more samples looks faster than it is. Instead of
throwing samples away at random, these functions give the exact mean over all ways to keep n.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from torchstone.stats.late import Late
from torchstone.stats.process import Floats, Ints

if TYPE_CHECKING:
    import numpy as np
else:
    np = Late("numpy")


def expected_minimum(sorted_samples: Floats, n: int) -> float:
    """The mean, over all choices of n out of the samples, of their minimum."""
    return float(_minimum_weights(sorted_samples.size, n) @ sorted_samples)


def expected_order_statistic(sorted_samples: Floats, n: int, rank: int) -> float:
    """The mean, over all choices of n out of the samples, of the rank-th smallest (from 1)."""
    return float(_rank_weights(sorted_samples.size, n, rank) @ sorted_samples)


def expected_low_mean(sorted_samples: Floats, n: int, lowest: int) -> float:
    """The mean, over all choices of n out of the samples, of the mean of the `lowest` smallest."""
    return float(_low_weights(sorted_samples.size, n, lowest) @ sorted_samples)


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
        reached = np.concatenate([[0.0], np.cumsum(_minimum_weights(group.size, n))])
        coin = np.minimum(reached[np.searchsorted(group, values, side="right")], 1.0)
        moved = at_most[:-1] * coin
        at_most *= 1.0 - coin
        at_most[1:] += moved
    # E[rank-th] = smallest value + the sum of steps weighted by P(fewer than rank are <= x).
    steps = np.diff(values)
    fewer = np.cumsum(at_most, axis=0)[:, :-1]
    return float(values[0] + np.mean([fewer[rank - 1] @ steps for rank in ranks]))


@lru_cache(maxsize=1024)
def _minimum_weights(size: int, n: int) -> Floats:
    """P(the i-th smallest of all is the smallest of n kept) = C(size-i, n-1) / C(size, n)."""
    _check(size, n, 1)
    i = np.arange(1, size, dtype=np.float64)
    # The ratio of one binomial to the one before it: exact, and never overflows.
    steps = np.maximum(size - i - n + 1.0, 0.0) / (size - i)
    return np.asarray(n / size * np.concatenate([[1.0], np.cumprod(steps)]), dtype=np.float64)


@lru_cache(maxsize=1024)
def _rank_weights(size: int, n: int, rank: int) -> Floats:
    """P(the i-th smallest of all is the rank-th of n kept)."""
    _check(size, n, rank)
    # Of the i-1 smaller ones rank-1 are kept, of the size-i larger ones n-rank.
    smaller = np.arange(size)
    larger = size - 1 - smaller
    possible = (smaller >= rank - 1) & (larger >= n - rank)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])

    def log_choose(total: Ints, chosen: int) -> Floats:
        return np.asarray(
            log_factorial[total] - log_factorial[chosen] - log_factorial[total - chosen]
        )

    weights = np.zeros(size)
    weights[possible] = np.exp(
        log_choose(smaller[possible], rank - 1)
        + log_choose(larger[possible], n - rank)
        - log_choose(np.asarray(size), n)
    )
    return weights


@lru_cache(maxsize=1024)
def _low_weights(size: int, n: int, lowest: int) -> Floats:
    _check(size, n, lowest)
    total = np.zeros(size)
    for rank in range(1, lowest + 1):
        total += _rank_weights(size, n, rank)
    return np.asarray(total / lowest, dtype=np.float64)


def _check(size: int, n: int, rank: int) -> None:
    if not 1 <= rank <= n <= size:
        raise ValueError(f"need 1 <= rank <= n <= size, got {rank}, {n}, {size}")
