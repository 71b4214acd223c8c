"""The terminal report of two runs set against each other."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import CaseChange, GroupChange, RunComparison
from torchstone.show import compare_words as words
from torchstone.show.budget import compare_advice
from torchstone.show.evidence import hang
from torchstone.show.heading import flow
from torchstone.show.rows import VERDICT_ROLES
from torchstone.show.run_evidence import command_lines
from torchstone.show.run_words import LOST, case_speedup, count
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.terminal import LEAST_WIDTH
from torchstone.show.text import cells, pad, shorten, wrap
from torchstone.show.units import format_percent

MOST_NAMES = 12
"""Cases named that one of the runs alone has; the rest is counted."""


def compare_report(
    comparison: RunComparison,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    everything: bool = False,
) -> str:
    """Heading, marks, groups, the cases that changed, what newly fails and passes.

    `everything` shows every paired case. No line is wider than `width` (or 40).
    """
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        _heading(comparison, width, style),
        _groups(comparison, width, style),
        _cases(comparison, width, style, everything),
        _failing(comparison, width, style),
        _other(comparison, words.NEWLY_PASSING, width, style),
        _other(comparison, words.FAILING, width, style),
        _other(comparison, words.ONLY_BASE, width, style),
        _other(comparison, words.ONLY_NEW, width, style),
        _closing(comparison, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(comparison: RunComparison, width: int, style: Style) -> list[str]:
    base, new = comparison.base, comparison.new
    lines = []
    for name, head, other in (("base", base, new), ("new ", new, base)):
        first, *rest = flow(
            [f"{name}  {words.title(head)}", *words.circumstances(head, other)], width, style
        )
        lines += [style.paint(first, "title"), *rest]
    lines += [style.paint(line, "dim") for line in flow(words.shared(comparison), width, style)]
    for mark in comparison.marks:
        lines += [style.paint(line, "warn") for line in hang("! ", style.safe(mark), width, style)]
    lines += flow([words.coverage(comparison)], width, style)
    return lines + flow(words.tally(comparison), width, style)


def _groups(comparison: RunComparison, width: int, style: Style) -> list[str]:
    groups = comparison.groups
    if not groups:
        return []
    labels, ascii_only, arrow = words.labels_of(comparison), style.ascii_only, style.glyphs.arrow
    names = Column("", tuple(Cell(style.safe(labels.group(g.key)), "title") for g in groups))
    means = [(g.base_common, g.new_common) for g in groups]
    level = min((g.speedup.level for g in groups if g.speedup), default=0.95)
    first = [
        _texts("in both", [words.coverage_words(g) for g in groups]),
        _texts("base", [words.mean_word(b, ascii_only=ascii_only) for b, _ in means], right=True),
        _texts("new", [words.mean_word(n, ascii_only=ascii_only) for _, n in means], right=True),
        Column(
            f"new / base ({format_percent(level)})",
            _aligned([words.ratio_words(g.speedup, ascii_only=ascii_only) for g in groups]),
        ),
        Column("verdict", tuple(_group_verdict(g) for g in groups)),
    ]
    costs = [
        _cost("compile", groups, "compile_cold", style),
        _cost("memory", groups, "memory", style),
        Column("passed", tuple(Cell(words.passed_words(g, arrow), _passed(g)) for g in groups)),
        _texts("over all", [words.over_all(g, arrow, ascii_only=ascii_only) for g in groups]),
    ]
    lines = _joined(pack(names, [first, costs], width, style))
    legend = (
        "speed-ups: geometric means over the cases that pass in both runs; over all: of each run "
        "over all its passing cases; compile and memory: new / base, above 1 is worse"
    )
    return lines + _dim(legend, width, style)


def _group_verdict(group: GroupChange) -> Cell:
    if group.verdict is None:
        return Cell("no verdict" if group.paired else "", "doubt")
    return Cell(group.verdict.value, VERDICT_ROLES[group.verdict])


def _passed(group: GroupChange) -> str:
    if group.base is None or group.new is None:
        return ""
    worse = group.counts.get(words.NEWLY_FAILING, 0)
    return (
        "fail"
        if worse
        else "good"
        if group.new.passes.passed == words.counted(group, "new")
        else ""
    )


def _cost(title: str, groups: Sequence[GroupChange], name: str, style: Style) -> Column:
    found = []
    for group in groups:
        mean, beyond = getattr(group, name), name in group.costs_changed
        text = words.cost_words(mean.value, beyond, ascii_only=style.ascii_only)
        found.append(Cell(f"{text} of {mean.n}" if text else "", "warn" if beyond else ""))
    return Column(title, tuple(found))


def _cases(comparison: RunComparison, width: int, style: Style, everything: bool) -> list[str]:
    found = words.changed(comparison, everything=everything)
    paired = len(words.of_kind(comparison, words.PAIRED))
    if not paired:
        return []
    if not found:
        return [
            f"none of the {paired} paired cases changed"
            if paired > 1
            else "the case did not change"
        ]
    said = (
        f"all {count(paired, 'paired case')}"
        if everything
        else f"{len(found)} of {paired} paired cases changed"
    )
    called = words.Names.of(comparison)
    names = Column("", tuple(Cell(f"  {style.safe(called.case(c))}") for c in found))
    lines = [style.paint(said, "title")]
    lines += _joined(pack(names, _case_columns(found, style), width, style))
    if any(case.alone is not case.verdict for case in found):
        note = f"{LOST} {words.LOST_NOTE}"
        lines += _dim(note, width, style)
    legend = (
        "moved: the side whose time left the machine's drift; eager, compiled: its time, new / base"
    )
    return lines + _dim(legend, width, style)


def _case_columns(cases: Sequence[CaseChange], style: Style) -> list[list[Column]]:
    ascii_only, arrow = style.ascii_only, style.glyphs.arrow
    level = min((c.speedup.level for c in cases if c.speedup), default=0.95)
    pairs = [
        [case_speedup(f, ascii_only=ascii_only)[0] if f else "" for f in (c.base, c.new)]
        for c in cases
    ]
    first = [
        _texts(
            "speed-up",
            [f" {arrow} ".join(part or "-" for part in pair) for pair in pairs],
            right=True,
        ),
        Column(
            f"new / base ({format_percent(level)})",
            _aligned([words.ratio_words(c.speedup, ascii_only=ascii_only) for c in cases]),
        ),
        Column("verdict", tuple(Cell(*words.verdict_words(c, style.glyphs.cross)) for c in cases)),
        _texts("moved", [c.moved for c in cases]),
    ]
    sides = [
        _ratios("eager", cases, "baseline_time", style),
        _ratios("compiled", cases, "arm_time", style),
        _ratios("compile", cases, "compile_cold", style),
        _ratios("memory", cases, "memory", style),
    ]
    return [first, sides]


def _ratios(title: str, cases: Sequence[CaseChange], name: str, style: Style) -> Column:
    found = []
    for case in cases:
        beyond = name in case.costs_changed
        text = words.cost_words(getattr(case, name), beyond, ascii_only=style.ascii_only)
        found.append(Cell(text, "warn" if beyond else ""))
    return Column(title, tuple(found))


def _failing(comparison: RunComparison, width: int, style: Style) -> list[str]:
    """What newly fails, each with its reason and the command that repeats it."""
    found = words.of_kind(comparison, words.NEWLY_FAILING)
    if not found:
        return []
    names, glyphs = words.Names.of(comparison), style.glyphs
    lines = [style.paint(f"{len(found)} newly failing", "title")]
    for case in found:
        name = shorten(style.safe(names.case(case)), width - 4, glyphs.ellipsis)
        lines.append(f"  {style.paint(glyphs.cross, 'fail')} {style.paint(name, 'title')}")
        lines += hang("    ", style.safe(words.failure_words(case.new)), width, style)
        if case.new is not None and case.new.command:
            rows = command_lines(case.new.command, width, style)
            lines += [style.paint(row, "dim") for row in rows]
    return lines


def _other(comparison: RunComparison, kind: str, width: int, style: Style) -> list[str]:
    found = words.of_kind(comparison, kind)
    if not found:
        return []
    title = f"{len(found)} {kind}{' in both' if kind == words.FAILING else ''}"
    named = words.absent_words(found, words.Names.of(comparison), MOST_NAMES)
    return [style.paint(title, "title"), *hang("  ", style.safe(named), width, style)]


def _closing(comparison: RunComparison, width: int, style: Style) -> list[str]:
    if not comparison.groups:
        return []
    said = (
        compare_advice(comparison),
        words.threshold_words(comparison),
        words.drift_words(comparison),
        words.cost_threshold_words(comparison.groups),
    )
    return [line for text in said if text for line in _dim(text, width, style, indent="")]


def _dim(text: str, width: int, style: Style, indent: str = "  ") -> list[str]:
    rows = wrap(style.safe(text), width - len(indent), ellipsis=style.glyphs.ellipsis)
    return [style.paint(f"{indent}{row}", "dim") for row in rows]


def _texts(title: str, texts: Sequence[str], *, right: bool = False) -> Column:
    return Column(title, tuple(Cell(text) for text in texts), right)


def _aligned(rows: Sequence[tuple[str, str]]) -> tuple[Cell, ...]:
    """A value on the right of its place and its interval on the left of the next."""
    width = max((cells(value) for value, _ in rows), default=0)
    return tuple(
        Cell(f"{pad(value, width, right=True)} {ends}".rstrip() if value else "")
        for value, ends in rows
    )


def _joined(tables: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for index, table in enumerate(tables):
        lines += ["", *table] if index else table
    return lines
