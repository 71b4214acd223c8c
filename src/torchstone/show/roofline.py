"""The roofline in the terminal: a plot in characters, a legend, and the verdict in words."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

from torchstone.records.format import (
    MISSING,
    count,
    format_bytes,
    format_seconds,
    format_si,
    format_tick,
)
from torchstone.show.markdown import plain, to_text
from torchstone.show.rows import flow
from torchstone.show.svg import Axis, Plot, Svg, axis_around, circle
from torchstone.show.table import Style, cells, clip, pad, shorten, wrap

if TYPE_CHECKING:
    from torchstone.explain import Ceiling, Point, Roofline


# The roofline as JSON. Every key is explained in `docs/reference/json.md`.


ROOFLINE_SCHEMA = 1


def roofline_document(found: Roofline) -> dict[str, Any]:
    """The roofline as plain data, with the rates of its points."""
    data: dict[str, Any] = {"schema": ROOFLINE_SCHEMA, "kind": "roofline", **plain(found)}
    data["points"] = [
        {
            **plain(point),
            "flops_per_s": plain(point.rate),
            "bytes_per_s": plain(point.bandwidth),
            "flops_per_byte": plain(point.intensity),
        }
        for point in found.points
    ]
    return data


def roofline_dumps(found: Roofline) -> str:
    """The document as ASCII text."""
    return to_text(roofline_document(found))


# What the two pictures of a roofline share: the axes, the peaks' lines, their names.


MARGIN = 3.0
"""Room beyond the outermost point or ridge, as a factor."""


def frame(found: Roofline) -> tuple[Axis, Axis]:
    """FLOP per byte across, FLOP per second up; every point, ridge and the peak inside."""
    placed = [p for p in found.points if p.rate is not None and p.intensity is not None]
    peak = compute_peak(found)
    across = axis_around([*(p.intensity or 0.0 for p in placed), *found.ridges.values()], MARGIN)
    rates = [p.rate or 0.0 for p in placed]
    if peak:
        rates.append(peak)
    for ceiling in found.ceilings:
        if ceiling.kind == "memory":
            rates.append(min(peak or float("inf"), ceiling.value * across.low * MARGIN))
    return across, axis_around(rates, MARGIN)


def compute_peak(found: Roofline) -> float | None:
    """The compute peak, if it is known."""
    return next((ceiling.value for ceiling in found.ceilings if ceiling.kind == "compute"), None)


Line = tuple[tuple[float, float], tuple[float, float]]


def ends(found: Roofline, ceiling: Ceiling, plot: Plot) -> Line:
    """A peak's line from end to end as (intensity, rate), as far as the frame shows it.

    Memory rises until compute is lower; compute begins where the fastest memory reaches it.
    """
    peak, across, up = compute_peak(found), plot.across, plot.up
    if ceiling.kind == "compute":
        bands = [one.value for one in found.ceilings if one.kind == "memory"]
        start = max(across.low, ceiling.value / max(bands)) if bands else across.low
        return (start, ceiling.value), (across.high, ceiling.value)
    low = max(across.low, up.low / ceiling.value)
    high = min(across.high, (peak or up.high) / ceiling.value)
    return (low, low * ceiling.value), (high, high * ceiling.value)


def ceiling_label(ceiling: Ceiling) -> str:
    """`DRAM 20.9 GB/s`, `fp32 93.3 GFLOP/s`."""
    unit = "FLOP/s" if ceiling.kind == "compute" else "B/s"
    return f"{ceiling.name} {format_si(ceiling.value, unit)}"


def when(found: Roofline) -> str:
    """When the peaks were measured, to the minute."""
    return found.calibrated[:16].replace("T", " ")


LEAST_WIDTH = 60
MOST_WIDTH = 110
ROWS = 20
GUTTER = 10
"""Columns for the marks of the vertical axis."""
MARKS = "123456789abcdef"


def roofline_report(
    found: Roofline, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """The whole report; no line is wider than `width` (60 at least)."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        [style.paint(line, "title") for line in flow(_heading(found), width, style)],
        _plot(found, min(width, MOST_WIDTH), style),
        _legend(found, width, style),
        _words(found, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(found: Roofline) -> list[str]:
    return [f"roofline of {found.target or found.arm}", *_settings(found)]


def _settings(found: Roofline) -> list[str]:
    threads = count(found.threads, "thread") if found.threads else ""
    return [part for part in (found.arm, found.dtype, found.device, threads) if part]


class _Canvas:
    """Characters by row and column; what is drawn later lies above."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.chars = [[(" ", "")] * columns for _ in range(rows)]

    def put(self, column: int, row: int, text: str, role: str) -> None:
        for place, char in enumerate(text, column):
            if 0 <= place < self.columns and 0 <= row < self.rows:
                self.chars[row][place] = (char, role)

    def free(self, column: int, row: int, length: int) -> bool:
        """Whether a label has room there, with a blank at both ends."""
        if column < 0 or column + length > self.columns or not 0 <= row < self.rows:
            return False
        left, right = max(0, column - 1), min(self.columns, column + length + 1)
        return all(char == " " for char, _ in self.chars[row][left:right])

    def lines(self, style: Style) -> list[str]:
        parts = ([(role, list(group)) for role, group in groupby(row, _role)] for row in self.chars)
        return [
            "".join(style.paint("".join(c for c, _ in group), role) for role, group in row).rstrip()
            for row in parts
        ]


def _role(cell: tuple[str, str]) -> str:
    return cell[1]


def _plot(found: Roofline, width: int, style: Style) -> list[str]:
    canvas = _Canvas(width - GUTTER, ROWS)
    plot = Plot(0, canvas.columns - 1, 0, ROWS - 1, *frame(found))  # a cell is a pixel
    rising, level = ("╱", "─") if style.unicode else ("/", "-")
    paths = [(ceiling, _path(ends(found, ceiling, plot), plot)) for ceiling in found.ceilings]
    for ceiling, path in paths:
        for column, row in path:
            char = level if ceiling.kind == "compute" else rising
            canvas.put(column, row, char, "even" if ceiling.nearer else "dim")
    for ceiling, path in paths:
        _label(ceiling, path, canvas)
    _marks(found, canvas, plot)
    return _with_axes(canvas, plot, style)


def _path(line: Line, plot: Plot) -> list[tuple[int, int]]:
    """The cells of a peak's line, left to right: straight, because both axes are logarithmic."""
    (left, top), (right, bottom) = ((plot.x(x), plot.y(y)) for x, y in line)
    slope = (bottom - top) / (right - left) if right > left else 0.0
    columns = range(round(left), round(right) + 1)
    return [(one, round(top + slope * (min(max(one, left), right) - left))) for one in columns]


def _label(ceiling: Ceiling, path: list[tuple[int, int]], canvas: _Canvas) -> None:
    """A peak's name beside its line, where there is room; all are told below the plot."""
    for text in (ceiling_label(ceiling), ceiling.name):
        if ceiling.kind == "compute":
            places = [(column - len(text), row - 1) for column, row in reversed(path)]
        else:
            places = [(column + 2, row) for column, row in path]
        free = [place for place in places if canvas.free(*place, len(text))]
        if free:
            canvas.put(*free[0], text, "even" if ceiling.nearer else "dim")
            return


def _marks(found: Roofline, canvas: _Canvas, plot: Plot) -> None:
    """The points by number, the step last, so that no op covers it; neighbours move aside."""
    taken: set[tuple[int, int]] = set()
    for mark, point in reversed(list(zip(MARKS, found.points, strict=False))):
        if point.rate is None or point.intensity is None:
            continue
        column, row = round(plot.x(point.intensity)), round(plot.y(point.rate))
        shifts = (0, 1, -1, 2, -2, 3, -3)
        free = [column + shift for shift in shifts if (column + shift, row) not in taken]
        if free:
            taken.add((free[0], row))
            canvas.put(free[0], row, mark, "title" if point.kind == "step" else "doubt")


def _with_axes(canvas: _Canvas, plot: Plot, style: Style) -> list[str]:
    bar, corner, rule = ("│", "└", "─") if style.unicode else ("|", "+", "-")
    marks = {round(plot.y(tick)): format_tick(tick) for tick in plot.up.powers()}
    lines = [pad("FLOP/s", GUTTER - 2, right=True)]
    for row, line in enumerate(canvas.lines(style)):
        lines.append(f"{pad(marks.get(row, ''), GUTTER - 2, right=True)} {bar}{line}")
    lines.append(" " * (GUTTER - 1) + corner + rule * canvas.columns)
    feet = _Canvas(canvas.columns, 1)
    for tick in plot.across.powers():
        text = format_tick(tick)
        column = min(max(0, round(plot.x(tick)) - len(text) // 2), canvas.columns - len(text))
        if feet.free(column, 0, len(text)):
            feet.put(column, 0, text, "")
    lines.append(" " * GUTTER + feet.lines(Style())[0])
    lines.append(pad("FLOP per byte", GUTTER + canvas.columns, right=True))
    return lines


def _legend(found: Roofline, width: int, style: Style) -> list[str]:
    heads = ("", "", "calls", "time", "FLOP/s", "bytes", "B/s", "FLOP/B")
    rows = [heads, *(_row(index, point, style) for index, point in enumerate(found.points))]
    sizes = [max(cells(row[place]) for row in rows) for place in range(len(heads))]
    rest = sum(sizes) - sizes[1] + 2 * (len(sizes) - 1)
    sizes[1] = max(8, min(sizes[1], width - rest))
    lines = []
    for number, (mark, name, *figures) in enumerate(rows):
        shown = [pad(mark, sizes[0]), pad(shorten(name, sizes[1], style.glyphs.ellipsis), sizes[1])]
        shown += [
            pad(text, size, right=True) for text, size in zip(figures, sizes[2:], strict=True)
        ]
        line = clip("  ".join(shown).rstrip(), width, style.glyphs.ellipsis)
        lines.append(style.paint(line, {0: "dim", 1: "title"}.get(number, "")))
    if any(point.rate is None for point in found.points):
        lines.append(style.paint("-: no formula, so it has no place in the plot", "dim"))
    return lines


def _row(index: int, point: Point, style: Style) -> tuple[str, ...]:
    about = "~" if point.estimated else ""
    mark = MARKS[index] if point.rate is not None and index < len(MARKS) else MISSING
    time = format_seconds(point.seconds, 3, ascii_only=style.ascii_only)
    return (
        mark,
        style.safe(point.name),
        str(point.calls),
        (about if point.kind == "op" else "") + time,
        MISSING if point.rate is None else about + format_si(point.rate),
        format_bytes(point.bytes),
        MISSING if point.bandwidth is None else about + format_si(point.bandwidth),
        MISSING if point.intensity is None else format_si(point.intensity),
    )


def _words(found: Roofline, width: int, style: Style) -> list[str]:
    lines = wrap(style.safe(found.sentence), width, ellipsis=style.glyphs.ellipsis)
    ceilings = [ceiling_label(ceiling) for ceiling in found.ceilings]
    ridges = [f"{name} {format_si(value)}" for name, value in found.ridges.items()]
    small = [f"peaks measured {when(found)}: {', '.join(ceilings)}"] if ceilings else []
    if ridges:
        small.append(f"compute is the lower peak above, in FLOP per byte: {', '.join(ridges)}")
    for note in (*small, *found.notes):
        text = wrap(style.safe(note), width - 2, ellipsis=style.glyphs.ellipsis)
        lines += [style.paint(("  " if i else "- ") + line, "dim") for i, line in enumerate(text)]
    return lines


# The roofline as a stand-alone SVG.


WIDTH = 960
LEFT, RIGHT, TOP, PLOT_HEIGHT = 76, 300, 78, 400
ROW = 16
LONGEST_NAME = 34
_WORDS_WIDTH = 130
_ALONG, _BESIDE = 14.0, 6.0
_LEVEL_COLOURS = {"L1": "purple", "L2": "teal", "L3": "green", "DRAM": "blue"}


def roofline_svg(found: Roofline, *, embedded: bool = False) -> str:
    """The file's text, or a part of a page."""
    sentence = wrap(found.sentence, _WORDS_WIDTH)
    notes = [f"peaks measured {when(found)}", *found.notes]
    words = sentence + [line for note in notes for line in wrap(note, _WORDS_WIDTH)]
    height = TOP + PLOT_HEIGHT + 62 + ROW * len(words)
    title = f"Roofline of {found.target or found.arm}"
    svg = Svg(WIDTH, height, title, found.sentence, embedded)
    plot = Plot(LEFT, WIDTH - RIGHT, TOP, TOP + PLOT_HEIGHT, *frame(found))
    svg.text((LEFT, 28), shorten(title, 90), size=17, bold=True)
    said = " · ".join([*_settings(found), f"bound: {found.bound or 'not known'}"])
    svg.text((LEFT, 48), shorten(said, 110), "soft", 12)
    _grid(svg, plot)
    for ceiling in found.ceilings:
        start, end = ((plot.x(x), plot.y(y)) for x, y in ends(found, ceiling, plot))
        _ceiling(svg, ceiling, start, end)
    _points(svg, found, plot)
    for number, line in enumerate(words):
        colour = "ink" if number < len(sentence) else "soft"
        svg.text((LEFT, TOP + PLOT_HEIGHT + 62 + ROW * number), line, colour, 12)
    return svg.render()


def _grid(svg: Svg, plot: Plot) -> None:
    for tick in plot.across.powers():
        x = plot.x(tick)
        svg.line((x, plot.top), (x, plot.bottom), "grid")
        svg.text((x, plot.bottom + 17), format_tick(tick), "soft", 11, "middle")
    plot.draw_grid(svg, [(tick, format_tick(tick)) for tick in plot.up.powers()])
    svg.line((plot.left, plot.bottom), (plot.right, plot.bottom), "soft")
    svg.line((plot.left, plot.top), (plot.left, plot.bottom), "soft")
    middle = (plot.left + plot.right) / 2
    svg.text((middle, plot.bottom + 36), "FLOP per byte", "soft", 12, "middle")
    centre = (plot.top + plot.bottom) / 2
    svg.text((20, centre), "FLOP per second", "soft", 12, "middle", turn=-90)


def _ceiling(
    svg: Svg, ceiling: Ceiling, start: tuple[float, float], end: tuple[float, float]
) -> None:
    colour = "ink" if ceiling.kind == "compute" else _LEVEL_COLOURS.get(ceiling.name, "blue")
    svg.line(start, end, colour, 2.6 if ceiling.nearer else 1.4)
    label = ceiling_label(ceiling)
    if ceiling.kind == "compute":
        svg.text((end[0] - 4, end[1] - 7), label, colour, 11, "end", bold=ceiling.nearer)
        return
    turn = math.degrees(math.atan2(end[1] - start[1], end[0] - start[0]))
    length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    right, down = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    # A little along the line, and beside it on its upper side.
    x = start[0] + _ALONG * right + _BESIDE * down
    y = start[1] + _ALONG * down - _BESIDE * right
    svg.text((x, y), label, colour, 11, turn=turn, bold=ceiling.nearer)


def _points(svg: Svg, found: Roofline, plot: Plot) -> None:
    """The points, and their legend on the right: numbers tie the two together."""
    numbered = list(enumerate(found.points, start=1))
    for number, point in reversed(numbered):
        if point.rate is None or point.intensity is None:
            continue
        step = point.kind == "step"
        x, y = plot.x(point.intensity), plot.y(point.rate)
        if step:
            svg.path(circle(x, y, 9), fill="main")
        else:
            svg.path(circle(x, y, 7.5), fill="paper", stroke="soft", thick=1.5)
        colour = "paper" if step else "ink"
        svg.text((x, y + 3.8), str(number), colour, 11, "middle", bold=True)
    left, y = plot.right + 24, plot.top + 12
    for number, point in numbered:
        step = point.kind == "step"
        mark = str(number) if point.rate is not None else "–"
        svg.text((left, y), mark, "main" if step else "ink", 12, bold=True)
        svg.text((left + 20, y), shorten(point.name, LONGEST_NAME), "ink", 12, bold=step)
        svg.text((left + 20, y + ROW - 1), _figures(point), "soft", 11)
        y += 2 * ROW + 6


def _figures(point: Point) -> str:
    about = "~" if point.estimated else ""
    said = [("~" if point.kind == "op" else "") + format_seconds(point.seconds, 3)]
    if point.rate is not None:
        said.append(about + format_si(point.rate, "FLOP/s"))
    if point.intensity is not None:
        said.append(f"{format_si(point.intensity)} FLOP/B")
    elif point.bandwidth is not None:
        said.append(about + format_si(point.bandwidth, "B/s"))
    return " · ".join(said)
