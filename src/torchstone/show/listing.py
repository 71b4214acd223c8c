"""The table of `torchstone list`: one stored result a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from torchstone.show.table import GAP, INDENT, Cell, Column, Style, cells, pack, shorten, wrap

LABEL_WIDTH = 24
LABEL_LEAST = 8
TAIL_LEAST = 24
_OK = "ok"


class ListingRow(Protocol):
    """What a listed result must tell of itself; `arms` is a count or the names."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def arms(self) -> Any: ...
    @property
    def outcomes(self) -> Any: ...
    @property
    def headline(self) -> str: ...


def listing(
    rows: Iterable[ListingRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Newest as given: id, when, kind, label, arms, outcomes that are not ok, headline."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "nothing stored yet; `torchstone bench TARGET` makes a first result\n"
    ids = Column("id", tuple(Cell(style.safe(row.id), "title") for row in found))
    facts = [
        _column("when", [when(row.created) for row in found], style),
        _column("kind", [row.kind for row in found], style),
        _column("arms", [str(_count(row.arms)) for row in found], style, right=True),
        Column("outcome", tuple(_outcome(row.outcomes, style) for row in found)),
    ]
    # Labels give way, down to a few letters, so that a row stays a line.
    taken = INDENT + ids.width + sum(GAP + column.width for column in facts) + 2 * GAP + TAIL_LEAST
    room = min(LABEL_WIDTH, max(LABEL_LEAST, width - taken))
    words = [
        _column("label", [row.label for row in found], style, room),
        tail("result", [row.headline or "" for row in found], style),
    ]
    tables = pack(ids, [facts, words], width, style)
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _column(
    title: str, texts: Sequence[str], style: Style, most: int = 40, *, right: bool = False
) -> Column:
    short = (shorten(style.safe(text or ""), most, style.glyphs.ellipsis) for text in texts)
    return Column(title, tuple(Cell(text) for text in short), right)


def tail(title: str, texts: Sequence[str], style: Style, least: int = TAIL_LEAST) -> Column:
    """A last column that takes the room that is left; what does not fit loses its end."""
    safe = [style.safe(text) for text in texts]

    def draw(width: int) -> tuple[str, tuple[Cell, ...]]:
        return title, tuple(Cell(_clip(text, width, style)) for text in safe)

    longest = max(len(title), *(cells(text) for text in safe))
    blank = tuple(Cell() for _ in safe)
    return Column("", blank, least=min(longest, least), most=longest, grow=draw)


def _clip(text: str, width: int, style: Style) -> str:
    return wrap(text, width, rows=1, ellipsis=style.glyphs.ellipsis)[0]


def when(created: str) -> str:
    """`2026-11-15 20:30` of an ISO time."""
    return created[:16].replace("T", " ")


def _count(arms: Any) -> int:
    return arms if isinstance(arms, int) else len(arms)


def _outcome(outcomes: Any, style: Style) -> Cell:
    """`ok`, or the outcomes that are not, counted."""
    if isinstance(outcomes, Mapping):
        counts = {str(name): int(count) for name, count in outcomes.items() if count}
    else:
        words = [outcomes] if isinstance(outcomes, str) else list(outcomes)
        names = [str(getattr(word, "value", word)) for word in words]
        counts = {name: names.count(name) for name in names}
    bad = {name: count for name, count in counts.items() if name != _OK}
    if not bad:
        return Cell(_OK if counts else "", "good")
    parts = (f"{count} " * (count > 1) + name.replace("_", " ") for name, count in bad.items())
    return Cell(style.safe(", ".join(parts)), "fail")
