"""The table of `torchstone list runs`: one stored run a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torchstone.records import Outcome
from torchstone.records.format import count, format_bytes, format_seconds
from torchstone.show.evidence import hang
from torchstone.show.listing import LABEL_WIDTH, tail, when
from torchstone.show.table import Cell, Column, Style, clip, pack, shorten

OUTCOMES_WIDTH = 40
SUITES_LEAST = 12


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
        _column_runs_listing("when", [when(row.created) for row in found], style),
        Column("done", tuple(_done(row) for row in found), right=True),
        Column("outcomes", tuple(_outcomes(row, style) for row in found)),
    ]
    words = [
        _column_runs_listing("label", [_label(row) for row in found], style, LABEL_WIDTH),
        tail("suites", [", ".join(row.suites) for row in found], style, SUITES_LEAST),
    ]
    tables = pack(ids, [facts, words], width, style)
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _column_runs_listing(title: str, texts: Sequence[str], style: Style, most: int = 20) -> Column:
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
    failed = any(one.failed and row.outcomes.get(one.value) for one in Outcome)
    text = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in known)
    role = "fail" if failed else "good" if known else ""
    return Cell(clip(style.safe(text), OUTCOMES_WIDTH, style.glyphs.ellipsis), role)


# The table of `torchstone list profiles`: one stored profile a line.


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


# The table of `torchstone list ledgers`: one stored ledger a line.


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


# What there is to run: suites, models and variants, and why some cannot run here.


MOST_NAMES = 8
"""Models named beside a reason: the table marks every one."""


@dataclass(frozen=True)
class SuiteRow:
    """A suite. `reason` says why models beyond `runnable` cannot run here."""

    name: str
    prefix: str
    models: int
    runnable: int
    scales: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class ModelRow:
    """A model. `missing` says why it cannot run here; empty where it can."""

    suite: str
    name: str
    family: str = ""
    tier: str = ""
    modes: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class VariantRow:
    """A variant, who brings it, and what it is."""

    name: str
    source: str = ""
    summary: str = ""


def suites_listing(
    rows: Iterable[SuiteRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """One suite a line: how its models are named, how many there are and run here, why not all."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "no suite is installed; `pip install torchstone[suites]` brings their libraries\n"
    names = Column("suite", tuple(Cell(style.safe(row.name), "title") for row in found))
    facts = [
        _column_suites_listing(
            "target", [f"{row.prefix}:NAME" if row.prefix else "" for row in found], style
        ),
        Column("can run here", tuple(_share(row) for row in found), right=True),
        _column_suites_listing("scales", [", ".join(row.scales) for row in found], style),
    ]
    table = _text(pack(names, [facts], width, style))
    notes: list[str] = []
    for row in found:
        if row.reason:
            notes += hang("  - ", style.safe(f"{row.name}: {row.reason}"), width, style)
    return table + _notes("not all can run here", notes, style)


def models_listing(
    rows: Iterable[ModelRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """One model a line under its suite, then how many can run here."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "no models\n"
    ordered: list[ModelRow] = []
    sections: dict[int, tuple[str, str]] = {}
    for suite in dict.fromkeys(row.suite for row in found):
        mine = [row for row in found if row.suite == suite]
        able = sum(not row.missing for row in mine)
        said = f"{able} of {count(len(mine), 'model')} can run here"
        sections[len(ordered)] = style.safe(suite), said
        ordered += mine
    names = Column(
        "", tuple(Cell(f"  {style.safe(row.name)}", "dim" * bool(row.missing)) for row in ordered)
    )
    facts = [
        _column_suites_listing("family", [row.family for row in ordered], style),
        _column_suites_listing("tier", [row.tier for row in ordered], style),
        _column_suites_listing("modes", [", ".join(row.modes) for row in ordered], style),
        Column("runs here", tuple(_here(row) for row in ordered)),
    ]
    table = _text(pack(names, [facts], width, style, sections))
    return table + _notes("why not", _missing(ordered, width, style), style)


def _here(row: ModelRow) -> Cell:
    return Cell("no", "fail") if row.missing else Cell("yes", "good")


def _missing(rows: Sequence[ModelRow], width: int, style: Style) -> list[str]:
    """Each reason once, the commonest first, with the models it holds back."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.missing:
            reasons.setdefault(row.missing, []).append(f"{row.suite}/{row.name}")
    lines: list[str] = []
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        more = len(names) - MOST_NAMES
        listed = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        lines += hang("  - ", style.safe(f"{reason.rstrip('.')}: {listed}"), width, style)
    return lines


def _notes(title: str, lines: Sequence[str], style: Style) -> str:
    return "\n".join(["", style.paint(title, "title"), *lines, ""]) if lines else ""


def variants_listing(
    rows: Iterable[VariantRow], color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Variants that say what they are, one a line; then the backends, by their names alone."""
    style, found = Style(color, unicode), list(rows)
    if not found:
        return "no variants\n"
    table = _told([row for row in found if row.summary], width, style)
    notes: list[str] = []
    for source in dict.fromkeys(row.source for row in found if not row.summary):
        those = [row.name for row in found if row.source == source and not row.summary]
        notes += hang("  - ", style.safe(f"of {source}: {', '.join(those)}"), width, style)
    return table + _notes("other backends", notes, style)


def _told(rows: Sequence[VariantRow], width: int, style: Style) -> str:
    if not rows:
        return ""
    names = Column("variant", tuple(Cell(style.safe(row.name), "title") for row in rows))
    what = tail("what it is", [row.summary for row in rows], style)
    return _text(pack(names, [[what]], width, style))


def _share(row: SuiteRow) -> Cell:
    role = "good" if row.runnable == row.models else "fail" if not row.runnable else "doubt"
    return Cell(f"{row.runnable} of {row.models}", role)


def _column_suites_listing(title: str, texts: Sequence[str], style: Style) -> Column:
    return Column(title, tuple(Cell(clip(style.safe(t), 40, style.glyphs.ellipsis)) for t in texts))


def _text(tables: Sequence[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(table) for table in tables) + "\n"
