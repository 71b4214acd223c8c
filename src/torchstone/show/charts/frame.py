"""The frame of a chart: from times and values to pixels, and what stands along its edges."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from torchstone.show.charts.data import (
    HOLLOW,
    LARGEST,
    NANOSECONDS,
    RATIO,
    SECONDS,
    SHARE,
    Point,
    Words,
    axis_marks,
    date_marks,
    format_date,
    has_interval,
    has_value,
    is_date,
)
from torchstone.show.svg import Axis, LinearAxis, LogAxis, Svg, number, safe_href, text_width
from torchstone.show.table import sanitise, shorten

if TYPE_CHECKING:
    from torchstone.show.charts.thin import Column


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
FRAME_SMALL = 11.0
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
        svg.text((frame.left - 8, y + 4), text, "soft", FRAME_SMALL, "end")
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
        half = text_width(text, FRAME_SMALL) / 2
        kept = min(max(x, half + 2), svg.width - half - 2)
        svg.text((kept, frame.floor + 17), text, "soft", FRAME_SMALL, "middle")


def _fit(marks: Sequence[tuple[float, str]]) -> bool:
    """Whether no two texts come too close."""
    edge = -math.inf
    for x, text in marks:
        half = text_width(text, FRAME_SMALL) / 2
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
        if not marks or x - marks[-1][0] >= _LABEL_GAP + text_width(text, FRAME_SMALL):
            marks.append((x, text))
    return marks


def left_room(marks: Sequence[tuple[float, str]]) -> float:
    """How wide the values on the left are drawn."""
    return max((text_width(text, FRAME_SMALL) for _, text in marks), default=20.0) + 16


# How series are told apart: by colour, by shape and by dash, never by colour alone.


COLOURS = ("blue", "main", "teal", "pink", "gold", "purple", "green", "slate")
"""The first four stay apart in the common kinds of colour blindness (at least 12 in CIE Lab, as
simulated with the matrices of Machado et al. 2009); the others have their shapes and dashes."""
_DASHES = ("", "7 4", "2 4", "9 3 2 3")

Maker = Callable[[float, float, float], str]


def _circle(x: float, y: float, r: float) -> str:
    return f"M{number(x - r)} {number(y)}{_turns(r)}"


@cache
def _turns(r: float) -> str:
    size = number(r)
    turn = f"a{size} {size} 0 1 0"
    return f"{turn} {number(2 * r)} 0{turn} {number(-2 * r)} 0Z"


def _square(x: float, y: float, r: float) -> str:
    side = number(1.76 * r)
    corner = f"M{number(x - 0.88 * r)} {number(y - 0.88 * r)}"
    return f"{corner}h{side}v{side}h-{side}Z"


def _polygon(*corners: tuple[float, float]) -> Maker:
    """From the first corner on by steps, which are the same wherever it stands."""
    (right, down), *others = corners

    @cache
    def steps(r: float) -> str:
        made, last = "", corners[0]
        for corner in others:
            made += f"l{number((corner[0] - last[0]) * r)} {number((corner[1] - last[1]) * r)}"
            last = corner
        return f"{made}Z"

    return lambda x, y, r: f"M{number(x + right * r)} {number(y + down * r)}{steps(r)}"


_UP = _polygon((0, -1.2), (1.15, 0.85), (-1.15, 0.85))
_DOWN = _polygon((0, 1.2), (1.15, -0.85), (-1.15, -0.85))
_DIAMOND = _polygon((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0))
_HOUSE = _polygon((0, -1.2), (1.1, -0.3), (0.75, 1.05), (-0.75, 1.05), (-1.1, -0.3))
_BAR = _polygon((-0.55, -1.3), (0.55, -1.3), (0.55, 1.3), (-0.55, 1.3))
_HOURGLASS = _polygon((-1, -1.1), (1, -1.1), (0.3, 0), (1, 1.1), (-1, 1.1), (-0.3, 0))
_SHAPES: tuple[Maker, ...] = (_circle, _square, _UP, _DIAMOND, _DOWN, _HOUSE, _BAR, _HOURGLASS)


@dataclass(frozen=True)
class Look:
    """A colour's role, a shape, a dash."""

    colour: str
    shape: Maker
    dash: str


def look(role: int) -> Look:
    """Of a small number; 64 of them differ in colour or shape, and neighbours in all three."""
    turn = role // len(COLOURS)
    return Look(
        COLOURS[role % len(COLOURS)],
        _SHAPES[(role + turn) % len(_SHAPES)],
        _DASHES[(role + turn) % len(_DASHES)],
    )


def cross(x: float, y: float, r: float) -> str:
    """Two strokes."""
    side, back = number(2 * r), number(-2 * r)
    first = f"M{number(x - r)} {number(y - r)}l{side} {side}"
    return f"{first}m{back} 0l{side} {back}"


circle, up, down, diamond = _circle, _UP, _DOWN, _DIAMOND


# One series drawn into its frame: intervals, lines, points, and the data that scripts read.


ROOMY, TIGHT = 7.0, 3.0
"""Pixels from one moment to the next from which on points have shapes, and dots."""
BIG, DRAW_SMALL = 3.4, 1.9
SIGN_EVERY = 90.0
_FLOOR_UP = 7.0
Row = list[float | str | None]


class Spot(NamedTuple):
    """A point in its place, in pixels. Without a height where it has no value; what failed stands
    on the floor."""

    point: Point
    x: float
    y: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Drawn:
    """A series and how there is room to draw it."""

    name: str
    look: Look
    spots: Sequence[Spot]
    words: Words
    spacing: float
    linked: bool

    @property
    def radius(self) -> float:
        """How large points are drawn."""
        return BIG if self.spacing >= ROOMY else DRAW_SMALL


def place(frame: Frame, points: Sequence[Point], aside: float) -> list[Spot]:
    """Where each point lies; those that failed a little `aside`."""
    if not points:
        return []
    across, down, floor = frame.across(), frame.down(), frame.floor - _FLOOR_UP
    found = []
    for point in points:
        x = across(point.x)
        if has_value(point):
            ends = has_interval(point)
            low = down(point.low) if ends and point.low is not None else None
            high = down(point.high) if ends and point.high is not None else None
            found.append(Spot(point, x, down(point.y), low, high))
        elif point.mark == "failed":
            found.append(Spot(point, x + aside, floor, None, None))
        else:
            found.append(Spot(point, x, None, None, None))
    return found


def draw_spread(svg: Svg, one: Drawn) -> None:
    """The intervals: a whisker for each point where they are few, else a band."""
    whiskers: list[str] = []
    bands: list[str] = []
    for run in _runs(one.spots):
        for stretch in _stretches(run):
            if one.spacing >= ROOMY or len(run) == 1:
                whiskers += [f"M{s.x:.1f} {s.low:.1f}V{s.high:.1f}" for s in stretch]
            else:
                above = [f"{s.x:.1f} {s.high:.1f}" for s in stretch]
                below = [f"{s.x:.1f} {s.low:.1f}" for s in reversed(stretch)]
                bands.append("M" + "L".join(above + below) + "Z")
    if not whiskers and not bands:
        return
    with svg.group("chart-spread", {"name": sanitise(one.name)}):
        if bands:
            svg.path("".join(bands), fill=one.look.colour, opacity=0.16)
        if whiskers:
            svg.path("".join(whiskers), stroke=one.look.colour, thick=1.2, opacity=0.5)


def draw_points(svg: Svg, one: Drawn) -> None:
    """The line, broken wherever a value is missing, and its points."""
    runs = list(_runs(one.spots))
    with svg.group("chart-series", _series_data(one)):
        lines = ["M" + "L".join(f"{s.x:.1f} {s.y:.1f}" for s in run) for run in runs if run[1:]]
        if lines and one.spacing >= TIGHT:
            svg.path("".join(lines), stroke=one.look.colour, thick=1.7, dash=one.look.dash)
        elif lines:
            svg.path("".join(lines), stroke=one.look.colour, thick=1.2)
            _draw_signs(svg, one, runs)
        lonely = {id(run[0]) for run in runs if len(run) == 1}
        if one.linked:
            for spot in one.spots:
                _draw_linked(svg, one, spot, id(spot) in lonely)
        else:
            _draw_together(svg, one, lonely)


def draw_columns(svg: Svg, frame: Frame, one: Drawn, columns: Sequence[Column]) -> None:
    """Each column from its lowest to its highest value, and a line through the means."""
    bars, line, floor, down = [], [], [], frame.down()
    bottom = frame.floor - _FLOOR_UP
    joined = False
    rows: list[Row] = []
    for column in columns:
        x = round(column.place, 1)
        if column.low is None or column.mean is None or column.high is None:
            joined = False
        else:
            mean = down(column.mean)
            bars.append(f"M{x:.1f} {down(column.low):.1f}V{down(column.high):.1f}")
            line.append(f"{'L' if joined else 'M'}{x:.1f} {mean:.1f}")
            joined = True
            words = one.words(column.mean, column.low, column.high)
            said = f"{words}, {column.count:,} point{'s' * (column.count != 1)}"
            rows.append([x, round(mean, 1), column.x, said, "", None, ""])
        if column.failed:
            floor.append(cross(x, bottom, 2.6))
            rows.append([x, bottom, column.x, f"{column.failed} failed", "", None, ""])
    data = {"name": sanitise(one.name), "points": _dumps(rows)}
    with svg.group("chart-series chart-thinned", data):
        svg.path("".join(bars), stroke=one.look.colour, thick=1.0, opacity=0.35)
        svg.path("".join(line), stroke=one.look.colour, thick=1.4)
        if floor:
            svg.path("".join(floor), stroke="bad", thick=1.3)


def _runs(spots: Sequence[Spot]) -> Iterator[list[Spot]]:
    """Stretches of spots that have a value, one after another; the line goes past partial ones."""
    run: list[Spot] = []
    for spot in spots:
        if spot.point.mark == "partial":
            continue
        if spot.y is not None and spot.point.mark != "failed":
            run.append(spot)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _stretches(run: Sequence[Spot]) -> Iterator[list[Spot]]:
    """Parts of a run in which every spot has an interval."""
    part: list[Spot] = []
    for spot in run:
        if spot.low is not None:
            part.append(spot)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _draw_signs(svg: Svg, one: Drawn, runs: Sequence[Sequence[Spot]]) -> None:
    """The series' shape now and then along a line that is too restless for dashes."""
    found, after = [], 0.0
    for run in runs:
        for spot in run:
            if spot.y is not None and spot.x >= after:
                found.append(one.look.shape(spot.x, spot.y, BIG + 0.4))
                after = spot.x + SIGN_EVERY
    svg.path("".join(found), fill=one.look.colour, stroke="paper")


def _draw_linked(svg: Svg, one: Drawn, spot: Spot, lonely: bool) -> None:
    """A point by itself: it tells its figures, and leads somewhere."""
    point, x, y = spot.point, spot.x, spot.y
    if y is None:
        return
    told = " · ".join(part for part in _told(one, point) if part)
    if not point.mark and (one.spacing >= TIGHT or lonely):
        shape = one.look.shape(x, y, one.radius)
        svg.sign(shape, fill=one.look.colour, title=told, href=point.href)
        return
    with svg.link(point.href):
        if point.mark == "failed":
            svg.path(circle(x, y, 6.0), fill="paper", opacity=0.0, title=told)
            svg.path(cross(x, y, 3.2), stroke="bad", thick=1.8, title=told)
            return
        if point.mark in ("better", "worse"):
            colour = "good" if point.mark == "better" else "bad"
            svg.path(circle(x, y, one.radius + 3.4), stroke=colour, thick=1.6, title=told)
        shape = one.look.shape(x, y, one.radius)
        if point.mark in HOLLOW:
            svg.path(shape, fill="paper", stroke=one.look.colour, thick=1.4, title=told)
        elif point.mark:
            svg.path(shape, fill=one.look.colour, title=told)
        else:
            svg.path(circle(x, y, TIGHT), fill="paper", opacity=0.0, title=told)


def _draw_together(svg: Svg, one: Drawn, lonely: set[int]) -> None:
    """Many points in a few paths: scripts tell their figures, zooming shows them one by one."""
    paths: dict[str, list[str]] = {"": [], "doubt": [], "better": [], "worse": [], "failed": []}
    for spot in one.spots:
        mark = spot.point.mark
        if spot.y is None:
            continue
        if mark == "failed":
            paths[mark].append(cross(spot.x, spot.y, 2.6))
            continue
        if mark in ("better", "worse"):
            paths[mark].append(circle(spot.x, spot.y, DRAW_SMALL + 2.6))
        if one.spacing >= TIGHT or id(spot) in lonely or mark in ("better", "worse", "partial"):
            if mark in HOLLOW:
                paths["doubt"].append(circle(spot.x, spot.y, DRAW_SMALL))
            else:
                paths[""].append(f"M{spot.x:.1f} {spot.y:.1f}h0")
    colours = {"better": "good", "worse": "bad", "failed": "bad", "doubt": one.look.colour}
    for mark, found in paths.items():
        if found and not mark:  # dots: strokes without length, whose ends are round
            svg.path("".join(found), stroke=one.look.colour, thick=2 * DRAW_SMALL)
        elif found:
            fill = "paper" if mark == "doubt" else ""
            svg.path("".join(found), fill=fill, stroke=colours[mark], thick=1.3)


def _told(one: Drawn, point: Point) -> tuple[str, ...]:
    return f"{one.name}: {_value(one, point)}", point.label, format_date(point.x), point.note


def _value(one: Drawn, point: Point) -> str:
    return "failed" if point.mark == "failed" else one.words(point.y, point.low, point.high)


def _series_data(one: Drawn) -> dict[str, str]:
    """Each point as pixels, moment, words, label, address and note. The addresses' common
    beginning is said once."""
    hrefs = [safe_href(spot.point.href) for spot in one.spots]
    common = _common([href for href in hrefs if href])
    rows: list[Row] = []
    for spot, href in zip(one.spots, hrefs, strict=True):
        point = spot.point
        if spot.y is not None:
            rest = href[len(common) :] if href else None
            texts = (_value(one, point), sanitise(point.label), rest, sanitise(point.note))
            rows.append([round(spot.x, 1), round(spot.y, 1), point.x, *texts])
    return {"name": sanitise(one.name), "href": common, "points": _dumps(rows)}


def _common(texts: Sequence[str]) -> str:
    """What all texts begin with: what the first and the last in order do."""
    if not texts:
        return ""
    first, last = min(texts), max(texts)
    length = next((i for i, char in enumerate(first) if last[i : i + 1] != char), len(first))
    return first[:length]


def _dumps(rows: Sequence[Row]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# The names of the series above a chart, each with its line and its shape.


SIZE = 12.0
ROW = 19.0
_LONGEST = 44
_SWATCH, _APART = 26.0, 16.0
_WIDER = 1.1
"""Names are in any font that the reader has: room for a wide one."""

Key = tuple[str, Look]
Placed = tuple[float, int, str, Key]


def lay_out(keys: Sequence[Key], left: float, right: float) -> list[Placed]:
    """Where each key begins, in which row, under which words; as many rows as they need."""
    found: list[Placed] = []
    x, row = left, 0
    for key in keys:
        words = shorten(sanitise(key[0]), _LONGEST)
        wide = _width(words)
        if x > left and x + wide > right:
            x, row = left, row + 1
        found.append((x, row, words, key))
        x += wide + _APART
    return found


def _width(words: str) -> float:
    return _SWATCH + 6 + _WIDER * text_width(words, SIZE)


def rows_of(placed: Sequence[Placed]) -> int:
    """How many rows there are."""
    return placed[-1][1] + 1 if placed else 0


def draw_keys(svg: Svg, placed: Sequence[Placed], top: float) -> None:
    """Line, shape and name of every series; scripts make switches of them."""
    with svg.group("chart-keys"):
        for x, row, words, (name, look) in placed:
            middle = top + row * ROW + ROW / 2
            with svg.group("chart-key", {"name": sanitise(name)}):
                svg.area((x - 4, middle - ROW / 2), (_width(words) + 8, ROW), name)
                across = f"M{number(x)} {number(middle)}h{number(_SWATCH)}"
                svg.path(across, stroke=look.colour, thick=1.8, dash=look.dash)
                svg.path(look.shape(x + _SWATCH / 2, middle, 3.6), fill=look.colour)
                svg.text((x + _SWATCH + 6, middle + 4), words, "ink", SIZE)
