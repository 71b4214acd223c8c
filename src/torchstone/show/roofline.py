"""The roofline in the terminal: a plot in characters, a legend, and the verdict in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchstone.show.axis import LogAxis, format_si, format_tick
from torchstone.show.heading import flow
from torchstone.show.roofline_frame import frame, roof_label, roof_points, when
from torchstone.show.style import Style
from torchstone.show.text import cells, clip, pad, shorten, wrap
from torchstone.show.units import MISSING, format_bytes, format_seconds

if TYPE_CHECKING:
    from torchstone.explain import Point, Roofline

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
    threads = f"{found.threads} thread{'' if found.threads == 1 else 's'}" if found.threads else ""
    parts = [f"roofline of {found.target or found.arm}", found.arm, found.dtype, found.device]
    return [part for part in (*parts, threads) if part]


class _Canvas:
    """Characters by row and column; what is drawn later lies above."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.chars = [[" "] * columns for _ in range(rows)]
        self.roles = [[""] * columns for _ in range(rows)]

    def put(self, column: int, row: int, char: str, role: str) -> None:
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self.chars[row][column], self.roles[row][column] = char, role

    def write(self, column: int, row: int, text: str, role: str) -> None:
        for offset, char in enumerate(text):
            self.put(column + offset, row, char, role)

    def free(self, column: int, row: int, length: int) -> bool:
        """Whether a label has room there, with a blank at both ends."""
        if column < 0 or column + length > self.columns or not 0 <= row < self.rows:
            return False
        left, right = max(0, column - 1), min(self.columns, column + length + 1)
        return all(char == " " for char in self.chars[row][left:right])

    def lines(self, style: Style) -> list[str]:
        made = []
        for chars, roles in zip(self.chars, self.roles, strict=True):
            line, start = "", 0
            while start < self.columns:
                end = start
                while end < self.columns and roles[end] == roles[start]:
                    end += 1
                line += style.paint("".join(chars[start:end]), roles[start])
                start = end
            made.append(line.rstrip())
        return made


def _plot(found: Roofline, width: int, style: Style) -> list[str]:
    across, up = frame(found)
    canvas = _Canvas(width - GUTTER, ROWS)
    rising, level = ("╱", "─") if style.unicode else ("/", "-")
    for roof in found.roofs:
        role = "even" if roof.nearer else "dim"
        for column, row in roof_points(found, roof, across, up, canvas.columns, ROWS):
            canvas.put(column, row, level if roof.kind == "compute" else rising, role)
    _labels(found, canvas, across, up)
    _marks(found, canvas, across, up)
    return _with_axes(canvas, across, up, style)


def _labels(found: Roofline, canvas: _Canvas, across: LogAxis, up: LogAxis) -> None:
    """Each roof's name beside its line, where there is room; all are told below the plot."""
    for roof in found.roofs:
        path = list(roof_points(found, roof, across, up, canvas.columns, ROWS))
        for text in (roof_label(roof), roof.name):
            if roof.kind == "compute":
                places = [(column - len(text), row - 1) for column, row in reversed(path)]
            else:
                places = [(column + 2, row) for column, row in path]
            free = [place for place in places if canvas.free(*place, len(text))]
            if free:
                canvas.write(*free[0], text, "even" if roof.nearer else "dim")
                break


def _marks(found: Roofline, canvas: _Canvas, across: LogAxis, up: LogAxis) -> None:
    """The points by number, the step last, so that no op covers it; neighbours move aside."""
    taken: set[tuple[int, int]] = set()
    for index, point in reversed(list(enumerate(found.points))):
        if point.rate is None or point.intensity is None or index >= len(MARKS):
            continue
        column = round(across.share(point.intensity) * (canvas.columns - 1))
        row = round((1 - up.share(point.rate)) * (ROWS - 1))
        for shift in (0, 1, -1, 2, -2, 3, -3):
            if (column + shift, row) not in taken:
                taken.add((column + shift, row))
                role = "title" if point.kind == "step" else "doubt"
                canvas.put(column + shift, row, MARKS[index], role)
                break


def _with_axes(canvas: _Canvas, across: LogAxis, up: LogAxis, style: Style) -> list[str]:
    bar, corner, rule = ("│", "└", "─") if style.unicode else ("|", "+", "-")
    marks = {round((1 - up.share(tick)) * (ROWS - 1)): format_tick(tick) for tick in up.ticks()}
    lines = [pad("FLOP/s", GUTTER - 2, right=True)]
    for row, line in enumerate(canvas.lines(style)):
        lines.append(f"{pad(marks.get(row, ''), GUTTER - 2, right=True)} {bar}{line}")
    lines.append(" " * (GUTTER - 1) + corner + rule * canvas.columns)
    feet = _Canvas(canvas.columns, 1)
    for tick in across.ticks():
        text = format_tick(tick)
        column = round(across.share(tick) * (canvas.columns - 1)) - len(text) // 2
        column = min(max(0, column), canvas.columns - len(text))
        if feet.free(column, 0, len(text)):
            feet.write(column, 0, text, "")
    unit = "FLOP per byte"
    lines.append(" " * GUTTER + feet.lines(Style())[0])
    lines.append(pad(unit, GUTTER + canvas.columns, right=True))
    return lines


def _legend(found: Roofline, width: int, style: Style) -> list[str]:
    heads = ("", "", "calls", "time", "FLOP/s", "bytes", "B/s", "FLOP/B")
    rows = [heads, *(_row(index, point, style) for index, point in enumerate(found.points))]
    sizes = [max(cells(row[place]) for row in rows) for place in range(len(heads))]
    rest = sum(sizes) - sizes[1] + 2 * (len(sizes) - 1)
    sizes[1] = max(8, min(sizes[1], width - rest))
    lines = []
    for number, row in enumerate(rows):
        name = shorten(row[1], sizes[1], style.glyphs.ellipsis)
        shown = [pad(row[0], sizes[0]), pad(name, sizes[1])]
        shown += [pad(text, sizes[i], right=True) for i, text in enumerate(row) if i > 1]
        role = "dim" if number == 0 else "title" if number == 1 else ""
        lines.append(
            style.paint(clip("  ".join(shown).rstrip(), width, style.glyphs.ellipsis), role)
        )
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
    roofs = [roof_label(roof) for roof in found.roofs]
    ridges = [f"{name} {format_si(value)}" for name, value in found.ridges.items()]
    small = [f"roofs measured {when(found)}: {', '.join(roofs)}"] if roofs else []
    if ridges:
        small.append(f"compute is the lower roof above, in FLOP per byte: {', '.join(ridges)}")
    for note in (*small, *found.notes):
        text = wrap(style.safe(note), width - 2, ellipsis=style.glyphs.ellipsis)
        lines += [style.paint(("  " if i else "- ") + line, "dim") for i, line in enumerate(text)]
    return lines
