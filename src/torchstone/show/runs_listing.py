"""The table of `torchstone list runs`: one stored run a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from torchstone.records import Outcome
from torchstone.show.listing import LABEL_WIDTH, tail, when
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.text import clip, shorten

OUTCOMES_WIDTH = 40
SUITES_LEAST = 12
_ALONE = ("ok", "not_supported", "not_run")


class RunRow(Protocol):
    """What a listed run must tell of itself; `outcomes` counts the cases that are done."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def planned(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def outcomes(self) -> Mapping[str, int]: ...
    @property
    def suites(self) -> tuple[str, ...]: ...


def runs_listing(
    rows: Iterable[RunRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Newest as given: id, when, cases done, outcomes, label, suites."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "no run stored yet; `torchstone run` makes a first one\n"
    ids = Column("id", tuple(Cell(style.safe(row.id), "title") for row in found))
    facts = [
        _column("when", [when(row.created) for row in found], style),
        Column("done", tuple(_done(row) for row in found), right=True),
        Column("outcomes", tuple(_outcomes(row, style) for row in found)),
    ]
    words = [
        _column("label", [_label(row) for row in found], style, LABEL_WIDTH),
        tail("suites", [", ".join(row.suites) for row in found], style, SUITES_LEAST),
    ]
    tables = pack(ids, [facts, words], width, style)
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _column(title: str, texts: Sequence[str], style: Style, most: int = 20) -> Column:
    short = (shorten(style.safe(text), most, style.glyphs.ellipsis) for text in texts)
    return Column(title, tuple(Cell(text) for text in short))


def _label(row: RunRow) -> str:
    """Its label and, where it was not made here, where it came from."""
    origin = "" if row.origin == "here" else f"from {row.origin}"
    return ", ".join(part for part in (row.label, origin) if part)


def _done(row: RunRow) -> Cell:
    return Cell(f"{row.done}/{row.planned}", "" if row.done == row.planned else "doubt")


def _outcomes(row: RunRow, style: Style) -> Cell:
    """`38 ok, 2 crash`."""
    order = [outcome.value for outcome in Outcome]
    counts = sorted(row.outcomes.items(), key=lambda item: [*order, item[0]].index(item[0]))
    known = [(name, number) for name, number in counts if number]
    failed = any(name not in _ALONE for name, _ in known)
    text = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in known)
    role = "fail" if failed else "good" if known else ""
    return Cell(clip(style.safe(text), OUTCOMES_WIDTH, style.glyphs.ellipsis), role)
