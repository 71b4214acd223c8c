"""The table of `torchstone list ledgers`: one stored ledger a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torchstone.show.listing import tail, when
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.units import format_seconds

TARGET_LEAST = 20


class LedgerRow(Protocol):
    """What a listed ledger must tell of itself."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def wall_s(self) -> float: ...
    @property
    def findings(self) -> int: ...


def ledgers_listing(
    rows: Iterable[LedgerRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Newest as given: id, when, variant, mode, precision, step, findings, target."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "no ledger stored yet; `torchstone explain` makes a first one\n"
    ascii_only = not unicode
    ids = Column("id", tuple(Cell(style.safe(row.id), "title") for row in found))
    steps = tuple(Cell(format_seconds(row.wall_s, 3, ascii_only=ascii_only)) for row in found)
    facts = [
        Column("when", tuple(Cell(style.safe(when(row.created))) for row in found)),
        Column("variant", tuple(Cell(style.safe(row.variant)) for row in found)),
        Column("mode", tuple(Cell(style.safe(row.mode)) for row in found)),
        Column("precision", tuple(Cell(style.safe(row.precision)) for row in found)),
        Column("step", steps, right=True),
        Column("findings", tuple(Cell(str(row.findings)) for row in found), right=True),
    ]
    targets = [tail("target", [row.target for row in found], style, TARGET_LEAST)]
    tables = pack(ids, [facts, targets], width, style)
    return "\n\n".join("\n".join(table) for table in tables) + "\n"
