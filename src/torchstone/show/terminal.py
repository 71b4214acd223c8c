"""The terminal report of a result."""

from __future__ import annotations

from torchstone.records import Result
from torchstone.show import evidence
from torchstone.show.evidence import flow_commands, in_database
from torchstone.show.rows import Words, arm_table, flow, machine, what
from torchstone.show.sweep import sweep_table
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
    verbose: bool = True,
) -> str:
    """The whole report. No line is wider than `width` (40 at least); no escape without `color`.

    `saved` closes it with the commands that show and repeat it; a result without an id has none.
    `db` is the database that was named, for those commands. Not `verbose`: checks that weigh, and
    no table of details.
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    heading = [style.paint(line, "title") for line in flow(what(result), width, style)]
    heading += [style.paint(line, "dim") for line in flow(machine(result), width, style)]
    checks = evidence.checks if verbose else evidence.brief_checks
    sections = [
        heading,
        evidence.note_lines(evidence.answers(result, style), width, style),
        *(_tables(result, width, style) if result.arms else [["  nothing was measured"]]),
        evidence.note_lines([*checks(result, style), *evidence.left_out(result)], width, style),
        _closing(result, width, style, saved, db),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _tables(result: Result, width: int, style: Style) -> list[list[str]]:
    table = sweep_table(result, style) if result.sweep else arm_table(result, style)
    names = Column("", tuple(Cell(style.safe(name), "title") for name in table.names))
    main = [
        _column(title, words, table.roles if title == "verdict" else ())
        for title, words in table.main.items()
    ]
    details = [_column(title, words) for title, words in table.details.items()]

    def draw(room: int) -> tuple[str, tuple[Cell, ...]]:
        heading, drawn = table.pictures(room, style) or ("", [])
        return heading, tuple(Cell(one, "strip") for one in drawn)

    blank = tuple(Cell() for _ in table.names)
    pictures = [Column("", blank, least=STRIP_LEAST, most=STRIP_MOST, grow=draw)]
    groups = [main, pictures if any(table.figures) else [], details]
    return pack(names, groups, width, style)


def _column(title: str, words: list[Words], roles: tuple[str, ...] = ()) -> Column:
    """Figures aligned with each other, and what stands beside them, one blank between."""
    if roles:
        return Column(title, tuple(map(Cell, (figure for figure, _ in words), roles)))
    inner = max(cells(figure) for figure, _ in words)
    drawn = (f"{pad(figure, inner, right=True)} {beside}".rstrip() for figure, beside in words)
    return Column(title, tuple(map(Cell, drawn)), right=not any(beside for _, beside in words))


def _closing(result: Result, width: int, style: Style, saved: bool, db: str) -> list[str]:
    lines = flow(evidence.course(result, style), width, style)
    if saved and result.id:
        verbs = ("show",) if result.sweep or result.method.session else ("show", "repro")
        words = (f"torchstone {verb} {result.id}" for verb in verbs)
        parts = [f"id {result.id}", *(in_database(command, db) for command in words)]
        lines += flow_commands(parts, width, style)
    return [style.paint(line, "dim") for line in lines]
