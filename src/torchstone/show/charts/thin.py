"""Very many points as one column of pixels after another: lowest, mean and highest of each.

This is the one part of the charts that needs numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from torchstone.show.charts.data import LARGEST, LAST_DATE, Point
from torchstone.show.charts.frame import EDGE, Frame

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dense:
    """A series as arrays, by time; NaN where a point has no value."""

    x: Floats
    y: Floats
    failed: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Column:
    """All points that fall on one column of pixels. Without a value where all of them lack one."""

    place: float
    x: float
    count: int
    failed: int
    low: float | None = None
    mean: float | None = None
    high: float | None = None


def dense(points: Sequence[Point], span: tuple[float, float] | None) -> Dense:
    """The points within the span."""
    # One attribute at a time: three passes of C are quicker than one of Python.
    x = np.array(list(map(attrgetter("x"), points)), dtype=np.float64)
    y = np.array(list(map(attrgetter("y"), points)), dtype=np.float64)
    marks = list(map(attrgetter("mark"), points))
    failed = np.fromiter((mark == "failed" for mark in marks), dtype=np.bool_, count=len(marks))
    apart = np.fromiter((mark == "partial" for mark in marks), dtype=np.bool_, count=len(marks))
    y = np.where((np.abs(y) <= LARGEST) & ~failed & ~apart, y, np.nan)
    low, high = span or (-LAST_DATE, LAST_DATE)
    keep = (x >= low) & (x <= high)
    x, y, failed = x[keep], y[keep], failed[keep]
    if x.size and np.any(np.diff(x) < 0):
        order = np.argsort(x, kind="stable")
        x, y, failed = x[order], y[order], failed[order]
    return Dense(x, y, failed)


def ends_of(series: Dense) -> list[float]:
    """The lowest and the highest value; nothing where there is none."""
    known = series.y[np.isfinite(series.y)]
    return [float(known.min()), float(known.max())] if known.size else []


def distinct(series: Dense) -> list[float]:
    """Every moment once."""
    found: list[float] = np.unique(series.x).tolist()
    return found


def columns(series: Dense, frame: Frame) -> list[Column]:
    """From left to right; columns without a point are not there."""
    if not series.x.size:
        return []
    each = frame.wide / max(1, int(frame.wide))
    last = max(1, int(frame.wide)) - 1  # the last moment of all belongs to the last column
    column = np.minimum(np.floor(_shares(series.x, frame) * (last + 1)), last).astype(np.int64)
    starts = np.flatnonzero(np.r_[True, np.diff(column) != 0])
    counts = np.diff(np.r_[starts, column.size])
    known = np.isfinite(series.y)
    having = np.add.reduceat(known.astype(np.int64), starts)
    low = np.minimum.reduceat(np.where(known, series.y, np.inf), starts)
    high = np.maximum.reduceat(np.where(known, series.y, -np.inf), starts)
    mean = np.add.reduceat(np.where(known, series.y, 0.0), starts) / np.maximum(having, 1)
    failed = np.add.reduceat(series.failed.astype(np.int64), starts)
    middle = series.x[starts + counts // 2]
    return [
        Column(
            frame.left + EDGE + (place + 0.5) * each,
            x,
            count,
            bad,
            *((a, b, c) if having_any else (None, None, None)),
        )
        for place, x, count, bad, a, b, c, having_any in zip(
            column[starts].tolist(),
            middle.tolist(),
            counts.tolist(),
            failed.tolist(),
            low.tolist(),
            mean.tolist(),
            high.tolist(),
            (having > 0).tolist(),
            strict=True,
        )
    ]


def _shares(x: Floats, frame: Frame) -> Floats:
    times = frame.times
    if times.order:
        ranks = np.linspace(0.0, 1.0, len(times.order)) if len(times.order) > 1 else [0.5]
        return np.asarray(np.interp(x, times.order, ranks), dtype=np.float64)
    return np.asarray((x - times.low) / (times.high - times.low), dtype=np.float64)
