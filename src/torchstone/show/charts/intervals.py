"""Ratios by name: with their intervals (a forest plot), or two of them as a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from torchstone.show.charts.data import LARGEST, RATIO, IntervalRow, axis_marks, format_estimate
from torchstone.show.charts.frame import EDGE, SMALL, WIDE, draw_title
from torchstone.show.svg import Axis, Maker, Plot, Svg, circle, down, number, text_width, up
from torchstone.show.table import sanitise, shorten

ROW = 20.0
LEAST_FACTOR = 1.04
"""The axis spans at least 4 %: else rows that are all the same would look far apart."""
STRETCH = 0.5
"""Intervals may stretch the axis by this power of the range of the values, on either side; what is
longer, and would squash the rest, runs out of the frame."""
_TITLE, _KEYS, _AXIS = 30.0, 24.0, 26.0
_NAME = 12.0


class _Sign(NamedTuple):
    """How a verdict is said and drawn."""

    words: str
    colour: str
    shape: Maker
    size: float
    hollow: bool = False


SIGNS = {
    "better": _Sign("better", "good", up, 4.2),
    "worse": _Sign("worse", "bad", down, 4.2),
    "same": _Sign("the same", "slate", circle, 3.8),
    "not-worse": _Sign("not worse", "slate", up, 3.8, hollow=True),
    "not-better": _Sign("not better", "slate", down, 3.8, hollow=True),
    "unsure": _Sign("cannot tell", "slate", circle, 3.6, hollow=True),
    "none": _Sign("a figure and its interval", "blue", circle, 3.8),
}


def interval_chart(rows: Sequence[IntervalRow], *, title: str, embedded: bool = True) -> str:
    """The chart as SVG, rows in the given order; those without a usable figure are left out."""
    for row in rows:
        if row.verdict not in SIGNS:
            raise ValueError(f"there is no verdict {row.verdict!r}")
    drawn = [(row, known) for row in rows if (known := _known(row))]
    top = (_TITLE if title else 6.0) + _KEYS
    bottom = top + ROW * max(1, len(drawn))
    counts = {name: sum(row.verdict == name for row, _ in drawn) for name in SIGNS}
    said = {name: SIGNS[name].words for name, count in counts.items() if count}
    drawn_words = ", ".join(f"{counts[name]} {words}" for name, words in said.items())
    description = f"{len(drawn)} rows: {drawn_words}."
    svg = Svg(WIDE, math.ceil(bottom + _AXIS), title, description, embedded, "intervals")
    draw_title(svg, 20)
    _draw_keys(svg, said, top - _KEYS + 8)
    plot = _plot(drawn, top, bottom)
    _draw_axis(svg, plot)
    for place, (row, known) in enumerate(drawn):
        _draw_row(svg, plot, row, known, top + ROW * place)
    if not drawn:
        svg.text((WIDE / 2, top + 14), "no rows", "soft", 12, "middle")
    return svg.render()


Known = tuple[float, float, float]


def _known(row: IntervalRow) -> Known | None:
    """Value and ends where there is something to draw; the value itself for an end not known."""
    if not 1 / LARGEST < row.value < LARGEST:
        return None
    low, high = (
        end if end is not None and 1 / LARGEST < end < LARGEST else row.value
        for end in (row.low, row.high)
    )
    return row.value, low, high


def _plot(rows: Sequence[tuple[IntervalRow, Known]], top: float, bottom: float) -> Plot:
    """Where ratios lie: names on the left of it, figures on the right."""
    known = [found for _, found in rows]
    values = [value for value, _, _ in known] + [1.0]
    low, high = min(values), max(values)
    middle = median([math.sqrt(end / start) for _, start, end in known] or [1.0])
    reach = max((high / low) ** STRETCH, middle**2, LEAST_FACTOR)
    low = max(min([low, *(start for _, start, _ in known)]), low / reach)
    high = min(max([high, *(end for _, _, end in known)]), high * reach)
    if high / low < LEAST_FACTOR:
        centre, half = math.sqrt(low * high), math.sqrt(LEAST_FACTOR)
        low, high = centre / half, centre * half
    names = max((text_width(_name(row), _NAME) for row, _ in rows), default=0.0)
    figures = max((text_width(_figures(row), SMALL) for row, _ in rows), default=0.0)
    left, right = min(names + 24, WIDE * 0.4), WIDE - min(figures + 20, WIDE * 0.34)
    axis = Axis(low, high, log=True)
    return Plot(left, right, top, bottom, axis, axis, EDGE)


def _name(row: IntervalRow) -> str:
    return shorten(sanitise(row.name), 44)


def _figures(row: IntervalRow) -> str:
    low, high = row.low, row.high
    if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
        return format_estimate(row.value, None)
    return format_estimate(row.value, (low, high))


def _draw_keys(svg: Svg, said: dict[str, str], y: float) -> None:
    """What the signs mean; only those that occur."""
    x = 14.0
    for verdict, words in said.items():
        _draw_sign(svg, verdict, x + 4, y - 4)
        svg.text((x + 14, y), words, "soft", SMALL)
        x += 14 + text_width(words, SMALL) + 18


def _draw_sign(svg: Svg, verdict: str, x: float, y: float) -> None:
    sign = SIGNS[verdict]
    shape = sign.shape(x, y, sign.size)
    if sign.hollow:
        svg.path(shape, fill="paper", stroke=sign.colour, thick=1.5)
    else:
        svg.path(shape, fill=sign.colour)


def _draw_axis(svg: Svg, plot: Plot) -> None:
    for value, text in axis_marks(plot.across, RATIO, max(3, int((plot.right - plot.left) // 44))):
        x = plot.x(value)
        svg.line((x, plot.top), (x, plot.bottom), "grid")
        svg.text((x, plot.bottom + 16), text, "soft", SMALL, "middle")
    svg.line((plot.left, plot.bottom), (plot.right, plot.bottom), "soft", 0.8)
    one = plot.x(1.0)
    svg.line((one, plot.top), (one, plot.bottom), "soft", 1.2, dashed=True)


def _draw_row(svg: Svg, plot: Plot, row: IntervalRow, known: Known, top: float) -> None:
    y = top + ROW / 2
    value, low, high = known
    with svg.group("chart-row"):
        fit = int((plot.left - 24) / text_width("x", _NAME))
        svg.text((12, y + 4), shorten(_name(row), max(8, fit)), "ink", _NAME)
        start, end = plot.x(low), plot.x(high)
        shape = f"M{number(start)} {number(y)}H{number(end)}"
        # An arrow where the interval runs out of the frame.
        if low < plot.across.low * 0.999999:
            shape += f"m{number(start - end + 4)} -3l-4 3l4 3"
        if high > plot.across.high * 1.000001:
            shape += f"M{number(end - 4)} {number(y - 3)}l4 3l-4 3"
        svg.path(shape, stroke=SIGNS[row.verdict].colour, thick=1.6, opacity=0.75)
        _draw_sign(svg, row.verdict, plot.x(value), y)
        svg.text((WIDE - 12, y + 4), _figures(row), "soft", SMALL, "end")
        told = " · ".join((row.name, _figures(row), SIGNS[row.verdict].words))
        svg.area((plot.left, top), (WIDE - plot.left, ROW), told)


# Two ratios of each thing as a point: what no other beats in both is joined by a line.

HIGH = 320.0
ROOM = 1.05
"""By which the axes reach beyond the points on either side."""
_TITLE, _LEFT, _BOTTOM = 30.0, 64.0, 42.0


Box = tuple[float, float, float, float]
_LINES = (-6.0, 14.0, -18.0, 26.0)
"""Where a name may stand, from its point down: the first that is free."""


@dataclass(frozen=True)
class ScatterPoint:
    """Less is better in both."""

    name: str
    across: float
    up: float
    front: bool = False
    """Whether no other point beats it in both."""


def scatter_chart(
    points: Sequence[ScatterPoint], *, titles: tuple[str, str], title: str, embedded: bool = True
) -> str:
    """The chart as SVG; points without a usable figure are left out. (1, 1) is the baseline."""
    drawn = [one for one in points if all(1 / LARGEST < v < LARGEST for v in (one.across, one.up))]
    top = _TITLE if title else 10.0
    said = ", ".join(one.name for one in drawn if one.front)
    about = f"{len(drawn)} points; no other beats: {said or 'none'}."
    svg = Svg(WIDE, int(HIGH), title, about, embedded, "intervals")
    draw_title(svg, 20)
    plot = Plot(
        _LEFT,
        WIDE - 20.0,
        top,
        HIGH - _BOTTOM,
        _axis([one.across for one in drawn]),
        _axis([one.up for one in drawn]),
        EDGE,
    )
    plot.draw_grid(svg, axis_marks(plot.up, RATIO, 6))
    for value, text in axis_marks(plot.across, RATIO, 12):
        svg.text((plot.x(value), plot.bottom + 16), text, "soft", SMALL, "middle")
    svg.text((plot.right, plot.bottom + 34), titles[0], "soft", SMALL, "end")
    svg.text((8, top + 4), titles[1], "soft", SMALL)
    front = sorted((one for one in drawn if one.front), key=lambda one: one.across)
    if len(front) > 1:
        places = [f"{number(plot.x(one.across))} {number(plot.y(one.up))}" for one in front]
        svg.path("M" + "L".join(places), stroke="good", thick=1.4, opacity=0.6)
    taken: list[Box] = []
    for one in sorted(drawn, key=lambda one: not one.front):  # their names find room first
        _draw_point(svg, plot, one, taken)
    return svg.render()


def _draw_point(svg: Svg, plot: Plot, one: ScatterPoint, taken: list[Box]) -> None:
    """The point, and its name where no other name is; the tooltip has it in any case."""
    x, y = plot.x(one.across), plot.y(one.up)
    name = shorten(sanitise(one.name), 32)
    svg.path(circle(x, y, 4.0), fill="good" if one.front else "slate")
    end = x > (plot.left + plot.right) / 2
    wide = text_width(name, SMALL)
    for line in _LINES:
        left, base = (x - 8 - wide if end else x + 8), y + line
        box = (left, base - SMALL, left + wide, base)
        if not any(_overlap(box, other) for other in taken):
            taken.append(box)
            svg.text((x - 8 if end else x + 8, base), name, "ink", SMALL, "end" if end else "start")
            break
    told = f"{sanitise(one.name)} · {one.across:.3g} · {one.up:.3g}"
    svg.area((x - 6, y - 6), (12, 12), told)


def _overlap(one: Box, other: Box) -> bool:
    apart = one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
    return not apart


def _axis(values: Sequence[float]) -> Axis:
    known = [*values, 1.0]
    return Axis(min(known) / ROOM, max(known) * ROOM, log=True)
