"""Two runs against each other: suites, then every case, with what newly fails first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from heapq import nlargest

from torchstone.records import CaseChange, GroupChange, Outcome, Ratio, RunComparison
from torchstone.records.format import format_percent
from torchstone.show.charts import IntervalRow
from torchstone.show.compare_terminal import VERDICT_ORDER
from torchstone.show.evidence import compare_advice
from torchstone.show.run_table import Labels
from torchstone.show.table import sanitise
from torchstone.store.case_facts import matcher
from torchstone.web.cells import (
    VERDICT_MARKS,
    LazyRows,
    arranged,
    case_place,
    change_cell,
    mean_cell,
    outcome_cell,
    ratio_cell,
    run_cell,
    run_title,
    speedup_cell,
    suite_title,
    text_cell,
    threshold_cell,
    without_detail,
)
from torchstone.web.context import Context, controls, resolve
from torchstone.web.page import Cell, Column, Facts, Link, Notice, Page, Picture, Section, Table
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess, Identity
from torchstone.web.views import parts

OPTIONAL = ("suite", *parts.SETTINGS)
CONTROLS = ("base", "new", *OPTIONAL, "base_variant", "across", "common", "filter")
NEW_ENDS = (
    Column("new_speedup_low", "New speed-up, low end", True, "×", shown=False),
    Column("new_speedup_high", "New speed-up, high end", True, "×", shown=False),
)
GROUPS = (
    Column("suite", "Suite"),
    Column("settings", "Settings"),
    Column("paired", "Pass", True, help="In both runs, of the cases that both have"),
    Column("base_speedup", "Base", True, "×", group="Speed-up, common cases"),
    Column("new_speedup", "New", True, "×", group="Speed-up, common cases"),
    Column("change", "Change", True, "×", group="Speed-up, common cases"),
    Column("threshold", "Threshold", True, help="A smaller change of the mean is not believed"),
    Column("compile_cold", "Compile", True, "×", help="Cold compile time, new over base"),
    Column(
        "memory", "Memory", True, "×", help="The arm's tensors at a step's peak, new over base"
    ),
    Column("drift", "Baselines", True, "×", help="How much slower the baselines were"),
    Column("verdicts", "Cases"),
    Column("common", "In both", True, shown=False),
    *parts.BASE_ENDS,
    *NEW_ENDS,
    *parts.CHANGE_ENDS,
    *parts.COST_MARKS,
)
CASES = (
    *parts.NAMED,
    Column("kind", "Kind"),
    Column("base_speedup", "Base", True, "×", group="Speed-up"),
    Column("new_speedup", "New", True, "×", group="Speed-up"),
    Column("change", "Change", True, "×", group="Speed-up"),
    Column("moved", "Moved", help="Which side's time explains the change"),
    Column("baseline_time", "Baseline", True, "×", group="Time, new over base"),
    Column("arm_time", "Arm", True, "×", group="Time, new over base"),
    Column("compile_cold", "Compile", True, "×", help="Cold compile time, new over base"),
    Column("memory", "Memory", True, "×", help="New over base"),
)
HIDDEN = (
    Column("outcome", "Outcome, new", shown=False),
    *parts.columns(parts.SETTINGS),
    *parts.BASE_ENDS,
    *NEW_ENDS,
    *parts.CHANGE_ENDS,
    Column("alone", "Verdict by itself", shown=False),
    Column("threshold", "Smallest change believed", True, shown=False),
    Column("deciding_budget_s", "Budget that would decide", True, "s", shown=False),
    *parts.COST_MARKS,
)
FOREST = 40
"""Rows of the picture; the table has all."""
ORDER = ("newly failing", "newly passing", "paired", "failing", "only in base", "only in new")
_KIND_RANKS = {kind: rank for rank, kind in enumerate(ORDER)}
_VERDICT_RANKS = {verdict: rank for rank, verdict in enumerate(VERDICT_ORDER)}


def compare(source: DataAccess, query: Query) -> Page:
    """The two chosen runs; without a choice, the newest and the one before."""
    context = resolve(source, query, modes=False)
    here = Link("compare", "", query.params)
    form = controls(context, here, CONTROLS, OPTIONAL)
    if context.new is None:
        return Page("compare", "Compare", parts.nothing_stored(), params=query.params)
    found = parts.comparison(source, context)
    if found is None:
        text = "There is no other run like this one yet; choose a base."
        if context.base is not None:
            text = "Base and new are the same run; choose another, or two variants."
        said = (Notice(text), *parts.remarks(found, context))
        return Page("compare", "Compare", said, controls=form, params=query.params)
    sections: tuple[Section, ...] = (_runs(found), *parts.remarks(found, context))
    if not found.refused:
        sections += _compared(found, context, here)
    return Page(
        "compare",
        "Compare",
        sections,
        lead=f"{run_title(found.new)} against {run_title(found.base)}.",
        controls=form,
        params=query.params,
    )


def _runs(found: RunComparison) -> Facts:
    items = [
        ("Base", run_cell(found.base, run_title(found.base))),
        ("New", run_cell(found.new, run_title(found.new))),
        ("Torch", Cell(None, _pair(found.base.torch, found.new.torch))),
    ]
    if found.drift is not None:
        spread = f" ± {format_percent(found.drift_spread)}" if found.drift_spread else ""
        told = f"{(found.drift - 1) * 100:+.1f} %{spread} over {found.drift_of}"
        items.append(("Baselines moved by", Cell(found.drift, told)))
    return Facts("runs", "", tuple(items))


def _pair(base: str, new: str) -> str:
    return new if base == new else f"{base} → {new}"


def _compared(found: RunComparison, context: Context, here: Link) -> tuple[Section, ...]:
    asked, query = context.cases, context.query
    fits, group_fits = matcher(asked), matcher(replace(asked, model=""))
    groups = [one for one in found.groups if group_fits(one.key)]
    cases = [one for one in found.cases if fits(one.key)]
    if query.only_common:
        cases = [one for one in cases if one.kind not in parts.ALONE]
    cases.sort(key=_rank)
    labels = Labels.of(one.key for one in cases)
    rows = LazyRows(cases, lambda one: _case(one, labels, context))
    table = Table(
        "cases",
        "Cases",
        (*CASES, *HIDDEN),
        rows,
        empty="No case fits the choices.",
        note=compare_advice(replace(found, cases=tuple(cases))),
        same=(Identity(found), asked, query.only_common, query.filter, query.sort),
    )
    of_groups = Labels.of(one.key for one in groups)
    lines = tuple(_group(one, of_groups, context) for one in groups)
    note = parts.threshold_words(found, fits) + parts.cost_words(found)
    return (
        Table("groups", "Suites", GROUPS, lines, note=note, total=len(lines)),
        arranged(table, query, here),
        *_forest(cases, labels),
    )


def _forest(cases: Sequence[CaseChange], labels: Labels) -> tuple[Section, ...]:
    """The cases that moved most, with their intervals."""
    moved = [(one, one.speedup) for one in cases if one.speedup and one.speedup.value > 0]
    most = nlargest(FOREST, moved, key=lambda item: abs(math.log(item[1].value)))
    rows = tuple(
        IntervalRow(
            f"{sanitise(one.key.model)} {sanitise(labels.within_suite(one.key))}",
            ratio.value,
            *_ends(ratio),
            verdict=VERDICT_MARKS[one.verdict] if one.verdict else "doubt",
        )
        for one, ratio in most
    )
    note = f"The {len(rows)} of {len(moved)} cases that moved most; above 1 the new run is better."
    return (Picture("changes", "Change of the speed-up", rows, note),) if rows else ()


def _ends(ratio: Ratio) -> tuple[float | None, float | None]:
    return ratio.interval or (None, None)


def _rank(change: CaseChange) -> tuple[int, int]:
    return _KIND_RANKS.get(change.kind, len(_KIND_RANKS)), _VERDICT_RANKS[change.verdict]


def _group(change: GroupChange, labels: Labels, context: Context) -> tuple[Cell, ...]:
    to = parts.suite_place(change.key, context.carried)
    counted = [f"{n} {name}" for name, n in change.counts.items() if n and name != "paired"]
    bad = change.counts.get("newly failing", 0)
    said = ", ".join(counted)
    marks = _marks(change, change.compile_cold.value, change.memory.value)
    return (
        text_cell(suite_title(change.key.suite, change.key.scale), to),
        text_cell(labels.settings(change.key), to),
        Cell(change.paired, f"{change.paired:,}/{change.common:,}", to),
        without_detail(mean_cell(change.base_common, _suite_of_base(change, context))),
        mean_cell(change.new_common, to),
        change_cell(change.speedup, change.verdict, to, change.threshold),
        threshold_cell(change.threshold, to),
        ratio_cell(change.compile_cold.value, to, marks[0]),
        ratio_cell(change.memory.value, to, marks[1]),
        ratio_cell(change.drift, to),
        Cell(said, said, to, "fail" if bad else ""),
        Cell(change.common),
        *parts.ends(change.base_common.interval),
        *parts.ends(change.new_common.interval),
        *parts.ends(change.speedup.interval if change.speedup else None),
        Cell(change.verdict.value if change.verdict else ""),
        *map(Cell, marks),
    )


def _suite_of_base(change: GroupChange, context: Context) -> Link:
    """The base run's own page of the suite, under the variant that it was compared by."""
    variants = parts.variants(context.query)
    key = replace(change.key, variant=variants[0]) if variants else change.key
    return parts.suite_place(key, context.to_base)


def _marks(change: GroupChange | CaseChange, cold: float | None, peak: float | None) -> list[str]:
    """How compile time and memory moved, where they did."""
    named = (("compile_cold", cold), ("memory", peak))
    return [parts.cost_mark(name, value, change) for name, value in named]


def _kind(change: CaseChange, to: Link) -> Cell:
    """What became of it; how the new run's ended, where it did not pass."""
    marks = {"newly failing": "fail", "newly passing": "better", "paired": ""}
    failed = change.new is not None and change.new.outcome is not Outcome.OK
    ended = outcome_cell(change.new) if failed else Cell()
    return Cell(
        change.kind,
        "both pass" if change.kind == "paired" else change.kind,
        to,
        marks.get(change.kind, "quiet"),
        ended.text,
        ended.title,
    )


def _case(change: CaseChange, labels: Labels, context: Context) -> tuple[Cell, ...]:
    key = change.key
    to = case_place(key, context.carried)
    passed = change.new is not None and change.new.outcome is Outcome.OK
    ratio = change.speedup
    marks = _marks(change, change.compile_cold, change.memory)
    base, new = change.base, change.new if passed else None
    return (
        *parts.named(key, labels, to),
        _kind(change, to),
        parts.base_cell(base, context),
        speedup_cell(new, to) if new else Cell(),
        change_cell(ratio, change.verdict, to, change.threshold),
        parts.moved_cell(change),
        ratio_cell(change.baseline_time, to),
        ratio_cell(change.arm_time, to),
        ratio_cell(change.compile_cold, to, marks[0]),
        ratio_cell(change.memory, to, marks[1]),
        outcome_cell(change.new),
        *parts.cells(key, parts.SETTINGS),
        *parts.ends_of(base),
        *parts.ends_of(new),
        *parts.ends(ratio.interval if ratio else None),
        Cell(change.verdict.value if change.verdict else ""),
        Cell(change.alone.value if change.alone else ""),
        Cell(change.threshold),
        Cell(change.deciding_budget_s),
        *map(Cell, marks),
    )
