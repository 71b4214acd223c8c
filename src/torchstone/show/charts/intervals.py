"""Ratios by name with their intervals: a forest plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from torchstone.show.charts.data import LARGEST, RATIO, IntervalRow, axis_marks, format_estimate
from torchstone.show.charts.frame import EDGE, circle, cross, down, up
from torchstone.show.svg import LogAxis, Svg, number, text_width
from torchstone.show.table import clip, sanitise, shorten

WIDTH = 640
MOST_ROWS = 400
ROW = 20.0
LEAST_FACTOR = 1.04
"""The axis spans at least 4 %: else rows that are all the same would look far apart."""
STRETCH = 0.5
"""Intervals may stretch the axis by this power of the range of the values, on either side; what is
longer, and would squash the rest, runs out of the frame."""
VERDICTS = {
    "better": "good",
    "worse": "bad",
    "same": "slate",
    "not-worse": "slate",
    "not-better": "slate",
    "doubt": "slate",
    "failed": "bad",
}
_WORDS = {
    "better": "better",
    "worse": "worse",
    "same": "the same",
    "not-worse": "not worse",
    "not-better": "not better",
    "doubt": "cannot tell",
    "failed": "failed",
}
_TITLE, _KEYS, _AXIS = 30.0, 24.0, 26.0
_SMALL = 11.0


@dataclass(frozen=True)
class _Plot:
    """Where ratios lie: names on the left of it, figures on the right."""

    left: float
    right: float
    axis: LogAxis

    def x(self, ratio: float) -> float:
        share = min(max(self.axis.share(ratio), 0.0), 1.0) if ratio > 0 else 0.0
        return self.left + EDGE + share * (self.right - self.left - 2 * EDGE)

    def outside(self, ratio: float) -> bool:
        return not self.axis.low * 0.999999 <= ratio <= self.axis.high * 1.000001


def interval_chart(
    rows: Sequence[IntervalRow],
    *,
    title: str,
    summary: IntervalRow | None = None,
    margin: float | None = None,
    note: str = "",
    width: int = WIDTH,
    embedded: bool = True,
) -> str:
    """The chart as SVG, rows in the given order. `margin` shades what counts as the same."""
    for row in (*rows, *([summary] if summary else ())):
        if row.verdict not in VERDICTS:
            raise ValueError(f"there is no verdict {row.verdict!r}")
    shown = list(rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        note = f"{len(rows) - MOST_ROWS} more rows are not drawn. {note}".strip()
    every = [*shown, *([summary] if summary else [])]
    top = (_TITLE if title else 6.0) + _KEYS
    bottom = top + ROW * max(1, len(every)) + (6.0 if summary else 0.0)
    height = math.ceil(bottom + _AXIS + (16 if note else 0))
    svg = Svg(width, height, title, _description(shown), embedded, "intervals")
    if title:
        fit = int((width - 24) / text_width("x", 14))
        svg.text((12, 20), shorten(sanitise(title), fit), size=14, bold=True)
    plot = _plot(every, width)
    _draw_keys(svg, shown, top - _KEYS + 8)
    _draw_axis(svg, plot, top, bottom, margin)
    for place, row in enumerate(shown):
        _draw_row(svg, plot, row, top + ROW * place)
    if summary:
        _draw_summary(svg, plot, summary, bottom - ROW)
    if not every:
        svg.text((width / 2, top + 14), "no rows", "soft", 12, "middle")
    if note:
        svg.text((12, height - 6), clip(sanitise(note), int(width / 6)), "soft", _SMALL)
    return svg.render()


def _description(rows: Sequence[IntervalRow]) -> str:
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}
    said = (f"{count} {_WORDS[verdict]}" for verdict, count in counts.items() if count)
    return f"{len(rows)} rows: {', '.join(said)}."


def _known(row: IntervalRow) -> tuple[float, float, float] | None:
    """Value and ends where there is something to draw; the value itself for an end not known."""
    if row.value is None or not 1 / LARGEST < row.value < LARGEST:
        return None
    low, high = (
        end if end is not None and 1 / LARGEST < end < LARGEST else row.value
        for end in (row.low, row.high)
    )
    return row.value, low, high


def _plot(rows: Sequence[IntervalRow], width: int) -> _Plot:
    known = [found for row in rows if (found := _known(row))]
    values = [value for value, _, _ in known] + [1.0]
    low, high = min(values), max(values)
    middle = median([math.sqrt(top / end) for _, end, top in known] or [1.0])
    reach = max((high / low) ** STRETCH, middle**2, LEAST_FACTOR)
    low = max(min([low, *(end for _, end, _ in known)]), low / reach)
    high = min(max([high, *(end for _, _, end in known)]), high * reach)
    if high / low < LEAST_FACTOR:
        centre, half = math.sqrt(low * high), math.sqrt(LEAST_FACTOR)
        low, high = centre / half, centre * half
    names = max((text_width(_name(row), 12) for row in rows), default=0.0)
    left = min(names + 24, width * 0.4)
    figures = max((text_width(_figures(row), _SMALL) for row in rows), default=0.0)
    right = width - min(figures + 20, width * 0.34)
    return _Plot(left, right, LogAxis(low, high))


def _name(row: IntervalRow) -> str:
    return shorten(sanitise(row.name), 44)


def _figures(row: IntervalRow) -> str:
    known = _known(row)
    if known is None:
        return ""
    return format_estimate(known[0], row.low, row.high, RATIO)


def _draw_keys(svg: Svg, rows: Sequence[IntervalRow], y: float) -> None:
    """What the signs mean; only those that occur."""
    x = 14.0
    for verdict in VERDICTS:
        count = sum(row.verdict == verdict for row in rows)
        if not count:
            continue
        _draw_sign(svg, verdict, x + 4, y - 4)
        words = f"{count} {_WORDS[verdict]}"
        svg.text((x + 14, y), words, "soft", _SMALL)
        x += 14 + text_width(words, _SMALL) + 18


def _draw_sign(svg: Svg, verdict: str, x: float, y: float) -> None:
    colour = VERDICTS[verdict]
    if verdict == "better":
        svg.path(up(x, y, 4.2), fill=colour)
    elif verdict == "worse":
        svg.path(down(x, y, 4.2), fill=colour)
    elif verdict == "failed":
        svg.path(cross(x, y, 3.2), stroke=colour, thick=1.8)
    elif verdict in ("not-worse", "not-better"):
        shape = up if verdict == "not-worse" else down
        svg.path(shape(x, y, 3.8), fill="paper", stroke=colour, thick=1.5)
    elif verdict == "same":
        svg.path(circle(x, y, 3.8), fill=colour)
    else:
        svg.path(circle(x, y, 3.6), fill="paper", stroke=colour, thick=1.5)


def _draw_axis(svg: Svg, plot: _Plot, top: float, bottom: float, margin: float | None) -> None:
    if margin:
        low, high = plot.x(1 - margin), plot.x(1 + margin)
        shape = f"M{number(low)} {number(top)}H{number(high)}V{number(bottom)}H{number(low)}Z"
        svg.path(shape, fill="grid", opacity=0.7, title=f"within {margin:.0%} of 1")
    for value, text in axis_marks(plot.axis, RATIO, max(3, int((plot.right - plot.left) // 44))):
        x = plot.x(value)
        svg.line((x, top), (x, bottom), "grid")
        svg.text((x, bottom + 16), text, "soft", _SMALL, "middle")
    svg.line((plot.left, bottom), (plot.right, bottom), "soft", 0.8)
    svg.line((plot.x(1.0), top), (plot.x(1.0), bottom), "soft", 1.2, dashed=True)


def _draw_row(svg: Svg, plot: _Plot, row: IntervalRow, top: float) -> None:
    middle = top + ROW / 2
    known = _known(row)
    with svg.group("chart-row"):
        with svg.link(row.href):
            words = _name(row)
            fit = int((plot.left - 24) / text_width("x", 12))
            svg.text((12, middle + 4), shorten(words, max(8, fit)), "ink", 12)
        if known is None:
            _draw_sign(svg, row.verdict, plot.left + EDGE, middle)
            room = int((svg.width - plot.left - 40) / text_width("x", _SMALL))
            said = clip(sanitise(row.note or _WORDS[row.verdict]), room)
            wide = text_width(said, _SMALL) * 1.1
            behind = f"M{number(plot.left + EDGE + 9)} {number(middle - 8)}h{number(wide)}v16h-"
            svg.path(f"{behind}{number(wide)}Z", fill="paper")
            svg.text((plot.left + EDGE + 12, middle + 4), said, "soft", _SMALL)
        else:
            _draw_interval(svg, plot, known, VERDICTS[row.verdict], middle)
            _draw_sign(svg, row.verdict, plot.x(known[0]), middle)
            svg.text((svg.width - 12, middle + 4), _figures(row), "soft", _SMALL, "end")
        told = [row.name, _figures(row), _WORDS[row.verdict], row.note]
        svg.area(
            (plot.left, top),
            (svg.width - plot.left, ROW),
            " · ".join(part for part in told if part),
        )


def _draw_interval(
    svg: Svg, plot: _Plot, known: tuple[float, float, float], colour: str, y: float
) -> None:
    """A line from end to end; an arrow where it runs out of the frame."""
    _, low, high = known
    start, end = plot.x(low), plot.x(high)
    shape = f"M{number(start)} {number(y)}H{number(end)}"
    if plot.outside(low):
        shape += f"m{number(start - end + 4)} -3l-4 3l4 3"
    if plot.outside(high):
        shape += f"M{number(end - 4)} {number(y - 3)}l4 3l-4 3"
    svg.path(shape, stroke=colour, thick=1.6, opacity=0.75)


def _draw_summary(svg: Svg, plot: _Plot, row: IntervalRow, top: float) -> None:
    """The figure over all rows: a diamond as wide as its interval."""
    middle = top + ROW / 2
    svg.line((12, top - 2), (svg.width - 12, top - 2), "grid")
    with svg.link(row.href):
        svg.text((12, middle + 4), _name(row), "ink", 12, bold=True)
    known = _known(row)
    if known is None:
        return
    value, low, high = (plot.x(ratio) for ratio in known)
    start, end = min(low, value - 4), max(high, value + 4)
    corners = ((start, middle), (value, middle - 6), (end, middle), (value, middle + 6))
    shape = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "Z"
    told = " · ".join(part for part in (row.name, _figures(row), row.note) if part)
    svg.path(shape, fill=VERDICTS[row.verdict], title=told)
    svg.text((svg.width - 12, middle + 4), _figures(row), "ink", _SMALL, "end", bold=True)
