"""`torchstone history`: series as plots of a terminal, and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchstone.records.format import count
from torchstone.show.blocks import Grid, Parts, Report, to_markdown, to_terminal
from torchstone.show.cells import when_s
from torchstone.show.page import Cell, Field, field, make_table
from torchstone.show.regressions import (
    change_words,
    commit_text,
    metric_title,
    range_text,
    value_text,
)
from torchstone.show.table import Style, sanitise

if TYPE_CHECKING:
    from torchstone.records import LevelChange
    from torchstone.stats.series import Line, Lines

MOST_PLOTS = 4
"""Series that are drawn; of more, a table alone."""
HEIGHT = 12
LABEL = 10
BARS = "▁▂▃▄▅▆▇█"
SPARK = 24
LAST = 10
"""Values that the table of one series shows."""
_DOT, _CHANGE = ("•", "┊"), ("*", "|")


def history_report(
    lines: Lines,
    changes: dict[str, list[LevelChange]],
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
) -> str:
    """For a terminal: a plot each of a few series, else a table of them all."""
    style = Style(color, unicode)
    if len(lines.lines) > MOST_PLOTS:
        return to_terminal(_table(lines, changes, unicode), width, style)
    texts = []
    for line in lines.lines:
        own = changes.get(line.ident, [])
        top = to_terminal([[Parts(_about(lines, line), "title")]], width, style)
        rest = to_terminal(_below(lines, line, own), width, style)
        texts.append(top + plot(lines, line, own, width, unicode) + "\n" + rest)
    return "\n".join(texts)


def history_markdown(lines: Lines, changes: dict[str, list[LevelChange]]) -> str:
    """A table, and of a few series their newest values."""
    if len(lines.lines) > MOST_PLOTS:
        return to_markdown(_table(lines, changes, True))
    sections = []
    for line in lines.lines:
        sections += [
            [Parts(_about(lines, line), "title")],
            *_below(lines, line, changes.get(line.ident, [])),
        ]
    return to_markdown(sections)


def _about(lines: Lines, line: Line) -> list[str]:
    key = line.key
    where = (f"{key.tool} {key.suite}".strip(), key.machine, key.environment)
    return [
        f"{sanitise(key.title)}: {metric_title(key.metric)}",
        *(sanitise(part) for part in where if part),
        count(line.values.size, "value"),
    ]


def plot(
    lines: Lines, line: Line, changes: Sequence[LevelChange], width: int, unicode: bool = True
) -> str:
    """The values in the order of runs, changes as dotted lines."""
    room = max(20, width - LABEL - 3)
    values = line.values
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    spread = high - low or 1.0
    columns = min(room, values.size)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    dot, bar = _DOT[0] if unicode else _CHANGE[0], _DOT[1] if unicode else _CHANGE[1]
    begun = {change.first_bad for change in changes}
    for place in range(values.size):
        if lines.run(line, place) in begun:
            for row in grid:
                row[place * columns // values.size] = bar
    for place, value in enumerate(values.tolist()):
        row = HEIGHT - 1 - round((value - low) / spread * (HEIGHT - 1))
        grid[row][place * columns // values.size] = dot
    made = []
    for number, row in enumerate(grid):
        level = low + spread * (HEIGHT - 1 - number) / (HEIGHT - 1)
        label = value_text(level, line.key.unit) if number % 3 == 0 or number == HEIGHT - 1 else ""
        label = label if unicode else label.replace("µ", "u").replace("×", "x")
        made.append(f"{label:>{LABEL}} {'┤' if unicode else '|'}{''.join(row)}".rstrip())
    ends = [when_s(lines.run(line, place).at)[:10] for place in (0, -1)]
    gap = max(1, columns - len(ends[0]) - len(ends[1]))
    return "\n".join([*made, " " * (LABEL + 2) + ends[0] + " " * gap + ends[1]]) + "\n"


def _below(lines: Lines, line: Line, changes: Sequence[LevelChange]) -> Report:
    told = [
        Parts(
            [
                f"{_direction(line, one)} since {when_s(one.first_bad.at)[:10]}: "
                f"{change_words(one)}",
                f"first bad {range_text(one)}",
                *([f"{one.moved} moved"] if one.moved else []),
                *(["may be the machine: " + one.machine] if one.machine else []),
            ],
            "",
        )
        for one in changes
    ]
    places = list(range(line.values.size))[-LAST:][::-1]
    fields: tuple[Field[int], ...] = (
        field("commit", "Commit", lambda i: Cell("", commit_text(lines.run(line, i)))),
        field("made", "Made", lambda i: Cell("", when_s(lines.run(line, i).at))),
        field(
            "value",
            metric_title(line.key.metric),
            lambda i: Cell(float(line.values[i]), value_text(float(line.values[i]), line.key.unit)),
            True,
        ),
    )
    table = make_table("history", "", fields, places)
    return [told, [Grid(table, summary=f"the newest {len(places)} of {line.values.size}")]]


def _direction(line: Line, change: LevelChange) -> str:
    slower = "slower" if line.key.unit == "seconds" else "worse"
    return slower if change.worse else "better"


def spark(line: Line, unicode: bool = True) -> str:
    """The values as small bars."""
    step = max(1, -(-line.values.size // SPARK))
    values = [float(line.values[at : at + step].mean()) for at in range(0, line.values.size, step)]
    low, high = min(values), max(values)
    levels = BARS if unicode else "_.-=+*#@"
    # Of numbers near the largest there is no mean, or no scale.
    if not all(map(math.isfinite, (*values, high - low))) or high == low:
        return levels[0] * len(values)
    return "".join(levels[round((v - low) / (high - low) * (len(levels) - 1))] for v in values)


def _table(lines: Lines, changes: dict[str, list[LevelChange]], unicode: bool) -> Report:
    def newest(line: Line) -> Cell:
        value = float(line.values[-1])
        return Cell(value, value_text(value, line.key.unit))

    def changed(line: Line) -> Cell:
        own = changes.get(line.ident, [])
        worse = sum(one.worse for one in own)
        words = ", ".join(
            f"{n} {w}" for n, w in ((worse, "worse"), (len(own) - worse, "better")) if n
        )
        return Cell(len(own), words)

    fields: tuple[Field[Line], ...] = (
        field("name", "Series", lambda one: Cell("", sanitise(one.key.title)[:60])),
        field("metric", "Metric", lambda one: Cell("", metric_title(one.key.metric))),
        field(
            "where",
            "Where",
            lambda one: Cell("", sanitise(f"{one.key.machine} {one.key.environment}")[:30]),
            wide=True,
        ),
        field("values", "Values", lambda one: Cell(one.values.size, str(one.values.size)), True),
        field("shape", "Over time", lambda one: Cell("", spark(one, unicode))),
        field("newest", "Newest", newest, True),
        field("changes", "Changes", changed),
    )
    table = make_table("series", "", fields, lines.lines)
    return [[Parts([count(len(lines.lines), "series", "series")], "title")], [Grid(table)]]


def history_document(lines: Lines, changes: dict[str, list[LevelChange]]) -> dict[str, Any]:
    """All series with their values and changes as plain data."""
    from dataclasses import asdict

    from torchstone.show.regressions import change_data

    return {
        "schema": 1,
        "series": [
            {
                **asdict(line.key),
                "id": line.ident,
                "points": [
                    {**lines.run(line, place)._asdict(), "value": value}
                    for place, value in enumerate(line.values.tolist())
                ],
                "changes": [change_data(one) for one in changes.get(line.ident, [])],
            }
            for line in lines.lines
        ],
    }
