"""The table of `torchstone list profiles`: one stored profile a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torchstone.show.listing import tail, when
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.units import format_bytes

LABEL_LEAST = 20


class ProfileRow(Protocol):
    """What a listed profile must tell of itself."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> str: ...
    @property
    def how(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def bytes(self) -> int: ...


def profiles_listing(
    rows: Iterable[ProfileRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Newest as given: id, when, how, tool, size, label."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "no profile stored yet; `torchstone profile` makes a first one\n"
    ids = Column("id", tuple(Cell(style.safe(row.id), "title") for row in found))
    facts = [
        Column("when", tuple(Cell(style.safe(when(row.created))) for row in found)),
        Column("how", tuple(Cell(style.safe(row.how)) for row in found)),
        Column("tool", tuple(Cell(style.safe(row.tool)) for row in found)),
        Column("size", tuple(Cell(format_bytes(row.bytes)) for row in found), right=True),
    ]
    labels = [tail("label", [row.label for row in found], style, LABEL_LEAST)]
    tables = pack(ids, [facts, labels], width, style)
    return "\n\n".join("\n".join(table) for table in tables) + "\n"
