"""The models of a suite: base and new side by side, failures with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torchstone.records import (
    CaseChange,
    CaseKey,
    CaseMetrics,
    ChangeKind,
    Outcome,
    RunComparison,
    Verdict,
)
from torchstone.records.metrics import BY_KEY
from torchstone.show.cells import (
    LEVEL_MARKS,
    case_place,
    change_cell,
    mean_cell,
    memory_cell,
    metric_cell,
    metric_column,
    nanoseconds_cell,
    outcome_cell,
    pass_cell,
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
from torchstone.show.run import verdict_cell as _verdict_cell
from torchstone.store.case_facts import matcher
from torchstone.web.context import Context, controls, resolve
from torchstone.web.query import ALL, EVERY_S, NotFound, Query
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged
from torchstone.web.views import parts
from torchstone.web.views.headline import CHANGES, SHOWN, levels, moves
from torchstone.web.views.landing import trends_by_suite

OPTIONAL = (*parts.SETTINGS, *parts.RUNS_OF)
CONTROLS = ("suite", *OPTIONAL, "base", "new", "across", "common", "filter")
KEY = ("suite", *parts.SETTINGS)


def suite(source: DataAccess, query: Query) -> Page:
    """Every case of a suite in the new run, beside the base run's."""
    first = resolve(source, query)
    here = Link("suite", "", query.params)
    if first.new is None:
        return Page("suite", "Suite", parts.nothing_stored(), params=query.params)
    known = [one.suite for one in first.groups]
    if not known:
        raise NotFound("The newest run has no suite.", "Choose another run.")
    wanted = query.suite or known[0]
    context = first
    if wanted != query.suite:
        context = replace(first, chosen=replace(first.chosen, suite=wanted))
    found = parts.comparison(source, context)
    cases = source.cases(first.new, context.cases)
    table = arranged(_table(cases, found, context), query, here)
    title = suite_title(wanted, "" if context.chosen.scale == ALL else context.chosen.scale)
    title = "All suites" if wanted == ALL else title
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
    if context.exported:
        return made
    seen = sorted({case.outcome.value for case in cases})
    ended = ((one, f"ended as {one.replace('_', ' ')}") for one in seen)
    options = [("", "every case"), *SHOWN.items(), *ended]
    outcome = Choice("outcome", "Show", context.query.outcome, tuple(options))
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
        ("Memory, × eager", memory_cell(one.memory_ratio.value)),
        ("Process memory, × eager", memory_cell(one.process_memory_ratio.value)),
    ]
    if change is not None:
        items.insert(2, ("Change", parts.against_cell(change)))
        items.insert(3, ("Noise limit", threshold_cell(change.threshold)))
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
    verdict: Verdict | None = None
    """The case's own, among all of its run."""

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
    verdicts = dict(zip(now, _verdicts(cases), strict=True))
    every = len(keys)
    keys = [
        key
        for key in keys
        if _wanted(now.get(key), verdicts.get(key), changes.get(key), context.query.outcome)
    ]
    labels = Labels.of(keys)
    lines = [
        _Line(
            key,
            now.get(key),
            changes.get(key),
            case_place(key, context.carried),
            verdicts.get(key),
        )
        for key in keys
    ]
    one = len({labels.within_suite(key) for key in keys}) <= 1
    without = {"settings"} if one else set()
    without |= set() if compared else {"base_speedup", "change", "moved"}
    quiet = all(_passes(case := now.get(key)) and not (case and case.checks) for key in keys)
    without |= {"reason"} if quiet else set()
    empty = "No case fits the choices above."
    fields = _fields(labels, context, len({(key.suite, key.scale) for key in keys}) > 1)
    left = f"{len(keys):,} of {every:,} cases are shown." if len(keys) < every else ""
    return make_table("models", "Models", fields, lines, without=without, empty=empty, note=left)


def _fields(labels: Labels, context: Context, suites: bool) -> tuple[Field[_Line], ...]:
    speedup, step = "Speed-up", "Compiled, below it eager"
    peak = "Tensors alive at the peak of a step, compiled against eager"

    def model(line: _Line) -> Cell:
        suite = suite_title(line.key.suite, line.key.scale) if suites else ""
        return text_cell(line.key.model, line.to)._replace(detail=suite)

    def metric(key: str, name: str, **changes: Any) -> Field[_Line]:
        column = metric_column(key, name, **changes)
        return Field(column, lambda r: metric_cell(r.case, key, r.to))

    return (
        field("model", "Model", model),
        hidden("of_suite", "Suite", lambda r: suite_title(r.key.suite, r.key.scale), False),
        field("settings", "Variant", lambda r: text_cell(labels.within_suite(r.key))),
        field("outcome", "Outcome", _outcome, help="How it ended; its verdict against eager"),
        field(
            "base_speedup",
            "Base",
            lambda r: parts.base_cell(r.base, context),
            True,
            "×",
            group=speedup,
        ),
        field("speedup", "New", _speedup, True, "×", group=speedup),
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
            "Cause",
            lambda r: parts.moved_cell(r.change),
            help="Which side's time explains the change",
        ),
        metric("base_ns", "eager", shown=False),
        Field(metric_column("new_ns", "compiled", title="Step", help=step), _step),
        metric("compile_cold_ns", "compile_cold", title="Compile", help="Cold compile time"),
        metric("base_tensor_bytes", "", shown=False),
        metric("new_tensor_bytes", "", shown=False),
        Field(metric_column("memory_ratio", title="Memory", help=peak), _memory),
        metric("graph_breaks", "", title="Breaks", help="Graph breaks"),
        hidden("checks", "Checks", lambda r: ", ".join(r.case.checks), number=False),
        field("reason", "Reason, checks", _reason, help="Why it failed; else which checks warn"),
        *_hidden(),
    )


def _passes(case: CaseMetrics | None) -> bool:
    return case is not None and case.outcome is Outcome.OK


def _wanted(
    case: CaseMetrics | None, verdict: Verdict | None, change: CaseChange | None, asked: str
) -> bool:
    if not asked:
        return True
    if asked in CHANGES:
        return change is not None and asked in moves(change)
    if case is None:
        return False
    return asked in levels(case, verdict) or case.outcome.value == asked


def _verdicts(cases: tuple[CaseMetrics, ...]) -> Sequence[Verdict | None]:
    from torchstone.stats import verdicts

    return verdicts(cases)


def _step(line: _Line) -> Cell:
    """The compiled step's time, and eager's below it."""
    eager = metric_cell(line.case, "base_ns").text
    cell = metric_cell(line.case, "new_ns", line.to)
    return cell._replace(detail=f"eager {eager}") if cell.text and eager else cell


def _memory(line: _Line) -> Cell:
    """The ratio, and the bytes of both below it."""
    cell = metric_cell(line.case, "memory_ratio", line.to)
    both = [metric_cell(line.case, f"{side}_tensor_bytes").text for side in ("base", "new")]
    detail = " → ".join(both) if all(both) else ""
    return parts.memory_level(cell._replace(detail=detail), line.case.memory_ratio)


def _speedup(line: _Line) -> Cell:
    cell = speedup_cell(line.case, line.to)
    return cell._replace(mark="worse") if line.verdict is Verdict.SLOWER else cell


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
            "Noise limit",
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
    """Why it failed, with a link to what it left behind; else the checks that warn."""
    case = line.case
    if line.now is not None and case.outcome is not Outcome.OK:
        to = Link("result", case.result_id) if case.result_id else None
        return text_cell(failure_text(case), to, longest=90)
    names = text_cell(", ".join(case.checks), longest=48)
    return names._replace(value="", mark=LEVEL_MARKS[case.worst_check] if names.text else "")


def _change(line: _Line) -> Cell:
    if line.change is None:
        return Cell(None, "", line.to)
    return change_cell(line.change.speedup, line.change.verdict, line.to, line.change.threshold)


def _outcome(line: _Line) -> Cell:
    cell = outcome_cell(line.now)
    if line.now is not None and line.now.outcome is Outcome.OK:
        cell = _verdict_cell(line.now, line.verdict)
    marks = {ChangeKind.NEWLY_FAILING: "fail", ChangeKind.NEWLY_PASSING: "better"}
    if line.change is not None and line.change.kind in marks:
        return cell._replace(mark=marks[line.change.kind], detail=line.change.kind.value)
    return cell


def _note(table: Table, context: Context, found: RunComparison | None) -> str:
    left = f"{len(table.rows)} of {table.total} cases. " if table.more else ""
    left += f"{table.note} " if table.note else ""
    common = "Only cases that both runs have. " if context.query.only_common else ""
    marks = parts.threshold_words(found, matcher(context.cases))
    return f"{left}{common}{parts.QUOTIENT} {marks}".strip()


def _trends(source: DataAccess, context: Context) -> tuple[Section, ...]:
    points = source.points(context.history, EVERY_S[context.chosen.granularity])
    if not points:
        return ()
    note = parts.newest_only(points).strip()
    if len({(one.summary.suite, one.summary.scale) for one in points}) > 1:
        made, told = trends_by_suite(points, context.carried)
        return (Group("Trends", made, note=f"{told} {note}".strip()),)
    charts = parts.trend_charts(points, context.carried)
    return (Group("Trends", charts, grid=True, note=note),)
