"""Values over time, with their intervals."""

from __future__ import annotations

import json
import math
import os.path
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from torchstone.show.charts.frame import (
    EDGE,
    LAST_DATE,
    NOTE,
    RATIO,
    Frame,
    Look,
    Point,
    Series,
    Words,
    draw_notes,
    draw_one,
    draw_times,
    draw_title,
    format_date,
    left_room,
    look,
    note_lines,
    time_axis,
    value_axis,
    value_marks,
)
from torchstone.show.svg import Svg, circle, cross, number, safe_href, text_width
from torchstone.show.table import sanitise, shorten

SIZE, SMALL_SIZE = (640, 260), (400, 190)
"""Of a chart by itself, and of one that stands in a row with others."""
MOST_POINTS = 2000
"""Of one series; more are drawn by columns of pixels."""
MOST_LINKED = 150
"""Of one chart; more would make a heavy page (half a megabyte of a model's two years), and are
reached by zooming or by scripts."""
MOST_SERIES = 32
ROOMY, TIGHT = 7.0, 3.0
"""Pixels from one moment to the next from which on points have shapes, and dots."""
LARGE_POINT, SMALL_POINT = 3.4, 1.9
SIGN_EVERY = 90.0
_TITLE, _LANE, _FLOOR, _TIMES = 24.0, 18.0, 18.0, 26.0
_FLOOR_UP = 7.0
Row = list[float | str | None]


@dataclass(frozen=True)
class _Line:
    """A series as it will be drawn: its points in order, or so many that columns stand for them."""

    name: str
    look: Look
    points: tuple[Point, ...]

    @property
    def by_columns(self) -> bool:
        return len(self.points) > MOST_POINTS


class _Spot(NamedTuple):
    """A point in its place, in pixels. Without a height where it has no value."""

    point: Point
    x: float
    y: float | None
    ends: tuple[float, float] | None


class _Room(NamedTuple):
    """What all series of a chart share: how values are told, the pixels from one moment to the
    next, and whether points are few enough to be links."""

    words: Words
    spacing: float
    linked: bool


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    unit: str = RATIO,
    marks: Sequence[tuple[float, str]] = (),
    note: str = "",
    zoom: bool = True,
    embedded: bool = True,
    size: tuple[int, int] = SIZE,
    told: bool = True,
) -> str:
    """The chart as SVG.

    `unit` is `ratio`, `s`, `bytes`, `share`, or a word; `marks` are moments with their labels. With
    `zoom`, scripts ask for the page again with `from` and `to` in its address. Points that are not
    `told` one by one are a third of the size; scripts tell them all the same.
    """
    width, height = size
    shown = [_line(one, place) for place, one in enumerate(series[:MOST_SERIES])]
    left_out = len(series) - len(shown)
    more = f"and {left_out} more series" if left_out > 0 else ""
    lines = note_lines([*_said_of_columns(shown), note, more], width)
    keys = _lay_out(shown, width) if len(shown) > 1 else []
    height += round(KEY_ROW * max(0, keys[-1].row + 1 - FREE_ROWS)) if keys else 0
    first = 8.0 + (_TITLE if title else 4.0)
    top = first + (keys[-1].row + 1 if keys else 0) * KEY_ROW
    top += (_LANE if marks else 0.0) + (6.0 if keys else 10.0)
    frame, labels = _frame(shown, unit, top, (width, height - _TIMES - NOTE * len(lines)))
    svg = Svg(width, height, title, _description(shown, frame), embedded, "line")
    edges = (frame.left, frame.top, frame.right, frame.floor)
    plot = {"plot": " ".join(f"{edge:.1f}" for edge in edges)}
    svg.data = {**plot, "zoom": "url"} if zoom else plot
    draw_title(svg, 23)
    _draw_keys(svg, keys, first)
    with svg.group("chart-frame-lines"):
        if any(one.points for one in shown):
            frame.draw_grid(svg, labels)
            if unit == RATIO:
                draw_one(svg, frame)
            svg.line((frame.left, frame.floor), (frame.right, frame.floor), "soft", 0.8)
            draw_times(svg, frame, _labels(shown))
        else:
            middle = ((frame.left + frame.right) / 2, (frame.top + frame.floor) / 2)
            svg.text(middle, "no values here", "soft", 13, "middle")
    _draw_marks(svg, frame, marks)
    _draw_series(svg, frame, shown, Words(frame.up, unit), told)
    draw_notes(svg, lines)
    return svg.render()


def _line(series: Series, place: int) -> _Line:
    kept = [point for point in series.points if -LAST_DATE <= point.x <= LAST_DATE]
    return _Line(series.name, look(place), tuple(sorted(kept, key=lambda point: point.x)))


def _frame(
    lines: Sequence[_Line], unit: str, top: float, end: tuple[float, float]
) -> tuple[Frame, list[tuple[float, str]]]:
    """The frame, which ends in the corner `end`, and the marks on its left."""
    floor = end[1]
    points = [point for one in lines for point in one.points]
    bottom = floor - (_FLOOR if any(point.mark == "failed" for point in points) else 0.0)
    values = [point.y for point in points if point.known]
    single = [point for one in lines if not one.by_columns for point in one.points]
    ends = [found for point in single if point.known and (found := point.interval)]
    axis = value_axis(values, ends, unit)
    marks = value_marks(axis, unit, bottom - top)
    right = end[0] - 12.0
    left = min(left_room(marks), right / 2)
    times = time_axis([point.x for point in points])
    return Frame(left, right, top, bottom, times, axis, EDGE, floor), marks


def _labels(lines: Sequence[_Line]) -> dict[float, str]:
    """The label of each moment: the first that a point has. None where columns are drawn."""
    if any(one.by_columns for one in lines):
        return {}
    found: dict[float, str] = {}
    for one in lines:
        for point in one.points:
            if point.label and point.x not in found:
                found[point.x] = sanitise(point.label)
    return found


def _said_of_columns(lines: Sequence[_Line]) -> list[str]:
    return [
        f"{one.name}: {len(one.points):,} points, drawn as lowest, mean and highest of each column"
        for one in lines
        if one.by_columns
    ]


def _description(lines: Sequence[_Line], frame: Frame) -> str:
    """What a reader who does not see the picture is told of it."""
    count = sum(len(one.points) for one in lines)
    if not count:
        return "No values."
    names = ", ".join(one.name for one in lines)
    when = f"{format_date(frame.across.low)} to {format_date(frame.across.high)}"
    return f"{count} points, {when}. Series: {names}."


def _draw_marks(svg: Svg, frame: Frame, marks: Sequence[tuple[float, str]]) -> None:
    """Lines down with their labels above; a label that would cover the last one is only told."""
    edge = -math.inf
    for moment, label in sorted(marks):
        if not frame.across.low <= moment <= frame.across.high:
            continue
        x, words = frame.x(moment), shorten(sanitise(label), 32)
        half = text_width(words, 11) / 2
        middle = min(max(x, frame.left + half), frame.right - half)
        with svg.group("chart-mark"):
            svg.line((x, frame.top - 2), (x, frame.floor), "soft", 1.2, dashed=True)
            if middle - half > edge:
                svg.text((middle, frame.top - 7), words, "soft", 11, "middle")
                edge = middle + half + 8
            told = f"{label} · {format_date(moment)}"
            svg.area((x - 4, frame.top), (8, frame.floor - frame.top), told)


# The names of the series above a chart, each with its line and its shape.


KEY_SIZE, KEY_ROW = 12.0, 19.0
FREE_ROWS = 2
"""So many rows of names fit beside the lines; for more the chart is made higher."""
_LONGEST = 44
_SWATCH, _APART = 26.0, 16.0
_WIDER = 1.1
"""Names are in any font that the reader has: room for a wide one."""


class _Key(NamedTuple):
    """Where a name of the legend stands, and what it is the name of."""

    x: float
    row: int
    words: str
    width: float
    line: _Line


def _lay_out(lines: Sequence[_Line], room: float) -> list[_Key]:
    """As many rows as the names need."""
    found: list[_Key] = []
    x, row = 12.0, 0
    for line in lines:
        words = shorten(sanitise(line.name), _LONGEST)
        width = _SWATCH + 6 + _WIDER * text_width(words, KEY_SIZE)
        if x > 12.0 and x + width > room - 12.0:
            x, row = 12.0, row + 1
        found.append(_Key(x, row, words, width, line))
        x += width + _APART
    return found


def _draw_keys(svg: Svg, keys: Sequence[_Key], top: float) -> None:
    """Line, shape and name of every series; scripts make switches of them."""
    with svg.group("chart-keys"):
        for x, row, words, width, line in keys:
            middle = top + row * KEY_ROW + KEY_ROW / 2
            with svg.group("chart-key", {"name": sanitise(line.name)}):
                svg.area((x - 4, middle - KEY_ROW / 2), (width + 8, KEY_ROW), line.name)
                across = f"M{number(x)} {number(middle)}h{number(_SWATCH)}"
                svg.path(across, stroke=line.look.colour, thick=1.8, dash=line.look.dash)
                svg.path(line.look.shape(x + _SWATCH / 2, middle, 3.6), fill=line.look.colour)
                svg.text((x + _SWATCH + 6, middle + 4), words, "ink", KEY_SIZE)


# The series in their frame: intervals, lines, points, and the data that scripts read.


def _draw_series(svg: Svg, frame: Frame, lines: Sequence[_Line], words: Words, told: bool) -> None:
    moments = [point.x for one in lines if not one.by_columns for point in one.points]
    spacing = (frame.right - frame.left) / max(1, len(set(moments)))
    room = _Room(words, spacing, told and len(moments) <= MOST_LINKED)
    placed = []
    for place, one in enumerate(lines):
        # All that failed stand on the floor: series must not cover each other there.
        aside = 3.0 * (place - len(lines) // 2) if room.linked else 0.0
        single = () if one.by_columns else one.points
        placed.append((one, [_spot(frame, point, aside) for point in single]))
    for one, spots in placed:
        _draw_spread(svg, one, spots, spacing)
    for one, spots in placed:
        if one.by_columns:
            _draw_columns(svg, frame, one, words)
        else:
            _draw_points(svg, one, spots, room)


def _spot(frame: Frame, point: Point, aside: float) -> _Spot:
    """Where the point lies; one that failed on the floor, a little `aside`."""
    x = frame.x(point.x)
    if point.mark == "failed":
        return _Spot(point, x + aside, frame.floor - _FLOOR_UP, None)
    if not point.known:
        return _Spot(point, x, None, None)
    ends = point.interval
    return _Spot(point, x, frame.y(point.y), ends and (frame.y(ends[0]), frame.y(ends[1])))


def _stretches(spots: Sequence[_Spot], holds: Callable[[_Spot], object]) -> list[list[_Spot]]:
    """Neighbours of which it holds."""
    return [list(part) for held, part in groupby(spots, lambda spot: bool(holds(spot))) if held]


def _runs(spots: Sequence[_Spot]) -> list[list[_Spot]]:
    """Spots that have a value, one after another; the line goes past partial ones."""
    whole = [spot for spot in spots if spot.point.mark != "partial"]
    return _stretches(whole, lambda spot: spot.y is not None and not spot.point.mark)


def _draw_spread(svg: Svg, one: _Line, spots: Sequence[_Spot], spacing: float) -> None:
    """The intervals: a whisker for each point where they are few, else a band."""
    whiskers: list[str] = []
    bands: list[str] = []
    for run in _runs(spots):
        for part in _stretches(run, lambda spot: spot.ends):
            ends = [(spot.x, *spot.ends) for spot in part if spot.ends]
            if spacing >= ROOMY or len(run) == 1:
                whiskers += [f"M{x:.1f} {low:.1f}V{high:.1f}" for x, low, high in ends]
            else:
                above = [f"{x:.1f} {high:.1f}" for x, _, high in ends]
                below = [f"{x:.1f} {low:.1f}" for x, low, _ in reversed(ends)]
                bands.append("M" + "L".join(above + below) + "Z")
    if not whiskers and not bands:
        return
    with svg.group("chart-spread", {"name": sanitise(one.name)}):
        if bands:
            svg.path("".join(bands), fill=one.look.colour, opacity=0.16)
        if whiskers:
            svg.path("".join(whiskers), stroke=one.look.colour, thick=1.2, opacity=0.5)


def _draw_points(svg: Svg, one: _Line, spots: Sequence[_Spot], room: _Room) -> None:
    """The line, broken wherever a value is missing, and its points."""
    runs = _runs(spots)
    with svg.group("chart-series", _series_data(one, spots, room.words)):
        lines = ["M" + "L".join(f"{s.x:.1f} {s.y:.1f}" for s in run) for run in runs if run[1:]]
        if lines and room.spacing >= TIGHT:
            svg.path("".join(lines), stroke=one.look.colour, thick=1.7, dash=one.look.dash)
        elif lines:
            svg.path("".join(lines), stroke=one.look.colour, thick=1.2)
            _draw_signs(svg, one.look, runs)
        if room.linked:
            for spot in spots:
                _draw_linked(svg, one, spot, room)
        else:
            seen = spots if room.spacing >= TIGHT else [run[0] for run in runs if len(run) == 1]
            _draw_together(svg, one.look.colour, spots, {id(spot) for spot in seen})


def _draw_signs(svg: Svg, look: Look, runs: Sequence[Sequence[_Spot]]) -> None:
    """The series' shape now and then along a line that is too restless for dashes."""
    found, after = [], 0.0
    for run in runs:
        for spot in run:
            if spot.y is not None and spot.x >= after:
                found.append(look.shape(spot.x, spot.y, LARGE_POINT + 0.4))
                after = spot.x + SIGN_EVERY
    svg.path("".join(found), fill=look.colour, stroke="paper")


def _draw_linked(svg: Svg, one: _Line, spot: _Spot, room: _Room) -> None:
    """A point by itself: it tells its figures, and leads somewhere."""
    point, x, y, colour = spot.point, spot.x, spot.y, one.look.colour
    if y is None:
        return
    value = f"{one.name}: {_value(point, room.words)}"
    parts = (value, point.label, format_date(point.x), point.note)
    told = " · ".join(part for part in parts if part)
    shape = one.look.shape(x, y, LARGE_POINT if room.spacing >= ROOMY else SMALL_POINT)
    with svg.link(point.href):
        if point.mark == "failed":
            svg.path(circle(x, y, 6.0), fill="paper", opacity=0.0, title=told)
            svg.path(cross(x, y, 3.2), stroke="bad", thick=1.8, title=told)
        elif point.mark == "partial":
            svg.path(shape, fill="paper", stroke=colour, thick=1.4, title=told)
        else:
            svg.path(shape, fill=colour, title=told)


def _draw_together(svg: Svg, colour: str, spots: Sequence[_Spot], seen: set[int]) -> None:
    """Many points in a few paths: scripts tell their figures, zooming shows them one by one. Those
    of a line that are not `seen` would only thicken it."""
    dots, hollow, failed = [], [], []
    for spot in spots:
        if spot.y is None:
            continue
        if spot.point.mark == "failed":
            failed.append(cross(spot.x, spot.y, 2.6))
        elif spot.point.mark == "partial":
            hollow.append(circle(spot.x, spot.y, SMALL_POINT))
        elif id(spot) in seen:
            dots.append(f"M{spot.x:.1f} {spot.y:.1f}h0")
    if dots:  # strokes without length, whose ends are round
        svg.path("".join(dots), stroke=colour, thick=2 * SMALL_POINT)
    if hollow:
        svg.path("".join(hollow), fill="paper", stroke=colour, thick=1.3)
    if failed:
        svg.path("".join(failed), stroke="bad", thick=1.3)


def _draw_columns(svg: Svg, frame: Frame, one: _Line, words: Words) -> None:
    """Very many points: each column of pixels from its lowest to its highest value, and a line
    through the means."""
    bars, line, crosses, bottom = [], [], [], frame.floor - _FLOOR_UP
    last = int(frame.right - frame.edge) - 1  # to which the very last moment belongs
    joined = False
    rows: list[Row] = []
    for column, group in groupby(one.points, key=lambda p: min(int(frame.x(p.x)), last)):
        points, x = list(group), column + 0.5
        moment = points[len(points) // 2].x
        values = [point.y for point in points if point.known and point.mark != "partial"]
        if values:
            low, high, mean = min(values), max(values), sum(values) / len(values)
            y = frame.y(mean)
            bars.append(f"M{x:.1f} {frame.y(low):.1f}V{frame.y(high):.1f}")
            line.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
            said = f"{words(mean, (low, high))}, {len(points):,} point{'s' * (len(points) != 1)}"
            rows.append([x, round(y, 1), moment, said, "", None, ""])
        joined = bool(values)
        failed = sum(point.mark == "failed" for point in points)
        if failed:
            crosses.append(cross(x, bottom, 2.6))
            rows.append([x, bottom, moment, f"{failed} failed", "", None, ""])
    data = {"name": sanitise(one.name), "points": _dumps(rows)}
    with svg.group("chart-series chart-thinned", data):
        svg.path("".join(bars), stroke=one.look.colour, thick=1.0, opacity=0.35)
        svg.path("".join(line), stroke=one.look.colour, thick=1.4)
        if crosses:
            svg.path("".join(crosses), stroke="bad", thick=1.3)


def _value(point: Point, words: Words) -> str:
    return "failed" if point.mark == "failed" else words(point.y, point.interval)


def _series_data(one: _Line, spots: Sequence[_Spot], words: Words) -> dict[str, str]:
    """Each point as pixels, moment, words, label, address and note. The addresses' common
    beginning is said once."""
    hrefs = [safe_href(spot.point.href) for spot in spots]
    common = os.path.commonprefix([href for href in hrefs if href])  # noqa: RUF071 (of letters)
    rows: list[Row] = []
    for spot, href in zip(spots, hrefs, strict=True):
        point = spot.point
        if spot.y is not None:
            rest = href[len(common) :] if href else None
            texts = (_value(point, words), sanitise(point.label), rest, sanitise(point.note))
            at = int(point.x) if point.x == int(point.x) else point.x
            rows.append([round(spot.x, 1), round(spot.y, 1), at, *texts])
    return {"name": sanitise(one.name), "href": common, "points": _dumps(rows)}


def _dumps(rows: Sequence[Row]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
