"""One process's log ratio from calls that were neighbours in time: the estimators that compete.

Every estimator is a pure function of two arrays of the same length: the times of base and new,
aligned by pair (the two calls of a pair were neighbours). It gives log(new / base), NaN where there
is nothing to compute it from. Estimators on pairs look at the ratio within each pair, so what
slowed both calls cancels; the others look at each arm's times by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_LOWEST = 3
"""A low mean takes at least three samples, so that no single reading decides (`stats` has the
same)."""
MIDDLE, QUIET = 0.5, 0.5
"""The shares of pairs that count as the middle, and as the quietest."""


class PairEstimator(Protocol):
    """log(new / base) of one process."""

    def __call__(self, base: Floats, new: Floats) -> float: ...


def pair_median(base: Floats, new: Floats) -> float:
    """The median of the pairs' log ratios."""
    return _median(_logs(base, new))


def pair_middle(base: Floats, new: Floats) -> float:
    """The mean of the middle half of the pairs' log ratios."""
    return _middle_mean(_logs(base, new))


def pair_quiet(base: Floats, new: Floats) -> float:
    """The mean log ratio of the quietest half of the pairs, by the sum of both times."""
    return _mean(_quiet_logs(base, new))


def pair_quiet_median(base: Floats, new: Floats) -> float:
    """The median log ratio of the quietest half of the pairs."""
    return _median(_quiet_logs(base, new))


def pair_centre(base: Floats, new: Floats) -> float:
    """Hodges and Lehmann's: the median of the means of every two pairs, each with itself too."""
    logs = _logs(base, new)
    if not logs.size:
        return math.nan
    first, second = np.triu_indices(logs.size)
    return _median(0.5 * (logs[first] + logs[second]))


def ratio_of_medians(base: Floats, new: Floats) -> float:
    """Both arms by their own median, as the usual way has it."""
    return _log(_median(new)) - _log(_median(base))


def lowest_quarter(base: Floats, new: Floats) -> float:
    """The means of the fastest quarter of each arm."""
    return _low_ratio(base, new, 0.25)


def lowest_tenth(base: Floats, new: Floats) -> float:
    """The means of the fastest tenth of each arm."""
    return _low_ratio(base, new, 0.10)


def floor(base: Floats, new: Floats) -> float:
    """The means of the fastest per cent of each arm (at least 3 samples): `low1` of `stats`."""
    return _low_ratio(base, new, 0.01)


ESTIMATORS: Mapping[str, PairEstimator] = MappingProxyType(
    {
        "pair-median": pair_median,
        "pair-middle": pair_middle,
        "pair-quiet": pair_quiet,
        "pair-quiet-median": pair_quiet_median,
        "pair-centre": pair_centre,
        "medians": ratio_of_medians,
        "low25": lowest_quarter,
        "low10": lowest_tenth,
        "floor": floor,
    }
)


def jackknife_variance(estimator: PairEstimator, base: Floats, new: Floats, turn: Ints) -> float:
    """The estimator's variance over turns, by leaving out one at a time; NaN with fewer than two.

    `turn` names the turn of each pair: pairs of one turn go together.
    """
    parts = []
    for one in np.unique(turn):
        keep = turn != one
        if keep.any():
            parts.append(estimator(base[keep], new[keep]))
    known = np.asarray([part for part in parts if math.isfinite(part)])
    if known.size < 2:
        return math.nan
    return float(((known - known.mean()) ** 2).sum() * (known.size - 1) / known.size)


def _logs(base: Floats, new: Floats) -> Floats:
    logs: Floats = np.log(new / base)
    return logs


def _quiet_logs(base: Floats, new: Floats) -> Floats:
    quiet = np.argsort(base + new, kind="stable")[: math.ceil(QUIET * base.size)]
    return _logs(base[quiet], new[quiet])


def _middle_mean(values: Floats) -> float:
    """The mean without as many values at either end as the middle share leaves."""
    cut = int(0.5 * (1.0 - MIDDLE) * values.size)
    return _mean(np.sort(values)[cut : values.size - cut])


def _low_ratio(base: Floats, new: Floats, share: float) -> float:
    return _log(_low_mean(new, share)) - _log(_low_mean(base, share))


def _low_mean(times: Floats, share: float) -> float:
    lowest = min(times.size, max(LEAST_LOWEST, math.ceil(share * times.size)))
    return _mean(np.sort(times)[:lowest])


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else math.nan


def _median(values: Floats) -> float:
    return float(np.median(values)) if values.size else math.nan


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else math.nan
