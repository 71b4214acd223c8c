"""The models of a suite: base and new side by side, failures with their reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from torchstone.records import CaseChange, CaseKey, CaseMetrics, ChangeKind, Outcome, RunComparison
from torchstone.records.metrics import BY_KEY
from torchstone.show.cells import (
    LEVEL_MARKS,
    case_place,
    change_cell,
    mean_cell,
    metric_cell,
    metric_column,
    nanoseconds_cell,
    outcome_cell,
    pass_cell,
    ratio_cell,
    run_title,
    speedup_cell,
    suite_title,
    text_cell,
    threshold_cell,
)
from torchstone.show.page import (
    Cell,
    Choice,
    Controls,
    Facts,
    Field,
    Group,
    Link,
    Page,
    Section,
    Table,
    ends,
    field,
    hidden,
    make_table,
)
from torchstone.show.run import Labels, failure_text
from torchstone.show.table import sanitise
from torchstone.store.case_facts import matcher
from torchstone.web.context import Context, controls, resolve
from torchstone.web.query import ALL, EVERY_S, NotFound, Query, with_defaults
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged
from torchstone.web.views import parts

OPTIONAL = (*parts.SETTINGS, *parts.RUNS_OF)
CONTROLS = ("suite", *OPTIONAL, "base", "new", "across", "common", "filter")
KEY = ("suite", *parts.SETTINGS)
FAILING = "failing"


def suite(source: DataAccess, query: Query) -> Page:
    """Every case of a suite in the new run, beside the base run's."""
    first = resolve(source, query)
    here = Link("suite", "", query.params)
    if first.new is None:
        return Page("suite", "Suite", parts.nothing_stored(), params=query.params)
    known = [one.suite for one in first.groups]
    wanted = query.suite if query.suite not in ("", ALL) else (known[0] if known else "")
    if not wanted:
        raise NotFound("The newest run has no suite.", "Choose another run.")
    context = first
    if wanted != query.suite:
        chosen = with_defaults(replace(first.chosen, suite=wanted))
        context = replace(first, chosen=chosen)
    found = parts.comparison(source, context)
    cases = source.cases(first.new, context.cases)
    table = arranged(_table(cases, found, context), query, here)
    title = suite_title(wanted, "" if context.chosen.scale == ALL else context.chosen.scale)
    return Page(
        "suite",
        title,
        (
            *parts.remarks(found, context),
            *_groups(context, found),
            replace(table, note=_note(table, context, found)),
            *_trends(source, context),
        ),
        lead=_lead(context),
        crumbs=(("Overview", Link("landing", "", context.carried)),),
        controls=_controls(context, here, cases),
        params=query.params,
    )


def _lead(context: Context) -> str:
    base = f"; base: {run_title(context.base)}" if context.base else "; no base to compare with"
    return f"New: {run_title(context.new)}{base}." if context.new else ""


def _controls(context: Context, here: Link, cases: tuple[CaseMetrics, ...]) -> Controls:
    made = controls(context, here, CONTROLS, OPTIONAL)
    seen = sorted({case.outcome.value for case in cases})
    options = [("", "all"), (FAILING, "failing"), *((one, one.replace("_", " ")) for one in seen)]
    outcome = Choice("outcome", "Outcome", context.query.outcome, tuple(options))
    hidden = tuple(item for item in made.hidden if item[0] != "outcome")
    return replace(made, choices=(*made.choices[:-2], outcome, *made.choices[-2:]), hidden=hidden)


def _groups(context: Context, found: RunComparison | None) -> tuple[Section, ...]:
    """The figures of the suite itself, where one group is looked at."""
    fits = matcher(context.cases)
    groups = [one for one in context.groups if fits(parts.group_key(one))]
    if len(groups) != 1:
        return ()
    one = groups[0]
    change = parts.changes_by_group(found).get(parts.group_key(one))
    items = [
        ("Pass rate", pass_cell(one.passes)),
        ("Speed-up, geomean", mean_cell(one.speedup)),
        ("Compile, cold", nanoseconds_cell(one.compile_cold_ns.value)),
        ("Memory ratio", ratio_cell(one.memory_ratio.value)),
        ("Process memory ratio", ratio_cell(one.process_memory_ratio.value)),
    ]
    if change is not None:
        items.insert(2, ("Against base", parts.against_cell(change)))
        items.insert(3, ("Threshold", threshold_cell(change.threshold)))
        both = f"{change.paired} pass in both, of {change.common} in both"
        items.insert(4, ("Compared over", Cell(change.paired, both)))
        if change.drift is not None:
            moved = Cell(change.drift, f"{(change.drift - 1) * 100:+.1f} %")
            items.append(("Baselines moved by", moved))
    return (Facts("group", "", tuple(items)),)


class _Line(NamedTuple):
    """A case as the new run has it, and how it moved."""

    key: CaseKey
    now: CaseMetrics | None
    change: CaseChange | None
    to: Link

    @property
    def case(self) -> CaseMetrics:
        return self.now or CaseMetrics(self.key, Outcome.NOT_RUN, "not in the new run")

    @property
    def base(self) -> CaseMetrics | None:
        return self.change.base if self.change else None


def _table(cases: tuple[CaseMetrics, ...], found: RunComparison | None, context: Context) -> Table:
    fits = matcher(context.cases)
    compared = found is not None and not found.refused
    changes = {c.key: c for c in (found.cases if found else ()) if fits(c.key)}
    now = {case.key: case for case in cases}
    keys = list(dict.fromkeys((*now, *changes)))
    if context.query.only_common and compared:
        keys = [key for key in keys if key in changes and changes[key].in_both]
    keys = [key for key in keys if _wanted(now.get(key), context.query.outcome)]
    labels = Labels.of(keys)
    lines = [
        _Line(key, now.get(key), changes.get(key), case_place(key, context.carried)) for key in keys
    ]
    one = len({labels.within_suite(key) for key in keys}) <= 1
    without = {"settings"} if one else set()
    without |= set() if compared else {"base_speedup", "change", "moved"}
    without |= {"reason"} if all(_passes(now.get(key)) for key in keys) else set()
    empty = "No case fits the choices above."
    fields = _fields(labels, context)
    return make_table("models", "Models", fields, lines, without=without, empty=empty)


def _fields(labels: Labels, context: Context) -> tuple[Field[_Line], ...]:
    speedup, step, memory = "Speed-up", "Time of a step", "Memory"
    peak = "Tensors alive at the peak of a step"

    def metric(key: str, name: str, **changes: Any) -> Field[_Line]:
        column = metric_column(key, name, **changes)
        return Field(column, lambda r: metric_cell(r.case, key, r.to))

    return (
        field("model", "Model", lambda r: text_cell(r.key.model, r.to)),
        field("settings", "Settings", lambda r: text_cell(labels.within_suite(r.key))),
        field("outcome", "Outcome", _outcome),
        field(
            "base_speedup",
            "Base",
            lambda r: parts.base_cell(r.base, context),
            True,
            "×",
            group=speedup,
        ),
        field("speedup", "New", lambda r: speedup_cell(r.case, r.to), True, "×", group=speedup),
        field(
            "change",
            "Change",
            _change,
            True,
            "×",
            group=speedup,
            help="New over base: above 0 % is good",
        ),
        field(
            "moved",
            "Moved",
            lambda r: parts.moved_cell(r.change),
            help="Which side's time explains the change",
        ),
        metric("base_ns", "eager", group=step),
        metric("new_ns", "compiled", group=step),
        metric("compile_cold_ns", "compile_cold", title="Compile", help="Cold compile time"),
        metric("base_tensor_bytes", "", title="Eager", group=memory, help=peak),
        metric("new_tensor_bytes", "", title="Compiled", group=memory, help=peak),
        metric("memory_ratio", "", title="Ratio", group=memory, help="Eager over compiled"),
        metric("graph_breaks", "", title="Breaks", help="Graph breaks"),
        field("checks", "Checks", lambda r: _checks(r.case)),
        field("reason", "Reason", _reason),
        *_hidden(),
    )


def _passes(case: CaseMetrics | None) -> bool:
    return case is not None and case.outcome is Outcome.OK


def _wanted(case: CaseMetrics | None, outcome: str) -> bool:
    if not outcome:
        return True
    if case is None:
        return False
    if outcome == FAILING:
        return case.outcome.failed
    return case.outcome.value == outcome


def _hidden() -> tuple[Field[_Line], ...]:
    return (
        *parts.key_fields(KEY, lambda r: r.key),
        hidden("kind", "Kind of change", lambda r: r.change.kind.value if r.change else "", False),
        hidden(
            "base_outcome",
            "Outcome in base",
            lambda r: r.base.outcome.value if r.base else "",
            False,
        ),
        *ends("speedup", "Speed-up", lambda r: parts.interval_of(r.case)),
        *ends("base_speedup", "Base's speed-up", lambda r: parts.interval_of(r.base)),
        *parts.change_fields(lambda r: r.change),
        hidden(
            "threshold",
            "Smallest change believed",
            lambda r: r.change.threshold if r.change else None,
        ),
        hidden(
            "compile_warm",
            "Compile, warm",
            lambda r: BY_KEY["compile_warm_ns"].public(r.case),
            unit="s",
        ),
        hidden("result_id", "Result", lambda r: r.case.result_id, False),
    )


def _reason(line: _Line) -> Cell:
    failed = line.now is not None and line.now.outcome is not Outcome.OK
    return text_cell(failure_text(line.case) if failed else "", longest=90)


def _change(line: _Line) -> Cell:
    if line.change is None:
        return Cell(None, "", line.to)
    return change_cell(line.change.speedup, line.change.verdict, line.to, line.change.threshold)


def _outcome(line: _Line) -> Cell:
    cell = outcome_cell(line.now)
    marks = {ChangeKind.NEWLY_FAILING: "fail", ChangeKind.NEWLY_PASSING: "better"}
    if line.change is not None and line.change.kind in marks:
        return cell._replace(mark=marks[line.change.kind], detail=line.change.kind.value)
    return cell


def _checks(case: CaseMetrics) -> Cell:
    names = ", ".join(sanitise(name) for name in case.checks)
    return Cell(names, names, mark=LEVEL_MARKS[case.worst_check] if names else "")


def _note(table: Table, context: Context, found: RunComparison | None) -> str:
    left = f"{len(table.rows)} of {table.total} cases. " if table.more else ""
    common = "Only cases that both runs have. " if context.query.only_common else ""
    return left + common + parts.threshold_words(found, matcher(context.cases))


def _trends(source: DataAccess, context: Context) -> tuple[Section, ...]:
    points = source.points(context.history, EVERY_S[context.chosen.granularity])
    charts = parts.trend_charts(points, context.carried)
    note = parts.newest_only(points).strip()
    return (Group("Trends", charts, grid=True, note=note),) if points else ()
