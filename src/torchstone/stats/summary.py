"""Figures over many comparisons, and the rank test that other tools use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from torchstone.stats.distributions import normal_cdf
from torchstone.stats.process import Floats, LazyModule
from torchstone.stats.ratio import combine

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")


class Interval(NamedTuple):
    """A value with its interval."""

    value: float
    lo: float
    hi: float


class RankTest(NamedTuple):
    """Mann-Whitney's U of the first sample and its two-sided p-value."""

    u: float
    p: float


def geometric_mean(ratios: Sequence[float], level: float = 0.95) -> Interval:
    """exp(mean log) of positive ratios with a Student t interval over them.

    The interval speaks of the cases as a sample of such cases. One ratio: (0, inf); none: NaN.
    """
    if not all(0.0 < r < math.inf for r in ratios):
        raise ValueError("ratios must be positive and finite")
    fit = combine([(math.log(r), math.nan) for r in ratios])
    return Interval(math.exp(fit.centre), *fit.interval(level))


def mann_whitney(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> RankTest:
    """Mann-Whitney's test by the normal approximation, corrected for ties and continuity."""
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("both samples need at least one value")
    pooled = np.concatenate([np.asarray(first, float), np.asarray(second, float)])
    _, place, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mid_ranks = last - 0.5 * (counts - 1)
    u = float(mid_ranks[place.reshape(-1)][:n].sum()) - 0.5 * n * (n + 1)
    total = n + m
    ties = float((counts.astype(float) ** 3 - counts).sum())
    variance = n * m / 12.0 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0.0:
        return RankTest(u, 1.0)
    z = (abs(u - 0.5 * n * m) - 0.5) / math.sqrt(variance)
    return RankTest(u, min(1.0, 2.0 * normal_cdf(-z)))


# P-values corrected for how many there are.


def holm(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the given order: the family-wise error rate is kept."""
    order = _ranked(pvalues)
    count = len(order)
    raised = (pvalues[place] * (count - rank) for rank, place in enumerate(order))
    return _unranked(order, accumulate(raised, max))


def benjamini_hochberg(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Benjamini and Hochberg's adjusted p-values: the false discovery rate is kept."""
    order = _ranked(pvalues)
    count = len(order)
    order.reverse()
    raised = (pvalues[place] * count / (count - rank) for rank, place in enumerate(order))
    return _unranked(order, accumulate(raised, min))


def _ranked(pvalues: Sequence[float]) -> list[int]:
    """The places of the p-values, the smallest first."""
    if not all(0.0 <= p <= 1.0 for p in pvalues):
        raise ValueError("p-values must lie in [0, 1]")
    return sorted(range(len(pvalues)), key=pvalues.__getitem__)


def _unranked(order: Sequence[int], adjusted: Iterable[float]) -> tuple[float, ...]:
    found = [0.0] * len(order)
    for place, p in zip(order, adjusted, strict=True):
        found[place] = min(float(p), 1.0)
    return tuple(found)
