"""The terminal report of a result."""

from __future__ import annotations

from torchstone.records import Result
from torchstone.records.format import format_percent
from torchstone.show import evidence
from torchstone.show.evidence import flow_commands, in_database
from torchstone.show.rows import (
    Row,
    Rows,
    Scale,
    axis,
    common_scale,
    flow,
    machine,
    rows,
    strip,
    what,
)
from torchstone.show.table import Cell, Column, Style, cells, pack, pad

LEAST_WIDTH = 40
STRIP_LEAST = 16
STRIP_MOST = 40


def report(
    result: Result,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    saved: bool = True,
    db: str = "",
) -> str:
    """The whole report. No line is wider than `width` (40 at least); no escape without `color`.

    `saved` closes it with the commands that show and repeat it; a result without an id has none.
    `db` is the database that was named, for those commands.
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        _heading(result, width, style),
        _tables(result, width, style),
        evidence.outcomes(result, width, style) + evidence.doubts(result, width, style),
        evidence.checks(result, width, style),
        _closing(result, width, style, saved, db),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(result: Result, width: int, style: Style) -> list[str]:
    lines = [style.paint(line, "title") for line in flow(what(result), width, style)]
    return lines + [style.paint(line, "dim") for line in flow(machine(result), width, style)]


def _tables(result: Result, width: int, style: Style) -> list[str]:
    if not result.arms:
        return ["  nothing was measured"]
    table = rows(result, ascii_only=style.ascii_only, plus_minus=style.glyphs.plus_minus)
    names = Column("", tuple(Cell(style.safe(row.name), "title") for row in table.rows))
    groups = [_main(table), _pictures(table, style), _details(table)]
    tables = pack(names, groups, width, style)
    lines: list[str] = []
    for index, made in enumerate(tables):
        lines += ["", *made] if index else made
    return lines


def _column(title: str, table: Rows, field: str) -> Column:
    return Column(title, tuple(Cell(getattr(row, field)) for row in table.rows), right=True)


def _pair(title: str, table: Rows, left: str, right: str) -> Column:
    """Two fields in one column, each aligned with itself, one blank between."""
    pairs = [(getattr(row, left), getattr(row, right)) for row in table.rows]
    inner = max(cells(first) for first, _ in pairs)
    return Column(title, tuple(Cell(f"{pad(a, inner, right=True)} {b}".rstrip()) for a, b in pairs))


def _main(table: Rows) -> list[Column]:
    return [
        _pair(f"{table.lead} per call", table, "time", "spread"),
        _pair(f"speed-up ({format_percent(table.level)})", table, "speedup", "interval"),
        Column("verdict", tuple(Cell(row.verdict, row.role) for row in table.rows)),
    ]


def _details(table: Rows) -> list[Column]:
    return [
        _pair(table.other, table, "other", "other_speedup"),
        _pair("memory", table, "memory", "memory_ratio"),
        _column("process", table, "process"),
        _column("compiler", table, "compiler"),
        _column("compile cold / warm", table, "compile"),
    ]


def _pictures(table: Rows, style: Style) -> list[Column]:
    scale = common_scale([row.figures.samples for row in table.rows if row.figures])
    if scale is None:
        return []

    def draw(width: int) -> tuple[str, tuple[Cell, ...]]:
        drawn = tuple(_picture(row, scale, width, style) for row in table.rows)
        return axis(scale, width, style.glyphs, ascii_only=style.ascii_only), drawn

    blank = tuple(Cell() for _ in table.rows)
    return [Column("", blank, least=STRIP_LEAST, most=STRIP_MOST, grow=draw)]


def _picture(row: Row, scale: Scale, width: int, style: Style) -> Cell:
    if row.figures is None:
        return Cell()
    found = row.figures
    return Cell(strip(found.samples, found.floor.value, scale, width, style.glyphs), "strip")


def _closing(result: Result, width: int, style: Style, saved: bool, db: str) -> list[str]:
    lines = flow(evidence.course(result, style), width, style)
    if saved and result.id:
        words = (f"torchstone {verb} {result.id}" for verb in ("show", "repro"))
        parts = [f"id {result.id}", *(in_database(command, db) for command in words)]
        lines += flow_commands(parts, width, style)
    return [style.paint(line, "dim") for line in lines]
