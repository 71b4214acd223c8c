"""A report as records, and the two texts that are made from it: for a terminal, and Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchstone.show import table as text_table
from torchstone.show.evidence import break_command, flow_commands, hang
from torchstone.show.markdown import code, escape
from torchstone.show.page import Cell, Column, Table
from torchstone.show.rows import ROLES, flow
from torchstone.show.table import (
    Style,
    cells,
    clip,
    fit,
    pack,
    pad,
    sanitise,
    shorten,
    table_line,
    wrap,
)

LEAST_WIDTH = 40
WIDE = 130
"""From here on there is room for the columns that are `wide`."""
HEADED = "group"
"""The key of a column that a terminal shows as headings, where the table has them."""
MOST_CHARACTERS = 60_000
"""GitHub takes 65,536 characters in a comment; whoever posts it may want to say something too."""
NAME_WIDTH = 100
REASON_WIDTH = 400
_ASCII = str.maketrans({"×": "x", "–": "-", "→": "->", "µ": "u", "±": "+-", "✗": "x", "’": "'"})


@dataclass(frozen=True)
class Parts:
    """Short facts one after the other, a dot between them."""

    items: Sequence[str]
    role: str = ""
    """`title` paints the first line alone."""
    commands: bool = False
    """They are to be copied: broken where they are too long, never cut."""
    where: str = ""
    """`terminal` or `markdown`; empty: both."""


@dataclass(frozen=True)
class Sentence:
    """A remark. `warn` ones are led by a sign; Markdown folds those that are `dim`."""

    text: str
    role: str = "dim"
    lead: str = "  "
    where: str = ""
    """`terminal` or `markdown`; empty: both."""


@dataclass(frozen=True)
class Entry:
    """One of a list: a case with what happened to it and the command that repeats it."""

    text: str
    name: str = ""
    command: Sequence[str] = ()
    more: Sequence[str] = ()
    """Lines below it in a terminal: where the evidence is."""
    failed: bool = False


@dataclass(frozen=True)
class Listed:
    """Entries under a heading."""

    title: str
    entries: Sequence[Entry]
    aside: str = ""
    then: str = ""
    """A command that goes on from here; a terminal shows it."""
    room: int = MOST_CHARACTERS // 16
    """Characters of Markdown; what has no room is counted."""
    where: str = ""


@dataclass(frozen=True)
class Commands:
    """Commands to copy, each with its purpose; `inline` ones stand in the heading."""

    items: Sequence[tuple[str, str]]
    inline: bool = False


@dataclass(frozen=True)
class Grid:
    """A table, led by its first column."""

    table: Table
    summary: str = ""
    """A line above it, or what Markdown folds it under."""
    fold: bool = False
    indent: bool = False
    """Of the names, as under a heading."""
    whole: str = ""
    """Where the rows are that have no room in a comment."""


Block = Parts | Sentence | Listed | Commands | Grid
Report = Sequence[Sequence[Block]]
"""Sections; a blank line between them."""


def to_terminal(report: Report, width: int, style: Style) -> str:
    """No line is wider than `width` (40 at least); no escape sequence without colour."""
    width = max(width, LEAST_WIDTH)
    sections = [
        [line for block in section for line in _lines(block, width, style)] for section in report
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def render(report: Report, *, color: bool = False, width: int = 100, unicode: bool = True) -> str:
    """For a terminal that can do this much."""
    return to_terminal(report, width, Style(color, unicode))


def _lines(block: Block, width: int, style: Style) -> list[str]:
    if _elsewhere(block, "terminal"):
        return []
    if isinstance(block, Parts):
        return _parts(block, width, style)
    if isinstance(block, Sentence):
        text = _safe(block.text, style)
        if block.role == "dim":
            rows = wrap(text, width - cells(block.lead), ellipsis=style.glyphs.ellipsis)
            return [style.paint(f"{block.lead}{row}", "dim") for row in rows if row]
        return [style.paint(row, block.role) for row in hang(block.lead, text, width, style)]
    if isinstance(block, Listed):
        return _listed(block, width, style)
    if isinstance(block, Commands):
        return _commands(block, width, style)
    heads = {row: (_safe(a, style), _safe(b, style)) for row, (a, b) in block.table.heads.items()}
    tables = pack(*_packed(block, width, style), width, style, heads)
    title = [style.paint(block.summary, "title")] if block.summary and not heads else []
    return title + [
        line for number, made in enumerate(tables) for line in ([""] if number else []) + made
    ]


def ascii_signs(text: str, style: Style) -> str:
    """Our own signs in ASCII, where nothing else can be shown."""
    return text.translate(_ASCII) if style.ascii_only else text


def _safe(text: str, style: Style) -> str:
    """Text made harmless."""
    return style.safe(ascii_signs(text, style))


def _parts(block: Parts, width: int, style: Style) -> list[str]:
    items = [_safe(one, style) for one in block.items if one]
    lines = (flow_commands if block.commands else flow)(items, width, style)
    if block.role == "title":
        return [style.paint(line, "" if number else "title") for number, line in enumerate(lines)]
    return [style.paint(line, block.role) for line in lines]


def _commands(block: Commands, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    for why, command in block.items:
        text = _safe(command, style)
        if block.inline:
            lines += flow_commands([f"{style.glyphs.arrow} {text}"], width, style)
            continue
        lines += wrap(f"{_safe(why, style)}:", width, ellipsis=style.glyphs.ellipsis)
        lines += [f"  {line}" for line in flow_commands([text], width - 2, style)]
    return lines


def _listed(block: Listed, width: int, style: Style) -> list[str]:
    if not block.entries:
        return []
    aside = f"  {style.paint(block.aside, 'dim')}"
    fits = block.aside and cells(block.title) + 2 + cells(block.aside) <= width
    lines = [style.paint(block.title, "title") + (aside if fits else "")]
    for entry in block.entries:
        lines += _entry(entry, width, style)
    if block.then:
        lines += hang(f"  {style.glyphs.arrow} ", _safe(block.then, style), width, style)
    return lines


def _entry(entry: Entry, width: int, style: Style) -> list[str]:
    glyphs = style.glyphs
    if not entry.name:
        return hang("  - ", _safe(entry.text, style), width, style)
    name = shorten(_safe(entry.name, style), width - 4, glyphs.ellipsis)
    sign = f"{style.paint(glyphs.cross, 'fail')} " if entry.failed else ""
    lines = [f"  {sign}{style.paint(name, 'title') if entry.failed else name}"]
    lines += hang("    ", _safe(entry.text, style), width, style) if entry.text else []
    lead = f"    {style.glyphs.arrow} "
    words = (shlex.quote(style.safe(word)) for word in entry.command)
    below = break_command(words, width, style, lead, " " * cells(lead))
    for one in entry.more:
        lead, _, rest = one.partition(": ")
        below += hang(f"    {lead}: ", _safe(rest, style), width, style)
    return lines + [style.paint(line, "dim") for line in below]


def _packed(
    block: Grid, width: int, style: Style
) -> tuple[text_table.Column, list[list[text_table.Column]]]:
    """The names, and the other columns in their bands."""
    table, rows = block.table, list(block.table.rows)
    shown = [
        (place, column)
        for place, column in enumerate(table.columns)
        if column.shown
        and (width >= WIDE or not column.wide)
        and not (table.heads and column.key == HEADED)
    ]
    made = [_drawn(column, [row[place] for row in rows], style) for place, column in shown]
    indent = "  " if block.indent or table.heads else ""
    names = tuple(text_table.Cell(indent + cell.text, cell.role) for cell in made[0].cells)
    made[0] = text_table.Column("", names)
    bands: dict[int, list[text_table.Column]] = {}
    for (_, column), drawn in zip(shown[1:], made[1:], strict=True):
        bands.setdefault(column.band, []).append(drawn)
    return made[0], [bands[band] for band in sorted(bands)]


def _drawn(column: Column, made: Sequence[Cell], style: Style) -> text_table.Column:
    """Cells of several parts: the first on the right of its place, the others on the left."""
    rows = [tuple(_safe(part, style) for part in (c.text, c.detail, c.over)) for c in made]
    roles = [ROLES.get(cell.mark, cell.mark) for cell in made]
    title = _safe(_lower(column.title), style)
    if not any(row[1] or row[2] for row in rows):
        found = tuple(text_table.Cell(row[0], role) for row, role in zip(rows, roles, strict=True))
        return text_table.Column(title, found, column.number)
    widths = [max(map(cells, parts)) for parts in zip(*rows, strict=True)]
    texts = [
        " ".join(
            pad(part, width, right=place == 0)
            for place, (part, width) in enumerate(zip(row, widths, strict=True))
            if width
        ).rstrip()
        for row in rows
    ]
    found = tuple(
        text_table.Cell(text if text.strip() else "", role)
        for text, role in zip(texts, roles, strict=True)
    )
    return text_table.Column(title, found)


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def to_markdown(report: Report) -> str:
    """Fit for a comment on a pull request. Text from outside cannot become markup."""
    blocks = [block for section in report for block in section if not _elsewhere(block, "markdown")]
    notes = [one.text for one in blocks if isinstance(one, Sentence) and one.role == "dim"]
    made = [*map(_markdown, blocks), _folded_notes(notes)]
    room = MOST_CHARACTERS - sum(len(one) + 2 for one in made if isinstance(one, str))
    texts = [one if isinstance(one, str) else one(room) for one in made]
    return "\n\n".join(text for text in texts if text) + "\n"


def _elsewhere(block: Block, here: str) -> bool:
    return getattr(block, "where", "") not in ("", here)


def _folded_notes(notes: Sequence[str]) -> str:
    """What the figures mean, behind a click."""
    lines = [f"- {said(note)}" for note in notes]
    return "\n".join(folded("how to read this", lines)) if lines else ""


def _markdown(block: Block) -> str | Callable[[int], str]:
    """The block's text; a table's, as soon as its room is known."""
    if isinstance(block, Parts):
        return _markdown_parts(block)
    if isinstance(block, Sentence):
        shown = block.text and block.role != "dim"
        return f"{'⚠️ ' if block.role == 'warn' else ''}{said(block.text)}" if shown else ""
    if isinstance(block, Listed):
        return _markdown_listed(block)
    if isinstance(block, Commands):
        found = block.items if block.inline else ()
        return "\n".join(f"{escape(why)}: {code(command)}" for why, command in found)
    return lambda room: _markdown_grid(block, room)


def _markdown_parts(block: Parts) -> str:
    if block.commands:
        return " · ".join(code(one) for one in block.items if one)
    first, *rest = [said(" ".join(one.split())) for one in block.items if one] or [""]
    first = f"**{first}**" if block.role == "title" and first else first
    return " · ".join([first, *rest]) if first else ""


def _markdown_listed(block: Listed) -> str:
    if not block.entries:
        return ""
    lines = []
    for entry in block.entries:
        name = f"{code(shorten(sanitise(entry.name), NAME_WIDTH))} " if entry.name else ""
        end = "." if entry.name else ""
        command = code(clip(shlex.join(entry.command), REASON_WIDTH))
        again = f" Again: {command}" if entry.command else ""
        lines.append(f"- {name}{said(entry.text.rstrip('.'))}{end}{again}")
    kept, left_out = fit(lines, block.room)
    more = [f"- and {left_out} more"] if left_out else []
    aside = f" ({block.aside})" if block.aside else ""
    return "\n".join([f"**{block.title}**{aside}", "", *kept, *more])


def _markdown_grid(block: Grid, room: int) -> str:
    """The rows that fit, folded where they are many or not what matters most."""
    table, found = block.table, list(block.table.rows)
    shown = [
        (place, column)
        for place, column in enumerate(table.columns)
        if column.shown and any(row[place].text for row in found)
    ]
    if not shown:
        return ""
    rows = [
        table_line(
            [_markdown_cell(row[place], place == 0 or one.key == HEADED) for place, one in shown]
        )
        for row in found
    ]
    heading = table_line([escape(_lower(column.title)) for _, column in shown])
    marks = table_line(["--:" if column.number else ":--" for _, column in shown])
    kept, left_out = fit(rows, room - len(heading) - len(marks) - REASON_WIDTH)
    lines = [heading, marks, *kept]
    if left_out:
        whole = code(block.whole) if block.whole else "the CSV"
        lines += ["", f"{left_out:,} more did not fit in a comment; {whole} has all."]
    return "\n".join(folded(block.summary, lines) if block.fold else lines)


def _markdown_cell(cell: Cell, name: bool) -> str:
    if name:
        return code(shorten(sanitise(cell.text), NAME_WIDTH)) if cell.text else ""
    text = said(cell.text)
    strong = cell.mark in ("fail", "better", "worse") and text
    parts = (f"**{text}**" if strong else text, said(cell.detail), said(cell.over))
    return " ".join(part for part in parts if part)


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Behind a click."""
    return [f"<details><summary>{escape(title)}</summary>", "", *lines, "", "</details>"]


def said(text: str) -> str:
    """Text from outside, escaped and of bounded length."""
    return escape(clip(sanitise(text), REASON_WIDTH))
