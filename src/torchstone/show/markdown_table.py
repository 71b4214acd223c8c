"""Tables of GitHub's Markdown, and lines cut to a room; for every report that is pasted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Column = tuple[str, str, Callable[[T], str]]


def table(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[str]:
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
