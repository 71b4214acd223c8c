"""Two runs against each other: suites, then every case, with what newly fails first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from heapq import nlargest
from typing import Any

from torchstone.records import (
    CaseChange,
    CaseMetrics,
    ChangeKind,
    GroupChange,
    Mean,
    Outcome,
    Ratio,
    RunComparison,
    Verdict,
)
from torchstone.records.format import format_percent
from torchstone.show.cells import (
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
from torchstone.show.charts import IntervalRow
from torchstone.show.comparison import VERDICT_ORDER
from torchstone.show.evidence import compare_advice
from torchstone.show.page import (
    Cell,
    Facts,
    Field,
    Item,
    Link,
    Notice,
    Page,
    Picture,
    Section,
    ends,
    field,
    hidden,
    make_table,
)
from torchstone.show.rows import VERDICT_MARKS
from torchstone.show.run import Labels
from torchstone.show.table import sanitise
from torchstone.store.case_facts import matcher
from torchstone.web.context import Context, controls, resolve
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess, Identity
from torchstone.web.tables import arranged
from torchstone.web.views import parts
from torchstone.web.views.headline import since_base

OPTIONAL = ("suite", *parts.SETTINGS)
CONTROLS = ("base", "new", *OPTIONAL, "base_variant", "across", "common", "filter")
TIMES: Mapping[str, Any] = {"number": True, "unit": "×"}
FOREST = 40
"""Rows of the picture; the table has all."""
_KIND_RANKS = {ChangeKind.NEWLY_FAILING: 0, ChangeKind.NEWLY_PASSING: 1, ChangeKind.PAIRED: 2}
_VERDICT_RANKS = {verdict: rank for rank, verdict in enumerate(VERDICT_ORDER)}


def compare(source: DataAccess, query: Query) -> Page:
    """The two chosen runs; without a choice, the newest and the one before."""
    context = resolve(source, query)
    here = Link("compare", "", query.params)
    form = controls(context, here, CONTROLS, OPTIONAL)
    if context.new is None:
        return Page("compare", "Compare", parts.nothing_stored(), params=query.params)
    found = parts.comparison(source, context)
    if found is None:
        text = "There is no other run to compare with yet."
        if context.base is not None:
            text = "Base and new are the same run; choose another, or two variants."
        said = (Notice(text), *parts.remarks(found, context))
        return Page("compare", "Compare", said, controls=form, params=query.params)
    sections: tuple[Section, ...] = (_runs(found), *parts.remarks(found, context))
    if not found.refused:
        if parts.variants(query) is None:  # of two variants, suites have no such lists
            sections += since_base(context, found)
        sections += _compared(found, context, here)
    return Page(
        "compare",
        "Compare",
        sections,
        lead=f"{run_title(found.new)} against {run_title(found.base)}.",
        controls=form,
        params=query.params,
        actions=parts.outside_actions(source, found.new, found.base),
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
        cases = [one for one in cases if one.in_both]
    cases.sort(key=_rank)
    labels = Labels.of(one.key for one in cases)
    table = make_table(
        "cases",
        "Cases",
        _case_fields(labels, context),
        cases,
        empty="No case fits the choices.",
        note=compare_advice(replace(found, cases=tuple(cases))),
        same=(Identity(found), asked, query.only_common, query.filter, query.sort),
    )
    note = parts.threshold_words(found, fits) + parts.cost_words(found)
    fields = _group_fields(Labels.of(one.key for one in groups), context)
    return (
        make_table("groups", "Suites", fields, groups, note=note),
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
            verdict=VERDICT_MARKS[one.verdict] if one.verdict else "unsure",
        )
        for one, ratio in sorted(most, key=lambda item: item[1].value)
    )
    verdicts = Counter(one.verdict for one, _ in moved)
    better, worse = verdicts[Verdict.FASTER], verdicts[Verdict.SLOWER]
    note = (
        f"The {len(rows)} of {len(moved)} cases that moved most, the worst first; above 1 the new "
        f"run is better. Of all {len(moved)}: {better} better, {worse} worse."
    )
    return (Picture("changes", "Change of the speed-up", rows, note),) if rows else ()


def _ends(ratio: Ratio) -> tuple[float | None, float | None]:
    return ratio.interval or (None, None)


def _rank(change: CaseChange) -> tuple[int, int]:
    return _KIND_RANKS.get(change.kind, 3), _VERDICT_RANKS[change.verdict]


def _group_fields(labels: Labels, context: Context) -> tuple[Field[GroupChange], ...]:
    means = "Speed-up, common cases"

    def to(one: GroupChange) -> Link:
        return parts.suite_place(one.key, context.carried)

    def named(one: GroupChange) -> Cell:
        cell = text_cell(labels.settings(one.key), to(one))
        return cell._replace(detail=suite_title(one.key.suite, one.key.scale))

    return (
        field("settings", "Variant", named),
        hidden("suite", "Suite", lambda g: suite_title(g.key.suite, g.key.scale), number=False),
        field(
            "paired",
            "Pass",
            lambda g: _passing(g, to(g)),
            True,
            help="In both runs, of the cases that both have",
        ),
        field("verdicts", "Cases", lambda g: _kinds(g, to(g))),
        field(
            "base_speedup",
            "Base",
            lambda g: without_detail(mean_cell(g.base_common, _suite_of_base(g, context))),
            group=means,
            **TIMES,
        ),
        field("new_speedup", "New", lambda g: mean_cell(g.new_common, to(g)), group=means, **TIMES),
        field(
            "change",
            "Change",
            lambda g: change_cell(g.speedup, g.verdict, to(g), g.threshold),
            True,
            "×",
            group=means,
        ),
        field(
            "threshold",
            "Noise limit",
            lambda g: threshold_cell(g.threshold, to(g)),
            True,
            help="A smaller change of the mean is noise",
        ),
        *_cost_columns("The arm's tensors at a step's peak, new over base", to),
        field(
            "drift",
            "Baselines",
            lambda g: ratio_cell(g.drift, to(g)),
            True,
            "×",
            help="How much slower the baselines were",
        ),
        hidden("common", "In both", lambda g: g.common),
        *ends("base_speedup", "Base's speed-up", lambda g: g.base_common.interval),
        *ends("new_speedup", "New speed-up", lambda g: g.new_common.interval),
        *parts.change_fields(_group),
        *parts.cost_fields(_group),
    )


def _passing(change: GroupChange, to: Link) -> Cell:
    cell = Cell(change.paired, f"{change.paired:,}/{change.common:,}", to)
    return parts.pass_level(cell, change.new.passes) if change.new else cell


def _group(change: GroupChange) -> GroupChange:
    return change


def _case(change: CaseChange) -> CaseChange:
    return change


def _kinds(change: GroupChange, to: Link) -> Cell:
    """How many cases are of which kind, and verdict."""
    paired = ChangeKind.PAIRED.value
    known = [(name, n) for name, n in change.counts.items() if n and name != paired]
    bad = {ChangeKind.NEWLY_FAILING.value: "fail", Verdict.SLOWER.value: "worse"}
    known.sort(key=lambda item: [*bad, item[0]].index(item[0]))  # the bad ones first
    said = [f"{n} {name}" for name, n in known]
    mark = next((bad[name] for name, _ in known if name in bad), "")
    shown = 1 if mark else 0
    return Cell(", ".join(said), ", ".join(said[:shown]), to, mark, ", ".join(said[shown:]))


def _cost_columns(peak: str, to: Callable[[Item], Link]) -> tuple[Field[Item], ...]:
    """Compile time and memory, marked where they moved."""

    def cost(name: str, title: str, help: str) -> Field[Item]:
        def cell(change: Any) -> Cell:
            found = getattr(change, name)
            value = found.value if isinstance(found, Mean) else found
            return ratio_cell(value, to(change), parts.cost_mark(name, change))

        return field(name, title, cell, True, "×", help=help)

    compiled = cost("compile_cold", "Compile", "Cold compile time, new over base")
    return compiled, cost("memory", "Memory", peak)


def _suite_of_base(change: GroupChange, context: Context) -> Link:
    """The base run's own page of the suite, under the variant that it was compared by."""
    variants = parts.variants(context.query)
    key = replace(change.key, variant=variants[0]) if variants else change.key
    return parts.suite_place(key, context.to_base)


def _kind(change: CaseChange, to: Link) -> Cell:
    """What became of it; how the new run's ended, where it did not pass."""
    marks = {
        ChangeKind.NEWLY_FAILING: "fail",
        ChangeKind.NEWLY_PASSING: "better",
        ChangeKind.PAIRED: "",
    }
    ended = outcome_cell(change.new) if change.new and not _new(change) else Cell()
    return Cell(
        change.kind.value,
        "both pass" if change.paired else change.kind.value,
        to,
        marks.get(change.kind, "quiet"),
        ended.text,
        ended.title,
    )


def _new(change: CaseChange) -> CaseMetrics | None:
    """The new run's, where it passes."""
    return change.new if change.new and change.new.outcome is Outcome.OK else None


def _case_fields(labels: Labels, context: Context) -> tuple[Field[CaseChange], ...]:
    speedup, times = "Speed-up", "Time against base"

    place = cache(lambda key: case_place(key, context.carried))  # seven cells of a row lead there

    def to(change: CaseChange) -> Link:
        return place(change.key)

    def of_new(change: CaseChange) -> Cell:
        new = _new(change)
        return speedup_cell(new, to(change)) if new else Cell()

    def ratio(key: str, title: str, of: Callable[[CaseChange], float | None]) -> Field[CaseChange]:
        return field(key, title, lambda c: ratio_cell(of(c), to(c)), True, "×", group=times)

    return (
        *parts.named_fields(lambda c: c.key, labels, to),
        field("kind", "Kind", lambda c: _kind(c, to(c))),
        field(
            "base_speedup",
            "Base",
            lambda c: parts.base_cell(c.base, context),
            True,
            "×",
            group=speedup,
        ),
        field("new_speedup", "New", of_new, True, "×", group=speedup),
        field(
            "change",
            "Change",
            lambda c: change_cell(c.speedup, c.verdict, to(c), c.threshold),
            True,
            "×",
            group=speedup,
        ),
        field("moved", "Cause", parts.moved_cell, help="Which side's time explains the change"),
        ratio("baseline_time", "Eager", lambda c: c.baseline_time),
        ratio("arm_time", "Compiled", lambda c: c.arm_time),
        *_cost_columns("New over base", to),
        field("outcome", "Outcome, new", lambda c: outcome_cell(c.new), shown=False),
        *parts.key_fields(parts.SETTINGS, lambda c: c.key),
        *ends("base_speedup", "Base's speed-up", lambda c: parts.interval_of(c.base)),
        *ends("new_speedup", "New speed-up", lambda c: parts.interval_of(_new(c))),
        *parts.change_fields(_case),
        hidden("alone", "Verdict by itself", lambda c: c.alone.value if c.alone else "", False),
        hidden("threshold", "Noise limit", lambda c: c.threshold),
        hidden(
            "deciding_budget_s", "Budget that would decide", lambda c: c.deciding_budget_s, unit="s"
        ),
        *parts.cost_fields(_case),
    )
