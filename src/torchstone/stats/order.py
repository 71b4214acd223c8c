"""Order statistics of fewer draws: what a larger sample's floor would be with n samples only.

A minimum falls as n grows, so an arm with more samples looks faster than it is. Instead of
throwing samples away at random, these functions give the exact mean over all ways to keep n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING

from torchstone.stats.late import Late
from torchstone.stats.process import Floats

if TYPE_CHECKING:
    import numpy as np
else:
    np = Late("numpy")

KEPT_SIZE = 4096
"""Weights of more samples are made anew each time: a thousand of them would take gigabytes."""


def expected_minimum(sorted_samples: Floats, n: int) -> float:
    """The mean, over all choices of n out of the samples, of their minimum."""
    return float(_minimum_weights(sorted_samples.size, n) @ sorted_samples)


def expected_order_statistic(sorted_samples: Floats, n: int, rank: int) -> float:
    """The mean, over all choices of n out of the samples, of the rank-th smallest (from 1)."""
    return float(_rank_weights(sorted_samples.size, n, rank) @ sorted_samples)


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


def _kept_if_small(make: Callable[..., Floats]) -> Callable[..., Floats]:
    """Remember weights of small samples: they are asked for again and again."""
    kept = lru_cache(maxsize=1024)(make)

    @wraps(make)
    def weights(size: int, *rest: int) -> Floats:
        return kept(size, *rest) if size <= KEPT_SIZE else make(size, *rest)

    return weights


@_kept_if_small
def _minimum_weights(size: int, n: int) -> Floats:
    """P(the i-th smallest of all is the smallest of n kept) = C(size-i, n-1) / C(size, n)."""
    _check(size, n, 1)
    i = np.arange(1, size, dtype=np.float64)
    # The ratio of one binomial to the one before it: exact, and never overflows.
    steps = np.maximum(size - i - n + 1.0, 0.0) / (size - i)
    return np.asarray(n / size * np.concatenate([[1.0], np.cumprod(steps)]), dtype=np.float64)


@_kept_if_small
def _rank_weights(size: int, n: int, rank: int) -> Floats:
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
        ranked = _rank_weights(size - 1, n - 1, lowest)
        above = np.cumsum(ranked[::-1])[::-1]
    return np.asarray(n / size / lowest * above[: np.count_nonzero(above)], dtype=np.float64)


def _check(size: int, n: int, rank: int) -> None:
    if not 1 <= rank <= n <= size:
        raise ValueError(f"need 1 <= rank <= n <= size, got {rank}, {n}, {size}")
