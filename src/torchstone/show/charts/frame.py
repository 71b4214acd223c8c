"""The frame of a chart: its axes, what stands along its edges, and how series are told apart.

What goes into a chart, and its moments and values in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from statistics import median
from typing import Literal, NamedTuple

from torchstone.records.format import (
    format_bytes,
    format_interval,
    format_ratio,
    format_seconds,
    format_si,
    format_tick,
    ratio_decimals,
    time_unit,
)
from torchstone.show.svg import (
    SHAPES,
    Axis,
    Maker,
    Plot,
    Svg,
    round_ratios,
    round_values,
    text_width,
)
from torchstone.show.table import sanitise, shorten, wrap

LARGEST = 1e30
"""Beyond it, and below its inverse where a logarithm is taken, a number is no figure of ours."""


class Point(NamedTuple):
    """One value. `x` is UTC seconds; `y` is NaN where a run gave no value.

    `low` and `high` are the ends of its interval. `label` stands on the axis (a short hash), `note`
    is told beside the value, `href` is where a click leads. A point that `failed` stands on the
    floor of the chart; a `partial` one is hollow and no part of the line.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    label: str = ""
    href: str = ""
    mark: Literal["", "failed", "partial"] = ""
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether there is something to put into the frame."""
        return self.mark != "failed" and -LARGEST <= self.y <= LARGEST

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, where both ends are known."""
        low, high = self.low, self.high
        if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
            return None
        return low, high


@dataclass(frozen=True)
class Series:
    """Points that a line joins. Its place in the chart chooses colour, shape and dash."""

    name: str
    points: tuple[Point, ...]


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

    `verdict` is `better`, `worse`, `same`, `not-worse`, `not-better` or `unsure`; `none` of what
    nobody has asked whether it is better.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = "unsure"


# Dates on an axis: round days and hours, in UTC, in as few letters as it takes.


_HOUR, _DAY = 3600, 86_400
_WEEK = 7 * _DAY
_SECONDS, _MINUTES, _HOURS = (1, 5, 15, 30), (60, 300, 900), (1, 3, 6, 12)
_STEPS = (*_SECONDS, *_MINUTES, *(n * _HOUR for n in _HOURS), _DAY, 2 * _DAY, _WEEK, 2 * _WEEK)
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
    clock = _hour if step >= _MINUTES[0] else _second
    if not any(moment % _DAY == 0 for moment in moments):
        return [(at, f"{_day(at)}, {clock(at)}" if at == first else clock(at)) for at in moments]
    return [(at, clock(at) if at % _DAY else _day(at)) for at in moments]


def _day(seconds: float) -> str:
    at = _at(seconds)
    return f"{_NAMES[at.month - 1]} {at.day}"


def _hour(seconds: float) -> str:
    return f"{_at(seconds):%H:%M}"


def _second(seconds: float) -> str:
    return f"{_at(seconds):%H:%M:%S}"


def _monthly(low: float, high: float, months: int) -> list[tuple[float, str]]:
    """The first days of every so many months; January under the name of its year."""
    start, end = (_at(moment).year * 12 + _at(moment).month - 1 for moment in (low, high))
    found = []
    for count in range(-(-start // months) * months, end + 1, months):
        year, month = divmod(count, 12)
        moment = datetime(year, month + 1, 1, tzinfo=timezone.utc).timestamp()
        if moment >= low:
            found.append((moment, _NAMES[month] if month else str(year)))
    return found


def _at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


# Values and marks of an axis in words, by the kind of figure.


RATIO, SECONDS, BYTES, SHARE = "ratio", "s", "bytes", "share"
"""Any other unit is a word that stands after the number."""
_KIB = 1024.0
_BYTE_NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TICK_DIGITS = 3


def format_value(value: float, unit: str) -> str:
    """`1.52×`, `12.3 ms`, `1.21 GiB`."""
    if unit == RATIO:
        return format_ratio(value)
    if unit == SECONDS:
        return format_seconds(value, _TICK_DIGITS)
    if unit == BYTES:
        return format_bytes(value)
    if unit == SHARE:
        return f"{100 * value:.3g} %"
    return format_si(value, unit) if value % 1 else format_tick(value, unit)


def format_estimate(value: float, ends: tuple[float, float] | None, unit: str = RATIO) -> str:
    """The value, and its interval in brackets where there is one."""
    if ends is None:
        return format_value(value, unit)
    if unit != RATIO:
        return f"{format_value(value, unit)} ({' – '.join(format_value(x, unit) for x in ends)})"
    decimals = ratio_decimals(value, ends)
    return f"{format_ratio(value, decimals)} ({format_interval(ends, decimals)})"


class Words:
    """The values of one chart in words: in one unit and with as many decimals as the axis is worth,
    so that they can be read against each other."""

    def __init__(self, axis: Axis, unit: str) -> None:
        self._unit = unit
        self._even = not axis.log
        self._scale, self._name = _scale(max(abs(axis.low), abs(axis.high)), unit)
        span = (axis.high - axis.low) / self._scale
        fine = 2 - math.floor(math.log10(span)) if span > 0 and math.isfinite(span) else 2
        self._decimals = min(max(fine, 0), 9)

    def __call__(self, value: float, ends: tuple[float, float] | None) -> str:
        if not self._even:
            return format_estimate(value, ends, self._unit)
        scale, decimals = self._scale, self._decimals
        said = f"{value / scale:.{decimals}f}{self._name}"
        if ends is None:
            return said
        return f"{said} ({ends[0] / scale:.{decimals}f}–{ends[1] / scale:.{decimals}f})"


def axis_marks(axis: Axis, unit: str, most: int) -> list[tuple[float, str]]:
    """Round values within the axis, each with its words."""
    if axis.log:
        values = _powers_of_two(axis, most) if unit == BYTES else round_ratios(axis, most)
        # Each with a unit of its own: along the axis they differ.
        scales = [_scale(value, unit) for value in values]
        words = [f"{v / scale:g}{name}" for v, (scale, name) in zip(values, scales, strict=True)]
        return list(zip(values, words, strict=True))
    scale, name = _scale(max(abs(axis.low), abs(axis.high)), unit)
    values = round_values(axis.low / scale, axis.high / scale, most)
    decimals = _decimals(values)
    # Zero may come out of a sum as a tiny negative number.
    return [(v * scale, f"{round(v, decimals) or 0.0:.{decimals}f}{name}") for v in values]


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """What one of the axis's numbers is worth, and the name that stands behind it."""
    if unit == RATIO:
        return 1.0, "×"
    if unit == SHARE:
        return 0.01, " %"
    if unit == SECONDS:
        scale, name = time_unit(largest, _TICK_DIGITS) if largest else (1.0, "s")
        return scale, f" {name}"
    if unit == BYTES:
        power = min(int(math.log(largest, _KIB)), len(_BYTE_NAMES) - 1) if largest >= 1 else 0
        return _KIB**power, f" {_BYTE_NAMES[power]}"
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if largest >= scale:
            return (1e3 if prefix == "k" else scale), f" {prefix}{unit}"
    return 1.0, f" {unit}".rstrip()


def _decimals(values: Sequence[float]) -> int:
    """As many as the step between marks needs."""
    if len(values) < 2:
        return 2
    step = f"{abs(values[1] - values[0]):.6g}"
    if "e" in step:
        return min(9, max(0, -math.floor(math.log10(abs(values[1] - values[0])))))
    return len(step.partition(".")[2])


def _powers_of_two(axis: Axis, most: int) -> list[float]:
    first, last = math.ceil(math.log2(axis.low)), math.floor(math.log2(axis.high))
    step = max(1, math.ceil((last - first + 1) / most))
    return [2.0**power for power in range(math.ceil(first / step) * step, last + 1, step)]


WIDE = 960
"""Pixels of a chart that has a row of the page for itself."""
SMALL = 11.0
LOG_FROM = 20.0
"""Values that differ by this factor do not fit on one even axis: the small ones would be a line."""
LEAST_SPAN = 0.04
"""An axis spans at least 4 % of its values: else a quiet series would look like a wild one."""
ROOM = 0.06
WIDE_INTERVALS = 3.0
"""Intervals may stretch the axis by this many of their middle half-widths; what is longer, and
would squash the rest, runs out of the frame."""
NEAR_ZERO = 0.4
"""An axis of amounts begins at zero when its lowest value is below this share of its highest."""
EDGE = 10.0
_TITLE = 14.0
NOTE, _NOTE_LETTER = 15.0, 6.4
"""How high a line of the notes is, and how wide its letters, in pixels."""
_LABEL_GAP = 14.0
_MARK_PX = 44.0
_DATE_PX = 76.0
_DAY_S = 86_400.0
_LEAST_S = 1e-3


@dataclass(frozen=True)
class Frame(Plot):
    """A plot of values over time. Failed points stand on the `floor`, below all values."""

    floor: float = 0.0


def draw_title(svg: Svg, y: float) -> None:
    """The title, cut to the width of the chart."""
    if svg.title:
        fit = int((svg.width - 24) / text_width("x", _TITLE))
        svg.text((12, y), shorten(sanitise(svg.title), fit), size=_TITLE, bold=True)


def note_lines(notes: Sequence[str], width: int) -> list[str]:
    """The notes below a chart, broken into lines."""
    room = int(width / _NOTE_LETTER)
    return [row for text in notes if text for row in wrap(sanitise(text), room)]


def draw_notes(svg: Svg, lines: Sequence[str]) -> None:
    """The notes at the foot of the chart."""
    for number, text in enumerate(lines):
        y = svg.height - NOTE * (len(lines) - number) + 8
        svg.text((12, y), text, "soft", SMALL)


def time_axis(moments: Sequence[float]) -> Axis:
    """An axis that holds all moments."""
    low, high = min(moments, default=0.0), max(moments, default=1.0)
    if high - low < _LEAST_S:
        return Axis(low - _DAY_S / 2, low + _DAY_S / 2)
    return Axis(low, high)


def value_axis(values: Sequence[float], ends: Sequence[tuple[float, float]], unit: str) -> Axis:
    """An axis for the values, and for their intervals as far as these do not squash them."""
    if not values:
        return Axis(0.9, 1.1) if unit == RATIO else Axis(0.0, 1.0)
    low, high = min(values), max(values)
    if ends:
        room = max(high - low, WIDE_INTERVALS * median((top - end) / 2 for end, top in ends))
        low = min(low, max(min(end for end, _ in ends), low - room))
        high = max(high, min(max(top for _, top in ends), high + room))
    if low > 1 / LARGEST and high / low >= LOG_FROM and unit != SHARE:
        room = (high / low) ** ROOM
        return Axis(low / room, high * room, log=True)
    return _even_axis(low, high, unit)


def _even_axis(low: float, high: float, unit: str) -> Axis:
    if unit == RATIO:
        spread = max(high - low, LEAST_SPAN)
        if low > 1.0 and low - 1.0 <= spread:
            low = 1.0
        if high < 1.0 and 1.0 - high <= spread:
            high = 1.0
    largest = max(abs(low), abs(high))
    least = LEAST_SPAN * largest if largest > 1 / LARGEST else 1.0
    if high - low < least:
        low, high = _widened(low, high, least, unit)
    room = ROOM * (high - low)
    if unit != RATIO and 0 <= low <= NEAR_ZERO * high:
        return Axis(0.0, high + room)
    if unit == SHARE:
        return Axis(max(0.0, low - room), min(1.0, high + room) if high <= 1 else high + room)
    bottom = low - room
    return Axis(max(0.0, bottom) if unit == SECONDS and low >= 0 else bottom, high + room)


def _widened(low: float, high: float, least: float, unit: str) -> tuple[float, float]:
    """As wide as `least` about the middle, but amounts stay above zero and shares below one."""
    start = (low + high - least) / 2
    if unit == SHARE and high <= 1.0:
        start = min(start, 1.0 - least)
    if low >= 0.0:
        start = max(0.0, start)
    return start, start + least


def value_marks(axis: Axis, unit: str, height: float) -> list[tuple[float, str]]:
    """As many marks as there is room for."""
    return axis_marks(axis, unit, max(2, int(height // _MARK_PX) + 1))


def left_room(marks: Sequence[tuple[float, str]]) -> float:
    """How wide the values on the left are drawn."""
    return max((text_width(text, SMALL) for _, text in marks), default=20.0) + 16


def draw_one(svg: Svg, frame: Frame) -> None:
    """The line where a ratio says that nothing changes; where it lies outside, which way it is."""
    if frame.up.low <= 1.0 <= frame.up.high:
        y = frame.y(1.0)
        svg.line((frame.left, y), (frame.right, y), "soft", 1.2, dashed=True)
        return
    below = frame.up.low > 1.0
    y = frame.bottom - 4 if below else frame.top + 9
    svg.text((frame.right - 2, y), "1× is below ↓" if below else "1× is above ↑", "soft", 10, "end")


def draw_times(svg: Svg, frame: Frame, labels: Mapping[float, str]) -> None:
    """Dates; where moments are none, their labels as far as there is room. Hashes are told on
    hover: nobody knows one by heart."""
    own = [(frame.x(moment), text) for moment, text in sorted(labels.items()) if text]
    own = _apart(_dates(frame)) or _apart(own)
    if own:
        svg.path("".join(f"M{x:.1f} {frame.floor:.1f}v4" for x, _ in own), stroke="soft", thick=0.8)
    for x, text in own:
        half = text_width(text, SMALL) / 2
        kept = min(max(x, half + 2), svg.width - half - 2)
        svg.text((kept, frame.floor + 17), text, "soft", SMALL, "middle")


def _apart(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Those of the texts that do not come too close to the one before."""
    kept, edge = [], -math.inf
    for x, text in marks:
        half = text_width(text, SMALL) / 2
        if x - half >= edge:
            kept.append((x, text))
            edge = x + half + _LABEL_GAP
    return kept


def _dates(frame: Frame) -> list[tuple[float, str]]:
    low, high = frame.across.low, frame.across.high
    if not is_date(low) or not is_date(high):
        return []
    most = int((frame.right - frame.left) // _DATE_PX)
    return [(frame.x(moment), text) for moment, text in date_marks(low, high, most)]


# How series are told apart: by colour, by shape and by dash, never by colour alone.


SERIES_COLOURS = ("blue", "main", "teal", "pink", "gold", "purple", "green", "slate")
"""The first four stay apart in the common kinds of colour blindness (at least 12 in CIE Lab, as
simulated with the matrices of Machado et al. 2009); the others have their shapes and dashes."""
_DASHES = ("", "7 4", "2 4", "9 3 2 3")


@dataclass(frozen=True)
class Look:
    """A colour's role, a shape, a dash."""

    colour: str
    shape: Maker
    dash: str


def look(role: int) -> Look:
    """Of a small number; 64 of them differ in colour or shape, and neighbours in all three."""
    turn = role // len(SERIES_COLOURS)
    return Look(
        SERIES_COLOURS[role % len(SERIES_COLOURS)],
        SHAPES[(role + turn) % len(SHAPES)],
        _DASHES[(role + turn) % len(_DASHES)],
    )
