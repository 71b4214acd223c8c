"""The two tables of a run: suites × variants, and the cases."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, ne
from typing import Any

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    Level,
    Mean,
    Outcome,
    PassRate,
    Run,
    RunView,
    SuiteSummary,
    Verdict,
)
from torchstone.records.format import (
    COARSE,
    FINE,
    count,
    fewer_decimals,
    format_bytes,
    format_change,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    ratio_decimals,
)
from torchstone.show.evidence import in_database, run_advice
from torchstone.show.listing import when
from torchstone.show.rows import (
    LEAST_COMPILE_NS,
    VERDICT_ROLES,
    allocator_title,
    processor_name,
    revision,
)
from torchstone.show.table import Cell, Column, Style, cells, clip, pack, pad, wrap

# A run in words and counts: what terminal, Markdown and the live display all say of it.


HERE = "here"
LOST = "*"
_SETTINGS = ("mode", "precision", "device", "threads", "allocator")
GroupKey = tuple[str, str, str, str, str, str, int, str]


def group_of(key: CaseKey | SuiteSummary) -> GroupKey:
    """What cases of one row of the suites' table have in common."""
    named = (key.suite, key.scale, key.mode, key.precision, key.variant, key.device)
    return (*named, key.threads, key.allocator)


def suite_of(key: CaseKey | SuiteSummary) -> str:
    """`huggingface@small`."""
    return f"{key.suite}@{key.scale}" if key.scale else key.suite


def short_names(key: CaseKey) -> list[str]:
    """The case's name, each time a little shorter: what is not the model's name goes first."""
    precision = "" if key.precision == "fp32" else f"{key.precision} "
    settings = f"{key.mode} {precision}{key.variant}"
    scale = suite_of(key).removeprefix(key.suite)
    return [
        key.name,
        f"{key.suite}/{key.model}{scale} {settings}",
        f"{key.suite}/{key.model} {settings}",
        f"{key.model} {settings}",
        f"{key.model} {key.variant}",
        key.model,
    ]


@dataclass(frozen=True)
class Labels:
    """How groups are called: settings that all cases share are said once, in the heading."""

    varying: frozenset[str]

    @classmethod
    def of(cls, keys: Iterable[CaseKey | SuiteSummary]) -> Labels:
        """The settings in which these differ."""
        known = list(keys)
        return cls(frozenset(s for s in (*_SETTINGS, "scale") if _differs(known, s)))

    def group(self, key: CaseKey | SuiteSummary) -> str:
        """`huggingface@small training inductor`: suite, what varies, variant."""
        return f"{suite_of(key)} {self.settings(key)}"

    def settings(self, key: CaseKey | SuiteSummary) -> str:
        """`training inductor`: the label without the suite."""
        before, after = (
            [_setting(key, name) for name in half if name in self.varying]
            for half in (_SETTINGS[:2], _SETTINGS[2:])
        )
        return " ".join([*before, key.variant, *after])

    def within_suite(self, key: CaseKey | SuiteSummary) -> str:
        """`full training inductor`: the same with the scale, where nothing beside it says that."""
        scale = key.scale if "scale" in self.varying else ""
        return f"{scale} {self.settings(key)}".lstrip()

    def shared(self, key: CaseKey | SuiteSummary) -> list[str]:
        """The settings that are not in the labels."""
        return [text for s in _SETTINGS if s not in self.varying if (text := _setting(key, s))]


def _differs(keys: Sequence[CaseKey | SuiteSummary], name: str) -> bool:
    """Looks no further than the first two that differ: there may be thousands."""
    values = map(attrgetter(name), keys)
    first = next(values, None)
    return any(map(ne, values, repeat(first)))


def _setting(key: CaseKey | SuiteSummary, name: str) -> str:
    if name == "allocator":
        return allocator_title(key.allocator)
    if name != "threads":
        return str(getattr(key, name))
    return count(key.threads, "thread") if key.threads else ""


@dataclass(frozen=True)
class Tally:
    """How many cases ended in which way. The counts add up to `planned`."""

    planned: int
    outcomes: Mapping[Outcome, int]

    @classmethod
    def of(cls, view: RunView) -> Tally:
        """Every planned case, counted once."""
        found = Counter(case.outcome for case in view.complete)
        return cls(len(view.run.plan), {o: found[o] for o in Outcome if found[o]})

    @property
    def not_run(self) -> int:
        """Planned but not measured (yet)."""
        return self.outcomes.get(Outcome.NOT_RUN, 0)

    @property
    def parts(self) -> list[str]:
        """`44 of 48 cases done`, then each outcome with its count."""
        done = f"{self.planned - self.not_run} of {count(self.planned, 'case')} done"
        return [done, *(f"{number} {o.words}" for o, number in self.outcomes.items())]


def title(run: Run) -> str:
    """`run 1jz3k nightly`."""
    return " ".join(part for part in ("run", run.id, run.label) if part)


def circumstances(run: Run) -> list[str]:
    """Machine, libraries, revision and origin."""
    parts = (
        processor_name(run.machine),
        f"torch {run.torch}" if run.torch else "",
        *(f"{name} {version}" for name, version in sorted(run.packages.items()) if version),
        revision(run.git),
        f"torchstone {run.version}" if run.version else "",
        "" if run.origin == HERE else f"from {run.origin}",
    )
    return [part for part in parts if part]


def subject(view: RunView) -> list[str]:
    """Title, date, tier and the settings that all cases share."""
    run, labels = view.run, labels_of(view)
    shared = labels.shared(run.plan[0].key) if run.plan else []
    parts = (title(run), when(run.created), f"{run.tier} tier" if run.tier else "", *shared)
    return [part for part in parts if part]


def labels_of(view: RunView) -> Labels:
    """The labels of a run's groups."""
    return Labels.of(case.key for case in view.run.plan)


def resume_command(view: RunView, db: str = "") -> str:
    """How to go on with a run that is not complete; empty where it is, or came from elsewhere."""
    run = view.run
    if run.origin != HERE or not Tally.of(view).not_run:
        return ""
    return in_database(f"torchstone run --resume {run.id}", db)


def grouped(cases: Iterable[CaseMetrics]) -> dict[GroupKey, list[CaseMetrics]]:
    """Cases by group, groups and cases in the order in which they come."""
    found: dict[GroupKey, list[CaseMetrics]] = {}
    for case in cases:
        found.setdefault(group_of(case.key), []).append(case)
    return found


def failures(view: RunView) -> list[CaseMetrics]:
    """Cases that ran and did not end well."""
    return [case for case in view.complete if case.outcome.failed]


def by_reason(view: RunView, outcome: Outcome) -> list[tuple[str, list[CaseMetrics]]]:
    """Cases of one outcome by their reason, the commonest first."""
    found: dict[str, list[CaseMetrics]] = {}
    for case in view.complete:
        if case.outcome is outcome:
            found.setdefault(case.reason or "no reason given", []).append(case)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def model_names(cases: Sequence[CaseMetrics], most: int) -> tuple[list[str], int]:
    """`suite/model` of the cases, each once; and how many more there are than `most`."""
    names = list(dict.fromkeys(f"{case.key.suite}/{case.key.model}" for case in cases))
    return names[:most], max(0, len(names) - most)


def only_variants(view: RunView, cases: Sequence[CaseMetrics]) -> list[str]:
    """The variants of these cases, where they are not all variants of the run."""
    found = list(dict.fromkeys(case.key.variant for case in cases))
    return found if set(found) != {one.key.variant for one in view.run.plan} else []


def check_counts(view: RunView) -> dict[str, int]:
    """In how many cases each rule found something worse than a note, the commonest first."""
    counts = Counter(rule for case in view.complete for rule in case.checks)
    return dict(counts.most_common())


def failure_text(case: CaseMetrics) -> str:
    """`crash (inductor): first call: the worker died`."""
    arm = case.failed_arm
    if arm and arm != case.key.variant:
        arm += ", the baseline"
    return case.outcome.words + (f" ({arm})" if arm else "") + f": {case.reason}".rstrip(": ")


def command_text(case: CaseMetrics) -> str:
    """The command as a shell takes it."""
    return shlex.join(case.command)


def check_mark(case: CaseMetrics, cross: str = "✗") -> str:
    """A sign where a rule warns or fails."""
    return {Level.WARN: "!", Level.FAIL: cross}.get(case.worst_check, "")


def run_verdicts(view: RunView) -> dict[CaseKey, Verdict | None]:
    """The verdicts held against each other: many cases find differences that are not there."""
    from torchstone.stats import verdicts  # numpy comes with it: only when it is wanted

    cases = view.complete
    return {case.key: found for case, found in zip(cases, verdicts(cases), strict=True)}


def case_verdict(case: CaseMetrics, corrected: Verdict | None, cross: str = "✗") -> tuple[str, str]:
    """The outcome where the case failed, else its verdict in this run; and its role.

    A star marks a verdict that the case has by itself and loses among the others; other signs,
    that a check warns or fails.
    """
    if case.outcome is not Outcome.OK:
        return case.outcome.words, "fail"
    mark = check_mark(case, cross)
    role = "fail" if case.worst_check is Level.FAIL else "doubt"
    if corrected is None:
        return ("ok", "good") if case.foreign else (f"no verdict {mark}".rstrip(), role)
    lost = "" if corrected is case.verdict else LOST
    role = role if case.worst_check is Level.FAIL else VERDICT_ROLES[corrected]
    return " ".join(part for part in (corrected.value, lost, mark) if part), role


def group_words(cases: Sequence[CaseMetrics], verdicts: Mapping[CaseKey, Verdict | None]) -> str:
    """`3 faster, 1 same, 1 crash`: how the cases of a group ended."""
    passed = Counter(verdicts[case.key] for case in cases if case.outcome is Outcome.OK)
    ended = Counter(case.outcome for case in cases if case.outcome is not Outcome.OK)
    words = [f"{passed[verdict]} {verdict.value}" for verdict in Verdict if passed[verdict]]
    words += [f"{passed[None]} ok"] if passed[None] else []
    return ", ".join([*words, *(f"{n} {outcome.words}" for outcome, n in ended.items())])


def lost_note(view: RunView, verdicts: Mapping[CaseKey, Verdict | None]) -> str:
    """What the star means, where there is one."""
    ok = [case for case in view.complete if case.outcome is Outcome.OK]
    if not any(case.verdict is not verdicts[case.key] for case in ok):
        return ""
    return (
        f"{LOST} different by itself, but {count(len(ok), 'case')} together make such a "
        "difference likely by chance"
    )


def speedup_words(
    value: float | None,
    interval: tuple[float, float] | None,
    decimals: int = COARSE,
    *,
    ascii_only: bool = False,
) -> tuple[str, str]:
    """`1.32×` and `1.29–1.35`; empty where there is none."""
    if value is None or not math.isfinite(value):
        return "", ""
    ends = interval if interval and all(0 < end < math.inf for end in interval) else None
    decimals = fewer_decimals(value, decimals)
    return (
        format_ratio(value, decimals, ascii_only=ascii_only),
        format_interval(ends, decimals, ascii_only=ascii_only),
    )


def case_speedup(case: CaseMetrics, *, ascii_only: bool = False) -> tuple[str, str]:
    """The speed-up of a case that passed: a wrong answer has no speed."""
    if case.outcome is not Outcome.OK:
        return "", ""
    return speedup_words(case.speedup, case.interval, ascii_only=ascii_only)


def ratio_word(value: float | None, *, ascii_only: bool = False) -> str:
    """`1.05×`, or nothing."""
    return speedup_words(value, None, ascii_only=ascii_only)[0]


def mean_decimals(means: Iterable[Mean]) -> int:
    """Decimals for all of these: one more where an interval is so narrow that it shows."""
    known = [(mean.value, mean.interval) for mean in means if mean.value is not None]
    fine = any(ratio_decimals(value, ends) > fewer_decimals(value, COARSE) for value, ends in known)
    return FINE if fine else COARSE


def pass_words(passes: PassRate) -> tuple[str, str]:
    """`5/6` and `83 %`; never 100 % where one failed, never 0 % where one passed."""
    share = ""
    if passes.counted:
        percent = round(100 * passes.passed / passes.counted)
        if 0 < passes.passed < passes.counted:
            percent = min(99, max(1, percent))
        share = f"{percent} %"
    return f"{passes.passed}/{passes.counted}", share


def of_words(*means: Mean) -> str:
    """`of 5`: how many cases a mean is over; `of 5 / 4` where two differ."""
    counts = [mean.n for mean in means if mean.value is not None]
    return f"of {' / '.join(str(n) for n in dict.fromkeys(counts))}" if counts else ""


def compile_words(cold: Mean, warm: Mean, *, ascii_only: bool = False) -> str:
    """`12.1 s / 2.30 s`."""
    if cold.value is None:
        return ""
    known = [mean.value for mean in (cold, warm) if mean.value is not None]
    return " / ".join(format_seconds(value / 1e9, 3, ascii_only=ascii_only) for value in known)


def bytes_words(mean: Mean) -> str:
    """`33.1 MiB`, or nothing."""
    return "" if mean.value is None else format_bytes(mean.value)


def verdict_words(summary: SuiteSummary) -> str:
    """`3 faster, 1 slower`: verdicts after the correction for many cases."""
    named = [(v.value, n) for v in Verdict if (n := summary.verdicts.get(v.value, 0))]
    none = [("without", summary.no_verdict)] if named and summary.no_verdict else []
    return ", ".join(f"{n} {name}" for name, n in (*named, *none))


# Figures of another tool in an imported run: under its names, as it wrote them.


SHOWN = ("speedup", "abs_latency", "compilation_latency", "compression_ratio", "accuracy")
"""The columns of the PyTorch dashboard's runner that have a place in a table; the rest is in the
JSON and in an export."""


def foreign_cell(case: CaseMetrics, column: str) -> str:
    """The last text that stands under a column; a number to four digits.

    Other tables than that of performance measure under other settings, so they give no times.
    """
    tables = ("accuracy", "performance") if column == "accuracy" else ("performance",)
    rows = [one for one in case.foreign if one.table in tables]
    found = [text for one in rows if (text := one.cell(column))]
    if not found:
        return ""
    try:
        value = float(found[-1])
    except ValueError:
        return found[-1]
    return f"{value:.4g}" if math.isfinite(value) else found[-1]


def foreign_columns(cases: Sequence[CaseMetrics]) -> list[str]:
    """Which of the columns have something to say about these cases."""
    return [name for name in SHOWN if any(foreign_cell(case, name) for case in cases)]


def foreign_note(cases: Sequence[CaseMetrics]) -> str:
    """Whose figures they are; empty where there are none."""
    tools = dict.fromkeys(one.definition for case in cases for one in case.foreign)
    columns = foreign_columns(cases)
    if not columns:
        return ""
    return (
        f"{', '.join(columns)}: as {', '.join(tools)} wrote and defines them, without interval or "
        "verdict"
    )


def foreign_data(case: CaseMetrics) -> list[dict[str, Any]]:
    """Every row as plain data: where it was read, and its cells by column."""
    return [
        {
            "format": one.format,
            "definition": one.definition,
            "table": one.table,
            "source": one.source,
            "line": one.line,
            "cells": dict(zip(one.columns, one.cells, strict=False)),
        }
        for one in case.foreign
    ]


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
    ordered: list[CaseMetrics] = []
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
    cases: Sequence[CaseMetrics], said: Sequence[tuple[str, str]], width: int, style: Style
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


def _foreign(case: CaseMetrics, name: str, style: Style) -> str:
    return clip(style.safe(foreign_cell(case, name)), FOREIGN_WIDTH, style.glyphs.ellipsis)


def _checks(case: CaseMetrics, style: Style) -> str:
    return clip(", ".join(map(style.safe, case.checks)), CHECKS_WIDTH, style.glyphs.ellipsis)


def _times(case: CaseMetrics, style: Style) -> str:
    base, new = (None if ns is None else ns / 1e9 for ns in (case.base_ns, case.new_ns))
    return format_change(base, new, style.glyphs.arrow, ascii_only=style.ascii_only)


def _compile(case: CaseMetrics, style: Style) -> str:
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
