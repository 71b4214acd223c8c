"""Two runs against each other: suites, then every case, with what newly fails first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torchstone.records import CaseChange, GroupChange, Outcome, Ratio, RunComparison, Verdict
from torchstone.show.charts import IntervalRow
from torchstone.show.run_words import Labels
from torchstone.show.text import sanitise
from torchstone.show.units import format_percent
from torchstone.store.selecting import matcher
from torchstone.web.cells import (
    VERDICT_MARKS,
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
)
from torchstone.web.context import Context, controls, resolve
from torchstone.web.page import Cell, Column, Facts, Notice, Page, Picture, Place, Section, Table
from torchstone.web.query import Query
from torchstone.web.sources import Source
from torchstone.web.tables import LazyRows, arranged
from torchstone.web.views import keyed, parts

OPTIONAL = ("suite", *keyed.SETTINGS)
CONTROLS = ("base", "new", *OPTIONAL, "base_variant", "across", "common", "filter")
GROUPS = (
    Column("suite", "Suite"),
    Column("settings", "Settings"),
    Column("common", "In both", True, help="Cases that both runs have"),
    Column("paired", "Pass in both", True),
    Column("base_speedup", "Base", True, "×", group="Speed-up, common cases"),
    Column("new_speedup", "New", True, "×", group="Speed-up, common cases"),
    Column("change", "Change", True, "×", group="Speed-up, common cases"),
    Column("verdicts", "Cases"),
    Column("compile_cold", "Compile, cold", True, "×", help="New over base"),
    Column("memory", "Memory", True, "×", help="The arm's peak, new over base"),
    Column("drift", "Baselines", True, "×", help="How much slower the baselines were"),
)
CASES = (
    *keyed.NAMED,
    Column("kind", "Kind"),
    Column("base_speedup", "Base", True, "×", group="Speed-up"),
    Column("new_speedup", "New", True, "×", group="Speed-up"),
    Column("change", "Change", True, "×", group="Speed-up"),
    Column("moved", "Moved", help="Which side's time explains the change"),
    Column("baseline_time", "Baseline", True, "×", group="Time, new over base"),
    Column("arm_time", "Arm", True, "×", group="Time, new over base"),
    Column("compile_cold", "Compile, cold", True, "×", help="New over base"),
    Column("memory", "Memory", True, "×", help="New over base"),
    Column("outcome", "Outcome, new"),
)
HIDDEN = (
    *keyed.columns(keyed.SETTINGS),
    *keyed.CHANGE_ENDS,
    Column("alone", "Verdict by itself", shown=False),
    Column("threshold", "Smallest change believed", True, shown=False),
)
FOREST = 40
"""Rows of the picture; the table has all."""
ORDER = ("newly failing", "newly passing", "paired", "failing", "only in base", "only in new")
_VERDICTS = (Verdict.SLOWER, Verdict.FASTER, Verdict.CANNOT_TELL, Verdict.SAME)


def compare(source: Source, query: Query) -> Page:
    """The two chosen runs; without a choice, the newest and the one before."""
    context = resolve(source, query, modes=False)
    here = Place("compare", "", query.params)
    form = controls(context, here, CONTROLS, OPTIONAL)
    if context.new is None:
        return Page("compare", "Compare", parts.nothing_stored(), params=query.params)
    found = parts.comparison(source, context)
    if found is None:
        text = "There is no other run like this one yet; choose a base."
        if context.base is not None:
            text = "Base and new are the same run; choose another, or two variants."
        return Page("compare", "Compare", (Notice(text),), controls=form, params=query.params)
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


def _compared(found: RunComparison, context: Context, here: Place) -> tuple[Section, ...]:
    asked = context.cases
    fits, group_fits = matcher(asked), matcher(replace(asked, model=""))
    groups = [one for one in found.groups if group_fits(one.key)]
    cases = [one for one in found.cases if fits(one.key)]
    if context.query.only_common:
        cases = [one for one in cases if one.kind == "paired"]
    cases.sort(key=_rank)
    labels = Labels.of(one.key for one in cases)
    rows = LazyRows(cases, lambda one: _case(one, labels, context))
    table = Table("cases", "Cases", (*CASES, *HIDDEN), rows, empty="No case fits the choices.")
    of_groups = Labels.of(one.key for one in groups)
    lines = tuple(_group(one, of_groups, context) for one in groups)
    note = parts.threshold_words(found)
    return (
        Table("groups", "Suites", GROUPS, lines, note=note, total=len(lines)),
        arranged(table, context.query, here),
        *_forest(cases),
    )


def _forest(cases: Sequence[CaseChange]) -> tuple[Section, ...]:
    """The cases that moved most, with their intervals."""
    moved = [(one, one.speedup) for one in cases if one.speedup and one.speedup.value > 0]
    moved.sort(key=lambda item: -abs(math.log(item[1].value)))
    labels = Labels.of(one.key for one, _ in moved)
    rows = tuple(
        IntervalRow(
            f"{sanitise(one.key.model)} {sanitise(labels.settings(one.key))}",
            ratio.value,
            *_ends(ratio),
            verdict=VERDICT_MARKS[one.verdict] if one.verdict else "doubt",
        )
        for one, ratio in moved[:FOREST]
    )
    note = f"The {len(rows)} of {len(moved)} cases that moved most; above 1 the new run is better."
    return (Picture("changes", "Change of the speed-up", rows, note),) if rows else ()


def _ends(ratio: Ratio) -> tuple[float | None, float | None]:
    return ratio.interval or (None, None)


def _rank(change: CaseChange) -> tuple[int, int]:
    kind = ORDER.index(change.kind) if change.kind in ORDER else len(ORDER)
    verdict = _VERDICTS.index(change.verdict) if change.verdict else len(_VERDICTS)
    return kind, verdict


def _group(change: GroupChange, labels: Labels, context: Context) -> tuple[Cell, ...]:
    to = parts.suite_place(change.key, context.carried)
    counted = [f"{n} {name}" for name, n in change.counts.items() if n and name != "paired"]
    bad = change.counts.get("newly failing", 0)
    said = ", ".join(counted)
    return (
        text_cell(suite_title(change.key.suite, change.key.scale), to),
        text_cell(labels.settings(change.key), to),
        Cell(change.common, f"{change.common:,}"),
        Cell(change.paired, f"{change.paired:,}"),
        mean_cell(change.base_common),
        mean_cell(change.new_common),
        change_cell(change.speedup, change.verdict, to),
        Cell(said, said, mark="fail" if bad else ""),
        _cost(change.compile_cold.value, "compile_cold" in change.costs_changed),
        _cost(change.memory.value, "memory" in change.costs_changed),
        _cost(change.drift, False),
    )


def _case(change: CaseChange, labels: Labels, context: Context) -> tuple[Cell, ...]:
    key = change.key
    to = case_place(key, context.carried)
    kinds = {"newly failing": "fail", "newly passing": "better", "paired": ""}
    passed = change.new is not None and change.new.outcome is Outcome.OK
    ratio = change.speedup
    return (
        *keyed.named(key, labels, to),
        Cell(
            change.kind,
            "both pass" if change.kind == "paired" else change.kind,
            mark=kinds.get(change.kind, "quiet"),
        ),
        speedup_cell(change.base) if change.base else Cell(),
        speedup_cell(change.new) if change.new and passed else Cell(),
        change_cell(ratio, change.verdict, to),
        parts.moved_cell(change),
        _cost(change.baseline_time, False),
        _cost(change.arm_time, False),
        _cost(change.compile_cold, "compile_cold" in change.costs_changed),
        _cost(change.memory, "memory" in change.costs_changed),
        outcome_cell(change.new),
        *keyed.cells(key, keyed.SETTINGS),
        *keyed.ends(ratio.interval if ratio else None),
        Cell(change.verdict.value if change.verdict else ""),
        Cell(change.alone.value if change.alone else ""),
        Cell(change.threshold),
    )


def _cost(value: float | None, changed: bool) -> Cell:
    """New over base of something that is better when it is less."""
    if value is None:
        return Cell()
    cell = ratio_cell(value)
    mark = ("worse" if value > 1 else "better") if changed else ""
    return Cell(cell.value, cell.text, mark=mark)
