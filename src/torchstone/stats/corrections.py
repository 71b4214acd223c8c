"""P-values corrected for how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate


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
