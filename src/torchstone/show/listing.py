"""The tables of `torchstone list`: what is stored and what there is to run, a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchstone.records import Outcome
from torchstone.records.format import count, format_bytes, format_seconds
from torchstone.show.evidence import hang
from torchstone.show.table import GAP, INDENT, Cell, Column, Style, cells, clip, pack, shorten, wrap

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


@dataclass(frozen=True)
class TechniqueRow:
    """A technique. `missing` says why it cannot run here; empty where it can."""

    name: str
    source: str = ""
    tier: str = ""
    modes: tuple[str, ...] = ()
    summary: str = ""
    may_break: str = ""
    inputs: tuple[str, ...] = ()
    missing: str = ""


class Shown(NamedTuple):
    """A column: its title, and what a row says under it (by default its field of that name)."""

    title: str
    text: Callable[[Any, Style], str | Cell] | None = None
    right: bool = False
    most: int = 40
    least: int = 0
    """Gives way, down to so many cells, that a row stays a line. The last column takes the room
    that is left instead, and loses its end where that is too little."""

    def cell(self, row: Any, style: Style, most: int = 0) -> Cell:
        """What stands in a row, made safe and cut to what it may take."""
        said = self.text(row, style) if self.text else str(getattr(row, self.title) or "")
        if isinstance(said, Cell):
            return said
        return Cell(shorten(style.safe(said), most or self.most, style.glyphs.ellipsis))


class Listing(NamedTuple):
    """A kind of list: what stands where there is nothing, its columns, and notes under them."""

    empty: str
    name: Shown
    facts: tuple[Shown, ...]
    words: tuple[Shown, ...] = ()
    notes: tuple[Callable[[Sequence[Any]], tuple[str, list[str]]], ...] = ()


def listing(
    what: str,
    rows: Iterable[Any],
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
) -> str:
    """The list of that kind (`results`, `runs`, …), in the order given."""
    style, kind, found = Style(color, unicode), LISTINGS[what], list(rows)
    if not found:
        return f"{kind.empty}\n"
    sections: dict[int, tuple[str, str]] = {}
    told = found
    if what == "models":
        told, sections = _by_suite(found, style)
    elif what == "variants":
        told = [row for row in found if row.summary]
    text = _table(kind, told, width, style, sections) if told else ""
    for title, notes in (notes_of(found) for notes_of in kind.notes):
        lines = [line for note in notes for line in hang("  - ", style.safe(note), width, style)]
        text += "\n".join(["", style.paint(title, "title"), *lines, ""]) if lines else ""
    return text


def _table(
    kind: Listing,
    rows: Sequence[Any],
    width: int,
    style: Style,
    sections: Mapping[int, tuple[str, str]],
) -> str:
    def column(shown: Shown, most: int = 0) -> Column:
        drawn = tuple(shown.cell(row, style, most) for row in rows)
        return Column(shown.title, drawn, shown.right)

    names, facts = column(kind.name), [column(shown) for shown in kind.facts]
    words: list[Column] = []
    if kind.words:
        *others, last = kind.words
        end = _last(last, rows, style)
        taken = INDENT + names.width + sum(GAP + one.width for one in facts) + 2 * GAP + last.least
        words = [column(one, min(one.most, max(one.least, width - taken))) for one in others]
        words.append(end)
    tables = pack(names, [facts, words], width, style, sections)
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _last(shown: Shown, rows: Sequence[Any], style: Style) -> Column:
    texts = [shown.cell(row, style, most=10_000).text for row in rows]
    longest = max(len(shown.title), *map(cells, texts))

    def draw(width: int) -> tuple[str, tuple[Cell, ...]]:
        cut = (wrap(text, width, rows=1, ellipsis=style.glyphs.ellipsis)[0] for text in texts)
        return shown.title, tuple(map(Cell, cut))

    blank = tuple(Cell() for _ in rows)
    return Column("", blank, least=min(longest, shown.least), most=longest, grow=draw)


def when(created: str) -> str:
    """`2026-11-15 20:30` of an ISO time."""
    return created[:16].replace("T", " ")


def _failures(row: Any, style: Style) -> Cell:
    """`ok`, or the outcomes of arms that are not, counted."""
    counts = Counter(outcome for outcome in row.outcomes if outcome != Outcome.OK)
    if not counts:
        return Cell("ok" if row.outcomes else "", "good")
    parts = (
        f"{number} " * (number > 1) + name.replace("_", " ") for name, number in counts.items()
    )
    return Cell(style.safe(", ".join(parts)), "fail")


def _outcomes(row: Any, style: Style) -> Cell:
    """Of a run's cases: `38 ok, 2 crash`."""
    order = [outcome.value for outcome in Outcome]
    counts = sorted(row.outcomes.items(), key=lambda item: [*order, item[0]].index(item[0]))
    known = [(name, number) for name, number in counts if number]
    failed = any(one.failed and row.outcomes.get(one.value) for one in Outcome)
    text = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in known)
    role = "fail" if failed else "good" if known else ""
    return Cell(clip(style.safe(text), 40, style.glyphs.ellipsis), role)


def _done(row: Any, style: Style) -> Cell:
    return Cell(f"{row.done}/{row.planned}", "" if row.done == row.planned else "doubt")


def _origin(row: Any, style: Style) -> str:
    """A run's label and, where it was not made here, where it came from."""
    origin = "" if row.origin == "here" else f"from {row.origin}"
    return ", ".join(part for part in (row.label, origin) if part)


def _share(row: SuiteRow, style: Style) -> Cell:
    role = "good" if row.runnable == row.models else "fail" if not row.runnable else "doubt"
    return Cell(f"{row.runnable} of {row.models}", role)


def _by_suite(
    rows: Sequence[ModelRow], style: Style
) -> tuple[list[ModelRow], dict[int, tuple[str, str]]]:
    """The models suite by suite, and the suites' headings by the number of the row below."""
    ordered: list[ModelRow] = []
    sections: dict[int, tuple[str, str]] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        mine = [row for row in rows if row.suite == suite]
        able = sum(not row.missing for row in mine)
        said = f"{able} of {count(len(mine), 'model')} can run here"
        sections[len(ordered)] = style.safe(suite), said
        ordered += mine
    return ordered, sections


def _suite_reasons(rows: Sequence[SuiteRow]) -> tuple[str, list[str]]:
    return "not all can run here", [f"{row.name}: {row.reason}" for row in rows if row.reason]


def _model_reasons(rows: Sequence[ModelRow]) -> tuple[str, list[str]]:
    """Each reason once, the commonest first, with the models it holds back."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.missing:
            reasons.setdefault(row.missing, []).append(f"{row.suite}/{row.name}")
    said = []
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        more = len(names) - MOST_NAMES
        listed = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        said.append(f"{reason.rstrip('.')}: {listed}")
    return "why not", said


def _backends(rows: Sequence[VariantRow]) -> tuple[str, list[str]]:
    """Those that do not say what they are, by who brings them."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if not row.summary:
            names.setdefault(row.source, []).append(row.name)
    return "other backends", [f"of {source}: {', '.join(of)}" for source, of in names.items()]


def _technique_reasons(rows: Sequence[TechniqueRow]) -> tuple[str, list[str]]:
    return "why not", [f"{row.name}: {row.missing}" for row in rows if row.missing]


def _technique_breaks(rows: Sequence[TechniqueRow]) -> tuple[str, list[str]]:
    """Those that may break the same in one line."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.may_break not in ("", "nothing"):
            names.setdefault(row.may_break, []).append(row.name)
    return "may break", [f"{', '.join(some)}: {text}" for text, some in names.items()]


def _gain(row: Any, style: Style) -> str:
    """What a tuning came to."""
    if not row.adopted:
        return "nothing adopted"
    gain = f" ({row.speedup:.3g} times as fast)" if row.speedup else ""
    return f"{', '.join(row.adopted)}{gain}"


_ID = Shown("id", lambda row, style: Cell(style.safe(row.id), "title"))
_NAME = Shown("", lambda row, style: Cell(style.safe(row.name), "title"))
_WHEN = Shown("when", lambda row, style: when(row.created))

LISTINGS = {
    "results": Listing(
        "nothing stored yet; `torchstone bench TARGET` makes a first result",
        _ID,
        (
            _WHEN,
            Shown("kind"),
            Shown("arms", lambda row, style: str(len(row.arms)), right=True),
            Shown("outcome", _failures),
        ),
        (
            Shown("label", most=24, least=8),
            Shown("result", lambda row, style: row.headline or "", least=24),
        ),
    ),
    "runs": Listing(
        "no run stored yet; `torchstone run` makes a first one",
        _ID,
        (_WHEN, Shown("done", _done, right=True), Shown("outcomes", _outcomes)),
        (
            Shown("label", _origin, most=24, least=24),
            Shown("suites", lambda row, style: ", ".join(row.suites), least=12),
        ),
    ),
    "profiles": Listing(
        "no profile stored yet; `torchstone profile` makes a first one",
        _ID,
        (
            _WHEN,
            Shown("how"),
            Shown("tool"),
            Shown("size", lambda row, style: format_bytes(row.bytes), right=True),
        ),
        (Shown("label", least=20),),
    ),
    "ledgers": Listing(
        "no ledger stored yet; `torchstone explain` makes a first one",
        _ID,
        (
            _WHEN,
            Shown("variant"),
            Shown("mode"),
            Shown("precision"),
            Shown(
                "step",
                lambda row, style: format_seconds(row.wall_s, 3, ascii_only=style.ascii_only),
                right=True,
            ),
            Shown("findings", lambda row, style: str(row.findings), right=True),
        ),
        (Shown("target", least=20),),
    ),
    "tunings": Listing(
        "no tuning stored yet; `torchstone tune` makes a first one",
        _ID,
        (
            _WHEN,
            Shown("mode"),
            Shown("goal"),
            Shown("state"),
            Shown("measured", lambda row, style: str(row.experiments), right=True),
        ),
        (Shown("adopted", _gain, most=60, least=20), Shown("target", least=20)),
    ),
    "scalings": Listing(
        "no scaling stored yet; `torchstone scaling` makes a first one",
        _ID,
        (
            _WHEN,
            Shown("scaling"),
            Shown("arms", lambda row, style: str(row.arms), right=True),
            Shown("failed", lambda row, style: str(row.failed or ""), right=True),
        ),
        (Shown("target", least=20),),
    ),
    "techniques": Listing(
        "no techniques",
        _NAME._replace(title="technique"),
        (
            Shown("answers", lambda row, style: row.tier),
            Shown(
                "for",
                lambda row, style: row.modes[0] if len(row.modes) == 1 else "both modes",
            ),
            Shown(
                "runs here",
                lambda row, style: Cell("no", "fail") if row.missing else Cell("yes", "good"),
            ),
        ),
        (Shown("what it is", lambda row, style: row.summary, least=24),),
        notes=(_technique_breaks, _technique_reasons),
    ),
    "suites": Listing(
        "no suite is installed; `pip install torchstone[suites]` brings their libraries",
        _NAME._replace(title="suite"),
        (
            Shown("target", lambda row, style: f"{row.prefix}:NAME" if row.prefix else ""),
            Shown("can run here", _share, right=True),
            Shown("scales", lambda row, style: ", ".join(row.scales)),
        ),
        notes=(_suite_reasons,),
    ),
    "models": Listing(
        "no models",
        Shown(
            "",
            lambda row, style: Cell(f"  {style.safe(row.name)}", "dim" * bool(row.missing)),
        ),
        (
            Shown("family"),
            Shown("tier"),
            Shown("modes", lambda row, style: ", ".join(row.modes)),
            Shown(
                "runs here",
                lambda row, style: Cell("no", "fail") if row.missing else Cell("yes", "good"),
            ),
        ),
        notes=(_model_reasons,),
    ),
    "variants": Listing(
        "no variants",
        _NAME._replace(title="variant"),
        (),
        (Shown("what it is", lambda row, style: row.summary, least=24),),
        notes=(_backends,),
    ),
}
