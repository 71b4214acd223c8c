"""Values over time, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchstone.show.charts.data import (
    LAST_DATE,
    MARKS,
    ChangeMark,
    Point,
    Series,
    Words,
    format_date,
    has_interval,
    has_value,
)
from torchstone.show.charts.frame import (
    ROW,
    Drawn,
    Frame,
    Look,
    TimeAxis,
    draw_columns,
    draw_keys,
    draw_points,
    draw_spread,
    draw_times,
    draw_values,
    lay_out,
    left_room,
    look,
    place,
    rows_of,
    time_axis,
    value_axis,
    value_marks,
)
from torchstone.show.svg import Svg, text_width
from torchstone.show.table import sanitise, shorten, wrap

if TYPE_CHECKING:
    from torchstone.show.charts.thin import Dense

WIDTH, HEIGHT = 640, 280
LEAST, MOST = 200, 4000
MOST_POINTS = 2000
"""Of one series; more are drawn by columns of pixels."""
MOST_LINKED = 150
"""Of one chart; more would make a heavy page (half a megabyte of a model's two years), and are
reached by zooming or by scripts."""
MOST_SERIES = 32
_TITLE, _LANE, _FLOOR, _TIMES, _NOTE = 24.0, 18.0, 18.0, 26.0, 15.0
_NOTE_SIZE = 11.0
_KINDS = {"": "soft", "better": "good", "worse": "bad"}


@dataclass(frozen=True, eq=False)
class _Ready:
    """A series as it will be drawn: its points one by one, or so many that they are thinned."""

    name: str
    look: Look
    points: tuple[Point, ...] = ()
    dense: Dense | None = None

    @property
    def has_failed(self) -> bool:
        if self.dense is not None:
            return bool(self.dense.failed.any())
        return any(point.mark == "failed" for point in self.points)


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    unit: str = "ratio",
    x_kind: str = "time",
    width: int = WIDTH,
    height: int = HEIGHT,
    marks: Sequence[ChangeMark] = (),
    span: tuple[float, float] | None = None,
    note: str = "",
    zoom: bool = True,
    embedded: bool = True,
) -> str:
    """The chart as SVG.

    `unit` is `ratio`, `s`, `ns`, `bytes`, `share`, or a word; `x_kind` is `time`, or `order` for
    equal distances from one moment to the next; `span` is the range of times that was asked for.
    With `zoom`, scripts ask for the page again with `from` and `to` in its address.
    """
    _check(x_kind, width, height)
    ready = [_ready(one, i, span) for i, one in enumerate(series[:MOST_SERIES])]
    left_out = len(series) - len(ready)
    notes = [*_thinned(ready), note, f"and {left_out} more series" if left_out > 0 else ""]
    lines = [row for text in notes if text for row in wrap(sanitise(text), int(width / 6.4))]
    keys = [(one.name, one.look) for one in ready] if len(ready) > 1 else []
    placed = lay_out(keys, 12.0, width - 12.0)
    top = 8.0 + (_TITLE if title else 4.0) + rows_of(placed) * ROW
    top += (_LANE if marks else 0.0) + (6.0 if placed else 10.0)
    bottom = height - _TIMES - _NOTE * len(lines)
    frame, labels = _frame(ready, unit, x_kind, span, (top, bottom, width - 12.0))
    svg = Svg(width, height, title, _description(ready, frame.times), embedded, "line")
    svg.data = _data(frame, zoom)
    if title:
        fit = int((width - 24) / text_width("x", 14))
        svg.text((12, 23), shorten(sanitise(title), fit), size=14, bold=True)
    draw_keys(svg, placed, 8.0 + (_TITLE if title else 4.0))
    with svg.group("chart-frame-lines"):
        if any(one.points or one.dense is not None for one in ready):
            draw_values(svg, frame, labels, unit)
            draw_times(svg, frame, _labels(ready))
        else:
            middle = ((frame.left + frame.right) / 2, (frame.top + frame.floor) / 2)
            svg.text(middle, "no values here", "soft", 13, "middle")
    _draw_marks(svg, frame, marks)
    _draw_series(svg, frame, ready, unit)
    for number, text in enumerate(lines):
        y = height - _NOTE * (len(lines) - number) + 8
        svg.text((12, y), text, "soft", _NOTE_SIZE)
    return svg.render()


def _check(x_kind: str, width: int, height: int) -> None:
    if x_kind not in ("time", "order"):
        raise ValueError(f"there is no axis of the kind {x_kind!r}")
    if not (LEAST <= width <= MOST and LEAST / 2 <= height <= MOST):
        raise ValueError(f"a chart cannot be {width} by {height} pixels")


def _ready(series: Series, index: int, span: tuple[float, float] | None) -> _Ready:
    chosen = look(index if series.role is None else series.role)
    if len(series.points) > MOST_POINTS:
        from torchstone.show.charts.thin import dense  # numpy: only for very many points

        made = dense(series.points, span)
        if made.x.size > MOST_POINTS:
            return _Ready(series.name, chosen, dense=made)
    low, high = span or (-LAST_DATE, LAST_DATE)
    kept = [point for point in series.points if low <= point.x <= high]
    for point in kept:
        if point.mark not in MARKS:
            raise ValueError(f"there is no mark {point.mark!r}")
    return _Ready(series.name, chosen, tuple(sorted(kept, key=lambda point: point.x)))


def _frame(
    ready: Sequence[_Ready],
    unit: str,
    x_kind: str,
    span: tuple[float, float] | None,
    edges: tuple[float, float, float],
) -> tuple[Frame, list[tuple[float, str]]]:
    """The frame within top, bottom and right, and the marks on its left."""
    top, floor, right = edges
    bottom = floor - (_FLOOR if any(one.has_failed for one in ready) else 0.0)
    values, ends = _values(ready)
    axis = value_axis(values, ends, unit)
    marks = value_marks(axis, unit, bottom - top)
    times = time_axis(_moments(ready), x_kind, span)
    left = min(left_room(marks), right / 2)
    return Frame(left, right, top, bottom, floor, times, axis), marks


def _values(ready: Sequence[_Ready]) -> tuple[list[float], list[tuple[float, float, float]]]:
    values: list[float] = []
    ends: list[tuple[float, float, float]] = []
    for one in ready:
        if one.dense is not None:
            from torchstone.show.charts.thin import ends_of

            values += ends_of(one.dense)
        for point in one.points:
            if not has_value(point):
                continue
            values.append(point.y)
            if has_interval(point):
                ends.append((point.y, point.low or 0.0, point.high or 0.0))
    return values, ends


def _moments(ready: Sequence[_Ready]) -> list[float]:
    found = list({point.x for one in ready for point in one.points})
    for one in ready:
        if one.dense is not None:
            from torchstone.show.charts.thin import distinct

            found += distinct(one.dense)
    return found


def _labels(ready: Sequence[_Ready]) -> dict[float, str]:
    """The label of each moment: the first that a point has. None where points are thinned."""
    if any(one.dense is not None for one in ready):
        return {}
    found: dict[float, str] = {}
    for one in ready:
        for point in one.points:
            if point.label and point.x not in found:
                found[point.x] = sanitise(point.label)
    return found


def _thinned(ready: Sequence[_Ready]) -> list[str]:
    return [
        f"{one.name}: {one.dense.x.size:,} points, drawn as lowest, mean and highest of each column"
        for one in ready
        if one.dense is not None
    ]


def _description(ready: Sequence[_Ready], times: TimeAxis) -> str:
    """What a reader who does not see the picture is told of it."""
    counts = [len(one.points) if one.dense is None else int(one.dense.x.size) for one in ready]
    if not any(counts):
        return "No values."
    names = ", ".join(one.name for one in ready)
    when = f"{format_date(times.low)} to {format_date(times.high)}"
    return f"{sum(counts)} points, {when}. Series: {names}."


def _data(frame: Frame, zoom: bool) -> dict[str, str]:
    """What scripts need to know: where the plot lies, and whether it can be zoomed."""
    edges = (frame.left, frame.top, frame.right, frame.floor)
    plot = {"plot": " ".join(f"{edge:.1f}" for edge in edges)}
    return {**plot, "zoom": "url"} if zoom else plot


def _draw_marks(svg: Svg, frame: Frame, marks: Sequence[ChangeMark]) -> None:
    """Lines down with their labels above; a label that would cover the last one is only told."""
    edge = -math.inf
    times = frame.times
    for mark in sorted(marks, key=lambda mark: mark.x):
        if not times.low <= mark.x <= times.high:
            continue
        colour, x = _KINDS[mark.kind], frame.x(mark.x)
        words = shorten(sanitise(mark.label), 32)
        half = text_width(words, 11) / 2
        middle = min(max(x, frame.left + half), frame.right - half)
        with svg.group("chart-mark"), svg.link(mark.href):
            svg.line((x, frame.top - 2), (x, frame.floor), colour, 1.2, dashed=True)
            if middle - half > edge:
                svg.text((middle, frame.top - 7), words, colour, 11, "middle")
                edge = middle + half + 8
            told = f"{mark.label} · {format_date(mark.x)}"
            svg.area((x - 4, frame.top), (8, frame.floor - frame.top), told)


def _draw_series(svg: Svg, frame: Frame, ready: Sequence[_Ready], unit: str) -> None:
    places = {point.x for one in ready for point in one.points}
    spacing = (frame.right - frame.left) / max(1, len(places))
    linked = sum(len(one.points) for one in ready) <= MOST_LINKED
    words = Words(frame.values, unit)
    drawn = []
    for i, one in enumerate(ready):
        # All that failed stand on the floor: series must not cover each other there.
        aside = 3.0 * (i - len(ready) // 2) if linked else 0.0
        spots = place(frame, one.points, aside)
        drawn.append(Drawn(one.name, one.look, spots, words, spacing, linked))
    for each in drawn:
        draw_spread(svg, each)
    for each, source in zip(drawn, ready, strict=True):
        if source.dense is not None:
            from torchstone.show.charts.thin import columns

            draw_columns(svg, frame, each, columns(source.dense, frame))
        else:
            draw_points(svg, each)
