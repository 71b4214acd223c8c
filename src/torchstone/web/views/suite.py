"""The models of a suite: base and new side by side, failures with their reasons."""

from __future__ import annotations

from dataclasses import replace

from torchstone.records import CaseChange, CaseKey, CaseMetrics, Outcome, RunComparison
from torchstone.show.run_table import Labels, failure_text
from torchstone.show.table import sanitise
from torchstone.store.case_facts import matcher
from torchstone.web.cells import (
    LazyRows,
    arranged,
    case_place,
    change_cell,
    mean_cell,
    nanoseconds_cell,
    number_cell,
    outcome_cell,
    pass_cell,
    ratio_cell,
    run_title,
    speedup_cell,
    suite_title,
    text_cell,
    threshold_cell,
)
from torchstone.web.context import Context, controls, resolve
from torchstone.web.page import (
    Cell,
    Choice,
    Column,
    Controls,
    Facts,
    Group,
    Link,
    Page,
    Section,
    Table,
)
from torchstone.web.query import ALL, EVERY_S, NotFound, Query, with_defaults
from torchstone.web.sources import DataAccess
from torchstone.web.views import parts

OPTIONAL = (*parts.SETTINGS, *parts.RUNS_OF)
CONTROLS = ("suite", *OPTIONAL, "base", "new", "across", "common", "filter")
KEY = ("suite", *parts.SETTINGS)
FAILING = "failing"
COLUMNS = (
    *(column for column in parts.NAMED if column.key != "suite"),
    Column("outcome", "Outcome"),
    Column("base_speedup", "Base", True, "×", group="Speed-up"),
    Column("speedup", "New", True, "×", group="Speed-up"),
    Column(
        "change", "Change", True, "×", group="Speed-up", help="New over base: above 0 % is good"
    ),
    Column("moved", "Moved", help="Which side's time explains the change"),
    Column("eager", "Eager", True, "s", group="Time of a step"),
    Column("compiled", "Compiled", True, "s", group="Time of a step"),
    Column("compile_cold", "Compile", True, "s", help="Cold compile time"),
    Column("memory_ratio", "Memory", True, "×", help="Tensors at the peak, baseline over arm"),
    Column("graph_breaks", "Breaks", True, help="Graph breaks"),
    Column("checks", "Checks"),
    Column("reason", "Reason"),
)
HIDDEN = (
    *parts.columns(KEY),
    Column("kind", "Kind of change", shown=False),
    Column("base_outcome", "Outcome in base", shown=False),
    *parts.SPEEDUP_ENDS,
    *parts.BASE_ENDS,
    *parts.CHANGE_ENDS,
    Column("threshold", "Smallest change believed", True, shown=False),
    Column("compile_warm", "Compile, warm", True, "s", shown=False),
    Column("result_id", "Result", shown=False),
)


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


def _table(cases: tuple[CaseMetrics, ...], found: RunComparison | None, context: Context) -> Table:
    fits = matcher(context.cases)
    compared = found is not None and not found.refused
    changes = {c.key: c for c in (found.cases if found else ()) if fits(c.key)}
    now = {case.key: case for case in cases}
    keys = list(dict.fromkeys((*now, *changes)))
    if context.query.only_common and compared:
        keys = [key for key in keys if key in changes and changes[key].kind not in parts.ALONE]
    keys = [key for key in keys if _wanted(now.get(key), context.query.outcome)]
    labels = Labels.of(keys)
    rows = LazyRows(keys, lambda key: _row(key, now.get(key), changes.get(key), labels, context))
    one = len({labels.within_suite(key) for key in keys}) <= 1
    hidden = {"settings"} if one else set()
    hidden |= set() if compared else {"base_speedup", "change", "moved"}
    hidden |= {"reason"} if all(_passes(now.get(key)) for key in keys) else set()
    columns = parts.without((*COLUMNS, *HIDDEN), hidden)
    return Table("models", "Models", columns, rows, empty="No case fits the choices above.")


def _passes(case: CaseMetrics | None) -> bool:
    return case is not None and case.outcome is Outcome.OK


def _wanted(case: CaseMetrics | None, outcome: str) -> bool:
    if not outcome:
        return True
    if case is None:
        return False
    if outcome == FAILING:
        return case.outcome.value in parts.FAILED
    return case.outcome.value == outcome


def _row(
    key: CaseKey,
    case: CaseMetrics | None,
    change: CaseChange | None,
    labels: Labels,
    context: Context,
) -> tuple[Cell, ...]:
    to = case_place(key, context.carried)
    base = change.base if change else None
    failed = case is not None and case.outcome is not Outcome.OK
    known = case or CaseMetrics(key, Outcome.NOT_RUN, "not in the new run")
    return (
        text_cell(key.model, to),
        text_cell(labels.within_suite(key)),
        _outcome(case, change),
        parts.base_cell(base, context),
        speedup_cell(known, to),
        _change(change, to),
        parts.moved_cell(change),
        nanoseconds_cell(known.base_ns, to),
        nanoseconds_cell(known.new_ns, to),
        nanoseconds_cell(known.compile_cold_ns, to),
        ratio_cell(known.memory_ratio, to),
        number_cell(known.graph_breaks, to),
        _checks(known),
        text_cell(failure_text(known) if failed else "", longest=90),
        *_hidden(key, known, change),
    )


def _change(change: CaseChange | None, to: Link) -> Cell:
    if change is None:
        return Cell(None, "", to)
    return change_cell(change.speedup, change.verdict, to, change.threshold)


def _outcome(case: CaseMetrics | None, change: CaseChange | None) -> Cell:
    cell = outcome_cell(case)
    if change is not None and change.kind in ("newly failing", "newly passing"):
        mark = "fail" if change.kind == "newly failing" else "better"
        return cell._replace(mark=mark, detail=change.kind)
    return cell


def _checks(case: CaseMetrics) -> Cell:
    from torchstone.web.cells import LEVEL_MARKS

    names = ", ".join(sanitise(name) for name in case.checks)
    return Cell(names, names, mark=LEVEL_MARKS[case.worst_check] if names else "")


def _hidden(key: CaseKey, case: CaseMetrics, change: CaseChange | None) -> tuple[Cell, ...]:
    ratio = change.speedup if change else None
    return (
        *parts.cells(key, KEY),
        Cell(change.kind if change else ""),
        Cell(change.base.outcome.value if change and change.base else ""),
        *parts.ends_of(case),
        *parts.ends_of(change.base if change else None),
        *parts.ends(ratio.interval if ratio else None),
        Cell(change.verdict.value if change and change.verdict else ""),
        Cell(change.threshold if change else None),
        Cell(None if case.compile_warm_ns is None else case.compile_warm_ns / 1e9),
        Cell(case.result_id),
    )


def _note(table: Table, context: Context, found: RunComparison | None) -> str:
    left = f"{len(table.rows)} of {table.total} cases. " if table.more else ""
    common = "Only cases that both runs have. " if context.query.only_common else ""
    return left + common + parts.threshold_words(found, matcher(context.cases))


def _trends(source: DataAccess, context: Context) -> tuple[Section, ...]:
    points = source.points(context.history, EVERY_S[context.chosen.granularity])
    charts = parts.trend_charts(points, context.carried)
    note = parts.newest_only(points).strip()
    return (Group("Trends", charts, grid=True, note=note),) if points else ()
