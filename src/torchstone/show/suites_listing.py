"""What there is to run: suites, models and variants, and why some cannot run here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchstone.show.evidence import hang
from torchstone.show.listing import tail
from torchstone.show.run_words import count
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.text import clip

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
        _column("target", [f"{row.prefix}:NAME" if row.prefix else "" for row in found], style),
        Column("can run here", tuple(_share(row) for row in found), right=True),
        _column("scales", [", ".join(row.scales) for row in found], style),
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
        _column("family", [row.family for row in ordered], style),
        _column("tier", [row.tier for row in ordered], style),
        _column("modes", [", ".join(row.modes) for row in ordered], style),
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


def _column(title: str, texts: Sequence[str], style: Style) -> Column:
    return Column(title, tuple(Cell(clip(style.safe(t), 40, style.glyphs.ellipsis)) for t in texts))


def _text(tables: Sequence[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(table) for table in tables) + "\n"
