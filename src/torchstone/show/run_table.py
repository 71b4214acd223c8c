"""The two tables of a run: suites × variants, and the cases."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import CaseFigures, Outcome, RunView, SuiteSummary
from torchstone.show.budget import run_advice
from torchstone.show.rows import LEAST_COMPILE_NS
from torchstone.show.run_foreign import foreign_cell, foreign_columns, foreign_note
from torchstone.show.run_words import (
    bytes_words,
    case_speedup,
    case_verdict,
    compile_words,
    count,
    group_words,
    grouped,
    labels_of,
    lost_note,
    mean_decimals,
    of_words,
    pass_words,
    ratio_word,
    run_verdicts,
    speedup_words,
    suite_of,
)
from torchstone.show.style import Style
from torchstone.show.table import Cell, Column, pack
from torchstone.show.text import cells, clip, pad, wrap
from torchstone.show.units import format_change, format_percent, format_seconds

WIDE = 130
"""From here on there is room for the process's memory, the stored result and the checks."""
CHECKS_WIDTH = 30
FOREIGN_WIDTH = 20


def suite_table(
    view: RunView, summaries: Sequence[SuiteSummary], width: int, style: Style
) -> list[str]:
    """One row a suite, mode, precision and variant; every mean with the number of its cases.

    Rows without a single supported case have nothing to show: they are listed apart. A suite with
    several rows has a heading of its own.
    """
    shown = [summary for summary in summaries if summary.passes.counted]
    if not shown:
        return []
    labels, suites = labels_of(view), _by_suite(shown)
    sections: dict[int, tuple[str, str]] = {}
    if len(suites) == len(shown):
        labelled = [Cell(style.safe(labels.group(summary)), "title") for summary in shown]
    else:
        shown = []
        for suite, found in suites.items():
            sections[len(shown)] = style.safe(suite), _not_supported(suite, summaries)
            shown += found
        labelled = [Cell(f"  {style.safe(labels.settings(summary))}") for summary in shown]
    first = [_passed(shown), _speedups(shown, style)]
    costs = [_compiles(shown, style), _memory("memory", shown, "memory_ratio", style)]
    process = _memory("process memory", shown, "process_memory_ratio", style)
    apart = [process, _compiler(shown)] if width >= WIDE else []
    names = Column("", tuple(labelled))
    return _joined(pack(names, [first, costs, apart], width, style, sections))


def _by_suite(summaries: Sequence[SuiteSummary]) -> dict[str, list[SuiteSummary]]:
    found: dict[str, list[SuiteSummary]] = {}
    for summary in summaries:
        found.setdefault(suite_of(summary), []).append(summary)
    return found


def _not_supported(suite: str, summaries: Sequence[SuiteSummary]) -> str:
    """How many cases of the suite are in no row's denominator."""
    mine = [summary.passes for summary in summaries if suite_of(summary) == suite]
    number = sum(passes.planned - passes.counted for passes in mine)
    return f"{count(number, 'case')} not supported" if number else ""


def _passed(summaries: Sequence[SuiteSummary]) -> Column:
    words = [pass_words(summary.passes) for summary in summaries]
    roles = [_pass_role(summary) for summary in summaries]
    return Column("passed", _aligned(words, roles))


def _pass_role(summary: SuiteSummary) -> str:
    passes = summary.passes
    return "" if not passes.counted else "good" if passes.passed == passes.counted else "fail"


def _speedups(summaries: Sequence[SuiteSummary], style: Style) -> Column:
    means = [summary.speedup for summary in summaries]
    decimals, ascii_only = mean_decimals(means), style.ascii_only
    words = [
        (*speedup_words(m.value, m.interval, decimals, ascii_only=ascii_only), of_words(m))
        for m in means
    ]
    level = min(mean.level for mean in means)
    return Column(f"speed-up ({format_percent(level)})", _aligned(words))


def _compiles(summaries: Sequence[SuiteSummary], style: Style) -> Column:
    words = [
        (
            compile_words(s.compile_cold_ns, s.compile_warm_ns, ascii_only=style.ascii_only),
            of_words(s.compile_cold_ns, s.compile_warm_ns),
        )
        for s in summaries
    ]
    return Column("compile cold / warm", _aligned(words))


def _memory(title: str, summaries: Sequence[SuiteSummary], field: str, style: Style) -> Column:
    means = [getattr(summary, field) for summary in summaries]
    words = [(ratio_word(m.value, ascii_only=style.ascii_only), of_words(m)) for m in means]
    return Column(title, _aligned(words))


def _compiler(summaries: Sequence[SuiteSummary]) -> Column:
    means = [summary.compiler_bytes for summary in summaries]
    return Column("compiler's memory", _aligned([(bytes_words(m), of_words(m)) for m in means]))


def case_table(view: RunView, width: int, style: Style) -> list[str]:
    """One row a case that ran, under the heading of its suite and settings."""
    ran = [c for c in view.complete if c.outcome not in (Outcome.NOT_SUPPORTED, Outcome.NOT_RUN)]
    if not ran:
        return []
    labels = labels_of(view)
    verdicts = run_verdicts(view)
    sections: dict[int, tuple[str, str]] = {}
    ordered: list[CaseFigures] = []
    for found in grouped(ran).values():
        head = style.safe(labels.group(found[0].key))
        sections[len(ordered)] = head, group_words(found, verdicts)
        ordered += found
    names = Column("", tuple(Cell(f"  {style.safe(case.key.model)}") for case in ordered))
    said = [case_verdict(case, verdicts[case.key], style.glyphs.cross) for case in ordered]
    groups = _case_columns(ordered, said, width, style)
    lines = _joined(pack(names, groups, width, style, sections))
    for note in (
        lost_note(view, verdicts),
        run_advice(view, verdicts),
        foreign_note(ordered),
    ):
        rows = wrap(style.safe(note), width - 2, ellipsis=style.glyphs.ellipsis)
        lines += [style.paint(f"  {row}", "dim") for row in rows if row]
    return lines


def _case_columns(
    cases: Sequence[CaseFigures], said: Sequence[tuple[str, str]], width: int, style: Style
) -> tuple[list[Column], ...]:
    ascii_only, glyphs = style.ascii_only, style.glyphs
    level = min(case.level for case in cases)
    first = [
        Column(
            f"speed-up ({format_percent(level)})",
            _aligned([case_speedup(case, ascii_only=ascii_only) for case in cases]),
        ),
        Column("verdict", tuple(Cell(*words) for words in said)),
        _texts(f"base {glyphs.arrow} new", [_times(case, style) for case in cases], right=True),
    ]
    costs = [
        _texts("compile", [_compile(case, style) for case in cases], right=True),
        _texts(
            "memory", [ratio_word(c.memory_ratio, ascii_only=ascii_only) for c in cases], right=True
        ),
        _texts("breaks", [_number(case.graph_breaks) for case in cases], right=True),
    ]
    evidence = [
        _texts("result", [style.safe(case.result_id) for case in cases]),
        _texts("checks", [_checks(case, style) for case in cases]),
    ]
    theirs = [
        _texts(name, [_foreign(case, name, style) for case in cases], right=True)
        for name in foreign_columns(cases)
    ]
    return (first, costs, theirs, evidence) if width >= WIDE else (first, costs, theirs)


def _foreign(case: CaseFigures, name: str, style: Style) -> str:
    return clip(style.safe(foreign_cell(case, name)), FOREIGN_WIDTH, style.glyphs.ellipsis)


def _checks(case: CaseFigures, style: Style) -> str:
    return clip(", ".join(map(style.safe, case.checks)), CHECKS_WIDTH, style.glyphs.ellipsis)


def _times(case: CaseFigures, style: Style) -> str:
    base, new = (None if ns is None else ns / 1e9 for ns in (case.base_ns, case.new_ns))
    return format_change(base, new, style.glyphs.arrow, ascii_only=style.ascii_only)


def _compile(case: CaseFigures, style: Style) -> str:
    cold = case.compile_cold_ns
    if cold is None or cold < LEAST_COMPILE_NS:
        return ""
    return format_seconds(cold / 1e9, 3, ascii_only=style.ascii_only)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _texts(title: str, texts: Sequence[str], *, right: bool = False) -> Column:
    return Column(title, tuple(Cell(text) for text in texts), right)


def _aligned(
    rows: Sequence[tuple[str, ...]], roles: Sequence[str] | None = None
) -> tuple[Cell, ...]:
    """Cells of several parts, one blank between; the first on the right, the others on the left."""
    widths = [max(cells(part) for part in parts) for parts in zip(*rows, strict=True)]
    made = []
    for row in rows:
        parts = [
            pad(part, width, right=index == 0)
            for index, (part, width) in enumerate(zip(row, widths, strict=True))
            if width
        ]
        made.append(" ".join(parts).rstrip() if any(row) else "")
    return tuple(
        Cell(text, role) for text, role in zip(made, roles or [""] * len(made), strict=True)
    )


def _joined(tables: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for index, table in enumerate(tables):
        lines += ["", *table] if index else table
    return lines
