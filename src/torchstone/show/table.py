"""Aligned columns without boxes, packed so that nothing is wider than the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

# Tables of GitHub's Markdown, and lines cut to a room; for every report that is pasted.


T = TypeVar("T")
markdown_table_Column = tuple[str, str, Callable[[T], str]]


def table(columns: Sequence[markdown_table_Column[T]], rows: Sequence[T]) -> list[str]:
    """A GitHub table without the columns in which no row has anything to say."""
    kept = [column for column in columns if any(column[2](row) for row in rows)]
    return [
        table_line([title for title, _, _ in kept]),
        table_line([mark for _, mark, _ in kept]),
        *(table_line([cell(row) for _, _, cell in kept]) for row in rows),
    ]


def table_line(fields: Sequence[str]) -> str:
    """One row."""
    return "| " + " | ".join(fields) + " |"


def fit(lines: Sequence[str], room: int) -> tuple[list[str], int]:
    """The lines that fit, and how many do not."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept, len(lines) - len(kept)


# Text from outside made safe, and text fitted to a number of terminal cells.
#
# Names, messages and stderr come from other people's code. Nothing of theirs reaches the terminal
# that could move the cursor, change colours or turn the reading direction: such characters are
# shown as escapes.


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories without a picture: controls, bidi and zero-width marks, surrogates."""

MAX_ROWS = 12
"""A wrapped paragraph is cut after so many rows: evidence, not a log file."""


def sanitise(text: str, *, ascii_only: bool = False) -> str:
    """One line with every character that has no picture shown as its escape (`\\x1b`, `\\n`)."""
    if text.isprintable() and (text.isascii() or not ascii_only):  # no category of `_HIDDEN` is
        return text
    return "".join(_shown(char, ascii_only) for char in text)


def _shown(char: str, ascii_only: bool) -> str:
    if char.isascii():
        return char if char.isprintable() else _escape(char)
    if ascii_only or unicodedata.category(char) in _HIDDEN:
        return _escape(char)
    return char


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    code = ord(char)
    wide = f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
    return named or (f"\\x{code:02x}" if code <= 0xFF else wide)


def _cell(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells(text: str) -> int:
    """How many terminal columns a sanitised text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled with blanks to `width` cells, on the left when it stands on the right."""
    fill = " " * max(0, width - cells(text))
    return fill + text if right else text + fill


def _take(text: str, width: int) -> str:
    """The longest beginning of `text` within `width` cells."""
    taken = 0
    for index, char in enumerate(text):
        taken += _cell(char)
        if taken > width:
            return text[:index]
    return text


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` cells; the middle goes, because names differ at their ends."""
    if cells(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 2:
        return _take(text, width)
    head = _take(text, (room + 1) // 2)
    tail = _take(text[::-1], room - cells(head))[::-1]
    return head + ellipsis + tail


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` cells; the end goes, because sentences begin with what matters."""
    if cells(text) <= width:
        return text
    return _take(text, max(0, width - len(ellipsis))).rstrip() + _take(ellipsis, max(0, width))


def wrap(text: str, width: int, *, rows: int = MAX_ROWS, ellipsis: str = "…") -> list[str]:
    """Rows of at most `width` cells; words longer than a row are broken; no more than `rows`."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        while cells(word) > width and len(lines) <= rows:
            piece = _take(word, width) or word[0]
            lines.append(piece)
            word = word[len(piece) :]
        line = _take(word, width)
    if line or not lines:
        lines.append(line)
    if len(lines) > rows:
        last = _take(lines[rows - 1], width - len(ellipsis)) + ellipsis
        lines = [*lines[: rows - 1], last]
    return lines


# Colours and glyphs: what the terminal can show, decided once and handed down.


_ROLES = {
    "title": "1",
    "dim": "2",
    "good": "32",
    "bad": "31",
    "doubt": "33",
    "even": "36",
    "strip": "34",
    "warn": "33",
    "fail": "1;31",
    "note": "2",
}
"""A role's SGR code, from the eight colours that every terminal theme adapts."""
COLOUR_CODES = frozenset(_ROLES.values())
_CSI = "\x1b["
_mark = [_CSI]
"""What our colours begin with. On a terminal that is a secret of this program, so that the gate
before it (`cli.app`) tells our colours from those in other people's texts."""


def mark_colours(secret: str) -> None:
    """From here on `paint` begins its colours with this; `unmarked` gives the terminal's own."""
    _mark[0] = secret


def unmarked(text: str) -> str:
    """The text with colours as a terminal knows them."""
    return text if _mark[0] == _CSI else text.replace(_mark[0], _CSI)


@dataclass(frozen=True)
class Glyphs:
    """The signs of a report; the ASCII set stands in where the encoding has no others."""

    bars: str
    empty: str
    floor: str
    dot: str
    plus_minus: str
    ellipsis: str
    arrow: str
    rule: str
    cross: str
    quote: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "·", "│", " · ", "±", "…", "→", "─", "✗", "│")
ASCII = Glyphs(".:-=+*#@", " ", "|", " - ", "+-", "...", "->", "-", "x", "|")


@dataclass(frozen=True)
class Style:
    """Paints roles when `color` is on and picks glyphs by `unicode`."""

    color: bool = False
    unicode: bool = True

    @property
    def glyphs(self) -> Glyphs:
        """The signs that can be shown."""
        return UNICODE if self.unicode else ASCII

    @property
    def ascii_only(self) -> bool:
        """True where nothing but ASCII may be written."""
        return not self.unicode

    def paint(self, text: str, role: str) -> str:
        """`text` in the colour of its role, or as it is."""
        code = _ROLES.get(role) if self.color else None
        return f"{_mark[0]}{code}m{text}{_mark[0]}0m" if code and text.strip() else text

    def safe(self, text: str) -> str:
        """Text from outside, made harmless and encodable."""
        return sanitise(text, ascii_only=self.ascii_only)


def can_unicode(stream: Any) -> bool:
    """Whether everything in the Unicode set can be written to this stream."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    probe = "".join((UNICODE.bars, UNICODE.plus_minus, UNICODE.cross, UNICODE.arrow, "µ×–━╸"))
    try:
        probe.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


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

    @cached_property
    def width(self) -> int:
        """The least width that shows everything; asked for in every row, so counted once."""
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
