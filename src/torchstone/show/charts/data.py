"""What goes into a chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

from torchstone.records.format import (
    format_bytes,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    ratio_decimals,
    time_unit,
)
from torchstone.show.svg import Axis, LogAxis, format_si, format_tick, round_ratios, round_values

MARKS = ("", "failed", "doubt", "partial", "better", "worse")
"""How a point is drawn: `failed` stands on the floor of the chart, `doubt` is hollow, `partial` is
hollow and no part of the line, `better` and `worse` have a ring."""
HOLLOW = ("doubt", "partial")
LARGEST = 1e30
"""Beyond it, and below its inverse where a logarithm is taken, a number is no figure of ours."""


class Point(NamedTuple):
    """One value. `x` is UTC seconds; `y` is NaN where a run gave no value.

    `low` and `high` are the ends of its interval. `label` stands on the axis (a short hash), `note`
    is told beside the value, `href` is where a click leads.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    href: str = ""
    mark: str = ""
    note: str = ""


def has_value(point: Point) -> bool:
    """Whether there is something to put into the frame."""
    return point.mark != "failed" and -LARGEST <= point.y <= LARGEST


def has_interval(point: Point) -> bool:
    """Whether both ends of the interval are known."""
    low, high = point.low, point.high
    known = low is not None and high is not None
    return known and -LARGEST <= (low or 0.0) <= (high or 0.0) <= LARGEST


@dataclass(frozen=True)
class Series:
    """Points that a line joins, oldest first.

    `role` chooses colour, shape and dash, so that one name looks the same in all charts of a page;
    without it, the place in the chart does.
    """

    name: str
    points: tuple[Point, ...]
    role: int | None = None


@dataclass(frozen=True)
class ChangeMark:
    """A place in time worth a mark, such as a change point. `kind` is ``, `better` or `worse`."""

    x: float
    label: str
    href: str = ""
    kind: str = ""


@dataclass(frozen=True)
class SampleTurn:
    """The samples of one turn in the order they were taken, in seconds per call.

    `dirty` are the places of those that were taken while the core ran slow.
    """

    process: int
    index: int
    samples: tuple[float, ...]
    dirty: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Strip:
    """All samples of one arm, and what was made of them, in seconds per call."""

    name: str
    turns: tuple[SampleTurn, ...]
    floor: float | None = None
    typical: float | None = None
    role: int | None = None


@dataclass(frozen=True)
class IntervalRow:
    """One line of a forest plot: a ratio with its interval.

    `verdict` is `better`, `worse`, `same`, `not-worse`, `not-better`, `doubt` or `failed`; a row
    without a value says only its note.
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "doubt"
    href: str = ""
    note: str = ""


# Dates on an axis: round days and hours, in UTC, in as few letters as it takes.


_HOUR, _DAY = 3600, 86_400
_WEEK = 7 * _DAY
_STEPS = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, _WEEK, 2 * _WEEK)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_MONTH_S = 30.44 * _DAY
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONDAY = 4 * _DAY  # the first Monday after the epoch, a Thursday
FIRST_DATE = 1e8
"""Smaller numbers are not dates of runs (they would lie before 1973) but numbers."""
LAST_DATE = 2.5e11  # the year 9892; what `datetime` can hold


def is_date(seconds: float) -> bool:
    """Whether a place on the axis is a time."""
    return FIRST_DATE <= seconds <= LAST_DATE


@lru_cache(maxsize=4096)  # the charts of a page have the same moments
def format_date(seconds: float) -> str:
    """`2026-11-16 05:54 UTC`; a plain number as it is."""
    return f"{_at(seconds):%Y-%m-%d %H:%M} UTC" if is_date(seconds) else f"{seconds:g}"


def date_marks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """At most `most` round moments within the ends, each with its words."""
    wide, most = high - low, max(1, most)
    for step in _STEPS:
        if wide / step <= most:
            return _even(low, high, step)
    for months in _MONTHS:
        if wide / (_MONTH_S * months) <= most:
            return _monthly(low, high, months)
    return []


def _even(low: float, high: float, step: int) -> list[tuple[float, str]]:
    """Hours by the clock, days by name; hours without a midnight among them say their day once."""
    base = _MONDAY if step >= _WEEK else 0
    first = -(-(low - base) // step) * step + base
    moments = [first + number * step for number in range(int((high - first) // step) + 1)]
    if not any(moment % _DAY == 0 for moment in moments):
        return [(at, f"{_day(at)}, {_hour(at)}" if at == first else _hour(at)) for at in moments]
    return [(at, _hour(at) if at % _DAY else _day(at)) for at in moments]


def _day(seconds: float) -> str:
    at = _at(seconds)
    return f"{_NAMES[at.month - 1]} {at.day}"


def _hour(seconds: float) -> str:
    return f"{_at(seconds):%H:%M}"


def _monthly(low: float, high: float, months: int) -> list[tuple[float, str]]:
    return [
        (moment.timestamp(), str(moment.year) if moment.month == 1 else _NAMES[moment.month - 1])
        for moment in _firsts(low, high)
        if (moment.year * 12 + moment.month - 1) % months == 0
    ]


def _firsts(low: float, high: float) -> Iterator[datetime]:
    """The first day of each month within the ends."""
    moment = _at(low).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while moment.timestamp() <= high:
        if moment.timestamp() >= low:
            yield moment
        year, month = divmod(moment.year * 12 + moment.month, 12)
        if year > 9999:
            return
        moment = moment.replace(year=year, month=month + 1)


def _at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


# Values and marks of an axis in words, by the kind of figure.


RATIO, SECONDS, NANOSECONDS, BYTES, SHARE = "ratio", "s", "ns", "bytes", "share"
"""Any other unit is a word that stands after the number."""
_KIB = 1024.0
_BYTE_NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TICK_DIGITS = 3


def format_value(value: float, unit: str, ends: tuple[float, float] | None = None) -> str:
    """`1.52×`, `12.3 ms`, `1.21 GiB`, `98 %`; `ends` are those of its interval, if it has one."""
    if unit == RATIO:
        return format_ratio(value, ratio_decimals(value, ends) if ends else None)
    if unit == SECONDS:
        return format_seconds(value, _TICK_DIGITS)
    if unit == NANOSECONDS:
        return format_seconds(value / 1e9, _TICK_DIGITS)
    if unit == BYTES:
        return format_bytes(value)
    if unit == SHARE:
        return format_percent(value)
    return format_si(value, unit) if value % 1 else format_tick(value, unit)


def format_estimate(value: float, low: float | None, high: float | None, unit: str) -> str:
    """The value, and its interval in brackets where there is one."""
    if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
        return format_value(value, unit)
    ends = (low, high)
    if unit == RATIO:
        between = format_interval(ends, ratio_decimals(value, ends))
    else:
        between = " – ".join(format_value(end, unit) for end in ends)
    return f"{format_value(value, unit, ends)} ({between})"


class Words:
    """The values of one chart in words: in one unit and with as many decimals as the axis is worth,
    so that they can be read against each other."""

    def __init__(self, axis: Axis, unit: str) -> None:
        self._unit = unit
        self._even = not isinstance(axis, LogAxis)
        self._scale, self._name = _scale(max(abs(axis.low), abs(axis.high)), unit)
        span = (axis.high - axis.low) / self._scale
        fine = 2 - math.floor(math.log10(span)) if span > 0 and math.isfinite(span) else 2
        self._decimals = min(max(fine, 0), 9)

    def __call__(self, value: float, low: float | None, high: float | None) -> str:
        if not self._even:
            return format_estimate(value, low, high, self._unit)
        scale, decimals = self._scale, self._decimals
        said = f"{value / scale:.{decimals}f}{self._name}"
        if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
            return said
        return f"{said} ({low / scale:.{decimals}f}–{high / scale:.{decimals}f})"


def axis_marks(axis: Axis, unit: str, most: int) -> list[tuple[float, str]]:
    """Round values within the axis, each with its words."""
    if isinstance(axis, LogAxis):
        values = _powers_of_two(axis, most) if unit == BYTES else round_ratios(axis, most)
        return [(value, _alone(value, unit)) for value in values]
    scale, name = _scale(max(abs(axis.low), abs(axis.high)), unit)
    values = round_values(axis.low / scale, axis.high / scale, most)
    decimals = _decimals(values)
    return [(value * scale, _number(value, decimals) + name) for value in values]


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """What one of the axis's numbers is worth, and the name that stands behind it."""
    if unit == RATIO:
        return 1.0, "×"
    if unit == SHARE:
        return 0.01, " %"
    if unit in (SECONDS, NANOSECONDS):
        second = 1.0 if unit == SECONDS else 1e9
        scale, name = time_unit(largest / second, _TICK_DIGITS) if largest else (1.0, "s")
        return scale * second, f" {name}"
    if unit == BYTES:
        power = min(int(math.log(largest, _KIB)), len(_BYTE_NAMES) - 1) if largest >= 1 else 0
        return _KIB**power, f" {_BYTE_NAMES[power]}"
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if largest >= scale:
            return (1e3 if prefix == "k" else scale), f" {prefix}{unit}"
    return 1.0, f" {unit}".rstrip()


def _alone(value: float, unit: str) -> str:
    """A round value with a name of its own: on a logarithmic axis they differ."""
    scale, name = _scale(value, unit)
    return f"{value / scale:g}{name}"


def _decimals(values: Sequence[float]) -> int:
    """As many as the step between marks needs."""
    if len(values) < 2:
        return 2
    step = f"{abs(values[1] - values[0]):.6g}"
    if "e" in step:
        return min(9, max(0, -math.floor(math.log10(abs(values[1] - values[0])))))
    return len(step.partition(".")[2])


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("-") and float(text) == 0 else text


def _powers_of_two(axis: LogAxis, most: int) -> list[float]:
    first, last = math.ceil(math.log2(axis.low)), math.floor(math.log2(axis.high))
    count = last - first + 1
    if count <= 0:
        return []
    step = max(1, math.ceil(count / most))
    return [2.0**power for power in range(math.ceil(first / step) * step, last + 1, step)]
