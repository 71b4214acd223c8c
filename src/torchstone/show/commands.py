"""Commands that a report prints, so that they work as they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from torchstone.show.heading import flow
from torchstone.show.style import Style
from torchstone.show.text import cells, wrap

_INDENT = "  "


def in_database(command: str, db: str) -> str:
    """The command on the database that was named; `db` is empty where it is the default one."""
    return f"{command} --db {shlex.quote(db)}" if db else command


def flow_commands(parts: Iterable[str], width: int, style: Style) -> list[str]:
    """Parts joined by dots; one wider than a line is broken, not cut, to be copied."""
    lines: list[str] = []
    fitting: list[str] = []
    for part in parts:
        if cells(style.safe(part)) <= width:
            fitting.append(part)
            continue
        lines += flow(fitting, width, style) + _broken(style.safe(part), width, style)
        fitting = []
    return lines + flow(fitting, width, style)


def _broken(command: str, width: int, style: Style) -> list[str]:
    """Between words, with a backslash at the end of a line; a word wider than a line anywhere."""
    room = width - 2 - len(_INDENT)
    rows: list[str] = []
    for word in command.split(" "):
        if rows and cells(rows[-1]) + 1 + cells(word) <= room:
            rows[-1] += f" {word}"
        else:
            rows += wrap(word, room, ellipsis=style.glyphs.ellipsis)
    last = len(rows) - 1
    return [
        (_INDENT if number else "") + row + ("" if number == last else " \\")
        for number, row in enumerate(rows)
    ]
