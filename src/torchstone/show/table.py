"""Aligned columns without boxes, packed so that nothing is wider than the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchstone.show.style import Style
from torchstone.show.text import cells, pad, shorten

GAP = 2
INDENT = 2
LEAST_NAME = 20
"""A name cut below this says too little; a shorter one is never cut."""


@dataclass(frozen=True)
class Cell:
    """A sanitised text and the role it is painted in."""

    text: str = ""
    role: str = ""


@dataclass(frozen=True)
class Column:
    """A heading and one cell a row. `grow` redraws heading and cells for a given width."""

    title: str
    cells: tuple[Cell, ...]
    right: bool = False
    least: int = 0
    most: int = 0
    grow: Callable[[int], tuple[str, tuple[Cell, ...]]] | None = None

    @property
    def width(self) -> int:
        """The least width that shows everything."""
        if self.grow is not None:
            return self.least
        return max([cells(self.title), *(cells(cell.text) for cell in self.cells)])

    def grown(self, width: int) -> Column:
        """The column redrawn `width` cells wide."""
        if self.grow is None:
            return self
        title, drawn = self.grow(width)
        return Column(title, drawn, self.right)

    @property
    def empty(self) -> bool:
        """True when no row has anything to say."""
        return self.grow is None and not any(cell.text for cell in self.cells)


def pack(
    names: Column,
    groups: Sequence[Sequence[Column]],
    width: int,
    style: Style,
    sections: Mapping[int, tuple[str, str]] | None = None,
) -> list[list[str]]:
    """Tables, each led by the names, that hold the groups in order within `width`.

    A group stays together where it can; one that is wider than the terminal is split. The names
    are shortened to leave room for the first group, and for all of them where that costs little;
    where it would leave too little of them, or make two of them alike, each stands on a line of
    its own above its row. `sections` are headings, each with an aside, to stand before the row of
    that number in every table.
    """
    room = width - INDENT
    wanted = [[column for column in group if not column.empty] for group in groups]
    wanted = [group for group in wanted if group]
    spare = room - (_span(wanted[0]) if wanted else 0)
    narrow = _narrow(names, _name_room(names, wanted, room), style)
    stacked = spare < min(names.width, LEAST_NAME) or _distinct(narrow) < _distinct(names)
    names = _narrow(names, room, style) if stacked else narrow
    lead = Column("", tuple(Cell() for _ in names.cells)) if stacked else names
    tables: list[list[Column]] = [[]]
    for group in wanted:
        for part in [group] if _span(group) + lead.width <= room else [[c] for c in group]:
            if tables[-1] and lead.width + _span(tables[-1]) + _span(part) > room:
                tables.append([])
            tables[-1].extend(part)
    drawn = [_render(_stretch([lead, *table], room), room, style) for table in tables]
    heads = {row: _head(*words, room, style) for row, words in (sections or {}).items()}
    return [_stack(names if stacked else None, heads, table, style) for table in drawn]


def _distinct(names: Column) -> int:
    return len({cell.text for cell in names.cells})


def _head(text: str, aside: str, room: int, style: Style) -> str:
    shown = shorten(text, room, style.glyphs.ellipsis)
    fits = aside and cells(shown) + GAP + cells(aside) <= room
    said = " " * GAP + style.paint(aside, "dim") if fits else ""
    return " " * INDENT + style.paint(shown, "title") + said


def _name_room(names: Column, groups: Sequence[Sequence[Column]], room: int) -> int:
    """A third of the room; more where nothing else wants it, less where all then stays together."""
    first, everything = _span(groups[0]) if groups else 0, sum(_span(group) for group in groups)
    usual = min(max(room // 3, LEAST_NAME), room - first)
    beside = room - everything
    elastic = any(column.grow for group in groups for column in group)
    if beside >= usual:
        return usual if elastic else beside
    return beside if beside >= min(names.width, LEAST_NAME) else usual


def _stack(
    names: Column | None, heads: Mapping[int, str], table: list[str], style: Style
) -> list[str]:
    """The table's lines with the headings and, where they stand apart, the names between them."""
    lines = table[:1]
    for number, row in enumerate(table[1:]):
        lines += [heads[number]] if number in heads else []
        if names is None:
            lines.append(row.rstrip())
            continue
        name = names.cells[number]
        lines += [" " * INDENT + style.paint(name.text, name.role), *([row] if row.strip() else [])]
    return lines


def _span(columns: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in columns)


def _narrow(names: Column, width: int, style: Style) -> Column:
    short = tuple(
        Cell(shorten(cell.text, width, style.glyphs.ellipsis), cell.role) for cell in names.cells
    )
    return Column(shorten(names.title, width, style.glyphs.ellipsis), short)


def _stretch(columns: list[Column], room: int) -> list[Column]:
    spare = room - _span(columns) + GAP
    return [
        column.grown(min(column.most, column.least + max(0, spare))) if column.grow else column
        for column in columns
    ]


def _render(columns: Sequence[Column], room: int, style: Style) -> list[str]:
    rows = [[Cell(column.title, "dim") for column in columns]]
    rows += [list(row) for row in zip(*(column.cells for column in columns), strict=True)]
    return [_row(row, columns, room, style) for row in rows]


def _row(row: Sequence[Cell], columns: Sequence[Column], room: int, style: Style) -> str:
    last = max((i for i, cell in enumerate(row) if cell.text), default=-1)
    parts, used = [], 0
    for index, (cell, column) in enumerate(zip(row[: last + 1], columns, strict=False)):
        # A single column wider than the whole terminal is the only thing that is ever cut.
        text = shorten(cell.text, max(1, room - used), style.glyphs.ellipsis)
        text = text.rstrip() if index == last else text
        width = column.width if column.right or index < last else 0
        parts.append(style.paint(pad(text, min(width, room - used), right=column.right), cell.role))
        used += max(width, cells(text)) + GAP
    return " " * INDENT + (" " * GAP).join(parts)
