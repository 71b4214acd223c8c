"""The frame of a chart: its axes, what stands along its edges, and how series are told apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from torchstone.show.charts.data import (
    LARGEST,
    RATIO,
    SECONDS,
    SHARE,
    axis_marks,
    date_marks,
    is_date,
)
from torchstone.show.svg import SHAPES, Axis, Maker, Plot, Svg, text_width
from torchstone.show.table import sanitise, shorten, wrap

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
_DAY = 86_400.0
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
        return Axis(low - _DAY / 2, low + _DAY / 2)
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
