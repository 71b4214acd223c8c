"""The frame of a chart: from times and values to pixels, and what stands along its edges."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from torchstone.show.axis import Axis, LinearAxis, LogAxis
from torchstone.show.charts.data import LARGEST
from torchstone.show.charts.dates import date_marks, is_date
from torchstone.show.charts.units import NANOSECONDS, RATIO, SECONDS, SHARE, axis_marks
from torchstone.show.svg import Svg, text_width

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
SMALL = 11.0
EDGE = 10.0
_LABEL_GAP = 14.0
_MARK_PX = 44.0
_DATE_PX = 76.0
_DAY = 86_400.0
_LEAST_S = 1e-3


@dataclass(frozen=True)
class TimeAxis:
    """Moments along the bottom: by the clock, or one after another at equal distances (`order`,
    then the moments in order)."""

    low: float
    high: float
    order: tuple[float, ...] = ()

    def share(self, moment: float) -> float:
        """How far along the moment lies."""
        if not self.order:
            return (moment - self.low) / (self.high - self.low)
        if len(self.order) == 1:
            return 0.5
        place = bisect_left(self.order, moment)
        if place < len(self.order) and self.order[place] != moment and place > 0:
            before, after = self.order[place - 1], self.order[place]
            return (place - 1 + (moment - before) / (after - before)) / (len(self.order) - 1)
        return min(place, len(self.order) - 1) / (len(self.order) - 1)


@dataclass(frozen=True)
class Frame:
    """Where things lie, in pixels. Failed points stand on the `floor`, below all values."""

    left: float
    right: float
    top: float
    bottom: float
    floor: float
    times: TimeAxis
    values: Axis

    @property
    def wide(self) -> float:
        """What moments share: a little room is left at both ends."""
        return self.right - self.left - 2 * EDGE

    def x(self, moment: float) -> float:
        """Across."""
        return self.left + EDGE + self.times.share(moment) * self.wide

    def y(self, value: float) -> float:
        """Down; what lies outside stands on the edge."""
        return self.down()(value)

    def across(self) -> Callable[[float], float]:
        """`x` of many moments, all of which are on the axis."""
        left, times = self.left + EDGE, self.times
        if times.order:
            step = self.wide / max(1, len(times.order) - 1)
            start = left if len(times.order) > 1 else left + self.wide / 2
            places = {moment: start + rank * step for rank, moment in enumerate(times.order)}
            return places.__getitem__
        low, each = times.low, self.wide / (times.high - times.low)
        return lambda moment: left + (moment - low) * each

    def down(self) -> Callable[[float], float]:
        """`y` of many values."""
        top, bottom, low = self.top, self.bottom, self.values.low
        if isinstance(self.values, LogAxis):
            log, span = math.log, (bottom - top) / math.log(self.values.high / low)

            def by_ratio(value: float) -> float:
                y = bottom - log(value / low) * span if value > 0 else bottom
                return top if y < top else bottom if y > bottom else y

            return by_ratio
        each = (bottom - top) / (self.values.high - low)

        def evenly(value: float) -> float:
            y = bottom - (value - low) * each
            return top if y < top else bottom if y > bottom else y

        return evenly


def time_axis(moments: Sequence[float], kind: str, span: tuple[float, float] | None) -> TimeAxis:
    """An axis that holds all moments, or the span that was asked for."""
    if kind == "order":
        order = tuple(sorted(set(moments)))
        return TimeAxis(order[0] if order else 0.0, order[-1] if order else 1.0, order or (0.0,))
    low, high = span or (min(moments, default=0.0), max(moments, default=1.0))
    if high - low < _LEAST_S:
        return TimeAxis(low - _DAY / 2, low + _DAY / 2)
    return TimeAxis(low, high)


def value_axis(
    values: Sequence[float], ends: Sequence[tuple[float, float, float]], unit: str
) -> Axis:
    """An axis for the values, and for their intervals as far as these do not squash them.

    `ends` are value, low and high of those that have an interval.
    """
    if not values:
        return LinearAxis(0.9, 1.1) if unit == RATIO else LinearAxis(0.0, 1.0)
    low, high = min(values), max(values)
    if ends:
        room = max(high - low, WIDE_INTERVALS * median((top - end) / 2 for _, end, top in ends))
        low = min(low, max(min(end for _, end, _ in ends), low - room))
        high = max(high, min(max(top for _, _, top in ends), high + room))
    if low > 1 / LARGEST and high / low >= LOG_FROM and unit != SHARE:
        room = (high / low) ** ROOM
        return LogAxis(low / room, high * room)
    return _even_axis(low, high, unit)


def _even_axis(low: float, high: float, unit: str) -> LinearAxis:
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
        return LinearAxis(0.0, high + room)
    if unit == SHARE:
        return LinearAxis(max(0.0, low - room), min(1.0, high + room) if high <= 1 else high + room)
    bottom = low - room
    if unit in (SECONDS, NANOSECONDS) and low >= 0:
        bottom = max(0.0, bottom)
    return LinearAxis(bottom, high + room)


def _widened(low: float, high: float, least: float, unit: str) -> tuple[float, float]:
    """As wide as `least` about the middle, but amounts stay above zero and shares below one."""
    start = (low + high - least) / 2
    if unit == SHARE and high <= 1.0:
        start = min(start, 1.0 - least)
    if low >= 0.0:
        start = max(0.0, start)
    return start, start + least


def draw_values(svg: Svg, frame: Frame, marks: Sequence[tuple[float, str]], unit: str) -> None:
    """The lines across with their values, and the line at 1 of ratios."""
    for value, text in marks:
        y = frame.y(value)
        svg.line((frame.left, y), (frame.right, y), "grid")
        svg.text((frame.left - 8, y + 4), text, "soft", SMALL, "end")
    if unit == RATIO:
        _draw_one(svg, frame)
    svg.line((frame.left, frame.floor), (frame.right, frame.floor), "soft", 0.8)


def _draw_one(svg: Svg, frame: Frame) -> None:
    """The line where nothing changes; where it lies outside, which way it lies."""
    if frame.values.low <= 1.0 <= frame.values.high:
        y = frame.y(1.0)
        svg.line((frame.left, y), (frame.right, y), "soft", 1.2, dashed=True)
        return
    below = frame.values.low > 1.0
    y = frame.bottom - 4 if below else frame.top + 9
    svg.text((frame.right - 2, y), "1× is below ↓" if below else "1× is above ↑", "soft", 10, "end")


def value_marks(axis: Axis, unit: str, height: float) -> list[tuple[float, str]]:
    """As many marks as there is room for."""
    return axis_marks(axis, unit, max(2, int(height // _MARK_PX) + 1))


def draw_times(svg: Svg, frame: Frame, labels: Mapping[float, str]) -> None:
    """The labels of the moments (short hashes), or dates where these would stand too close."""
    own = [(frame.x(moment), text) for moment, text in sorted(labels.items()) if text]
    marks = own if own and _fit(own) else _dates(frame)
    for x, text in marks:
        svg.line((x, frame.floor), (x, frame.floor + 4), "soft", 0.8)
        half = text_width(text, SMALL) / 2
        kept = min(max(x, half + 2), svg.width - half - 2)
        svg.text((kept, frame.floor + 17), text, "soft", SMALL, "middle")


def _fit(marks: Sequence[tuple[float, str]]) -> bool:
    """Whether no two texts come too close."""
    edge = -math.inf
    for x, text in marks:
        half = text_width(text, SMALL) / 2
        if x - half < edge:
            return False
        edge = x + half + _LABEL_GAP
    return True


def _dates(frame: Frame) -> list[tuple[float, str]]:
    times = frame.times
    if not is_date(times.low) or not is_date(times.high):
        return []
    most = int((frame.right - frame.left) // _DATE_PX)
    found = date_marks(times.low, times.high, most)
    if times.order:  # the first moment on or after each round one
        place = [min(bisect_left(times.order, at), len(times.order) - 1) for at, _ in found]
        found = [(times.order[i], text) for i, (_, text) in zip(place, found, strict=True)]
    marks: list[tuple[float, str]] = []
    for moment, text in found:
        x = frame.x(moment)
        if not marks or x - marks[-1][0] >= _LABEL_GAP + text_width(text, SMALL):
            marks.append((x, text))
    return marks


def left_room(marks: Sequence[tuple[float, str]]) -> float:
    """How wide the values on the left are drawn."""
    return max((text_width(text, SMALL) for _, text in marks), default=20.0) + 16
