"""One model under one variant: every metric over time, and the evidence of one of its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    CasePoint,
    Outcome,
    RunComparison,
    RunHead,
    Selection,
    Verdict,
)
from torchstone.records.format import count, format_percent
from torchstone.records.metrics import BY_KEY
from torchstone.show.cells import (
    CARRIED,
    case_place,
    change_cell,
    command_line,
    commit_cell,
    commit_of,
    cut,
    metric_cell,
    metric_column,
    number_cell,
    outcome_word,
    run_cell,
    run_title,
    speedup_cell,
    suite_of,
    text_cell,
)
from torchstone.show.page import (
    Cell,
    Chart,
    Code,
    Facts,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Point,
    Section,
    Series,
    Table,
    ends,
    field,
    hidden,
    make_table,
)
from torchstone.show.run import failure_text, verdict_cell
from torchstone.show.table import sanitise
from torchstone.web.context import Context, controls, resolve
from torchstone.web.query import ALL, EVERY_S, NotFound, Query, shown
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged
from torchstone.web.views import parts
from torchstone.web.views.evidence import evidence
from torchstone.web.views.regressions import case_events as changes

OPTIONAL = (*parts.RUNS_OF, "torch")
CONTROLS = (
    *("range", "granularity", "mode", "precision", "variant", "scale", "device", "threads"),
    "allocator",
    *(*OPTIONAL, "base", "new", "across"),
)
SHOWN = (
    *("base_ns", "new_ns", "compile_cold_ns", "compile_warm_ns", "memory_ratio"),
    *("process_memory_ratio", "compiler_bytes", "graph_breaks", "recompiles"),
)
"""Metrics of the chosen point; a metric of `records.metrics` needs no more than its name here."""
Metric = Callable[[CaseMetrics], "float | None"]
IN_WORDS = {"memory_ratio": "Memory, × eager", "process_memory_ratio": "Process memory, × eager"}
IN_FILE = "The CSV has every figure of every run."
CHANGING = {"speedup": "speedup", "time": "new_ns", "memory": "new_tensor_bytes"}
"""Charts that mark changes of level, and the metric whose."""
TIMES: dict[str, Metric] = {
    "eager": lambda c: _seconds(c.base_ns),
    "compiled": lambda c: _seconds(c.new_ns),
}
COMPILES: dict[str, Metric] = {
    "cold": lambda c: _seconds(c.compile_cold_ns),
    "warm": lambda c: _seconds(c.compile_warm_ns),
}
PEAKS: dict[str, Metric] = {
    "eager": lambda c: c.base_tensor_bytes,
    "compiled": lambda c: c.new_tensor_bytes,
}


def case(source: DataAccess, query: Query) -> Page:
    """The history of a case, and what is behind its newest or chosen point."""
    if not query.model:
        raise NotFound("This page is about one model, and none was named.", "Add ?model=NAME.")
    context = resolve(source, query)
    if context.new is None:
        return Page("case", "Case", parts.nothing_stored(), params=query.params)
    head = context.new
    key, now = _find(source, context)
    own = case_place(key, query.kept(*CARRIED, "sort", "page"))
    context = replace(context, chosen=replace(context.chosen, **dict(case_place(key).params)))
    found = parts.comparison(source, context) if now is not None else None
    points = _history(source, key, context)
    table = _table(points)
    every = table.rows
    if source.exported:  # the charts tell the figures, and the file beside the page has all
        table = replace(table, rows=(), whole=lambda: every, empty=IN_FILE)
    else:
        table = arranged(table, replace(query, filter=""), own)
    sections: list[Section] = [
        *parts.remarks(found, context),
        _facts(source, key, now, found, context),
        Group("History", _drawn(source, points, context), grid=True, note=_note(points)),
        Group("Every run in this range", (table,), folded=True),
    ]
    sections += _behind(source, now, head)
    sibling = controls(context, own, CONTROLS, OPTIONAL)
    kept = tuple((n, v) for n, v in (("suite", key.suite), ("model", key.model)))
    return Page(
        "case",
        cut(sanitise(key.model), 80),
        tuple(sections),
        lead=sanitise(key.name),
        crumbs=(
            ("Overview", Link("landing", "", context.carried)),
            (sanitise(suite_of(key)), parts.suite_place(key, context.carried)),
        ),
        controls=replace(sibling, hidden=kept),
        params=query.params,
        actions=_actions(now),
    )


def _find(source: DataAccess, context: Context) -> tuple[CaseKey, CaseMetrics | None]:
    """The case that the URL means in the new run, or at least its key."""
    assert context.new is not None
    fields = dict(context.query.params)
    found = source.cases(context.new, context.cases)
    if found:
        return found[0].key, found[0]
    needed = ("suite", "model", "mode", "precision", "variant")
    if all(name in fields for name in needed):
        key = CaseKey(
            fields["suite"],
            fields["model"],
            "" if context.query.scale == ALL else context.query.scale,
            fields["mode"],
            fields["precision"],
            fields["variant"],
            fields.get("device", "cpu"),
            int(fields["threads"]) if fields.get("threads", "").isdigit() else 0,
            fields.get("allocator", "default"),
        )
        return key, None
    raise NotFound(
        f"No case of the model {shown(context.query.model)} in {run_title(context.new)} fits.",
        "Choose another run, mode, precision or variant.",
    )


def _history(source: DataAccess, key: CaseKey, context: Context) -> list[CasePoint]:
    return source.case_points(key, context.history, EVERY_S[context.chosen.granularity])


def _note(points: Sequence[CasePoint]) -> str:
    failed = sum(point.figures.outcome is not Outcome.OK for point in points)
    ended = f"{failed} did not pass" if failed else "all passed"
    return f"{count(len(points), 'run')}, {ended}." if points else ""


def _drawn(source: DataAccess, points: Sequence[CasePoint], context: Context) -> tuple[Chart, ...]:
    """Every chart; of files, of which there are thousands, without the quotient of two others."""
    made = _charts(points, context)
    return tuple(one for one in made if not source.exported or one.name != "memory_ratio")


def _charts(points: Sequence[CasePoint], context: Context) -> tuple[Chart, ...]:
    rest = tuple(item for item in context.carried if item[0] not in ("new", "base"))
    lines = parts.Lines.of((point.run, _definition(point)) for point in points)
    placed: dict[str, list[tuple[CaseMetrics, Point]]] = {}
    for point in points:
        line = lines.words(point.run, _definition(point))
        placed.setdefault(line, []).append((point.figures, _blank(point, rest)))

    torches = parts.run_events([point.run for point in points])

    def chart(
        name: str, title: str, unit: str, metrics: dict[str, Metric], better: str = "lower"
    ) -> Chart:
        """Each metric is a line on every machine and branch, and by every definition."""
        room, interval = parts.MOST_SERIES // len(metrics), name == "speedup"
        kept = parts.newest_lines(
            {w: [blank for _, blank in own] for w, own in placed.items()}, room
        )
        series = tuple(
            Series(
                f"{told} {where}".rstrip(),
                tuple(_valued(one, blank, metric, interval) for one, blank in placed[where]),
            )
            for where in kept
            for told, metric in metrics.items()
        )
        notes = (
            parts.BARS if interval else "",
            parts.left_out((len(placed) - len(kept)) * len(metrics)),
        )
        marks = (*torches, *(changes(points, CHANGING[name]) if name in CHANGING else ()))
        note = " ".join(part for part in notes if part)
        return Chart(name, title, unit, series, note, events=marks, better=better)

    return (
        chart("speedup", "Speed-up", "ratio", {"speed-up": lambda c: c.speedup}, "higher"),
        chart("time", "Time of a step", "seconds", TIMES),
        chart("compile", "Compile time", "seconds", COMPILES),
        chart("memory", "Tensors at a step's peak", "bytes", PEAKS),
        chart(
            "memory_ratio",
            "Memory, × eager",
            "ratio",
            {"ratio": lambda c: 1 / c.memory_ratio if c.memory_ratio else None},
        ),
        chart("graph_breaks", "Graph breaks", "count", {"breaks": lambda c: c.graph_breaks}),
    )


def _definition(point: CasePoint) -> int | None:
    """By which its figures are defined; None where it has none."""
    return point.figures.definition if point.figures.outcome is Outcome.OK else None


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _blank(point: CasePoint, rest: tuple[tuple[str, str], ...]) -> Point:
    """The point of a chart without its value: the same in all charts."""
    figures, head = point.figures, point.run
    passed = figures.outcome is Outcome.OK
    ended = "" if passed else f"{figures.outcome.words}; "
    return Point(
        time_s=head.created_s or 0.0,
        value=None,
        label=commit_of(head) or head.id[:8],
        note=ended + parts.run_note(head),
        to=case_place(figures.key, (*rest, ("new", head.id))),
        failed=figures.outcome.failed,
    )


def _valued(figures: CaseMetrics, blank: Point, metric: Metric, interval: bool) -> Point:
    if figures.outcome is not Outcome.OK:
        return blank
    low, high = (figures.interval if interval else None) or (None, None)
    return blank._replace(value=metric(figures), low=low, high=high)


def _table(points: Sequence[CasePoint]) -> Table:
    fields = _history_fields()
    newest = tuple(reversed(points))
    return make_table("history", "", fields, newest, empty="No run in this range has it.")


def _history_fields() -> tuple[Field[CasePoint], ...]:
    step, compiling, memory = "Time of a step", "Compile", "Memory"

    def own(point: CasePoint) -> Link:
        one = point.figures
        result = Link("result", one.result_id) if one.result_id else None
        return result or case_place(one.key, (("new", point.run.id),))

    def metric(key: str, name: str = "", **changes: Any) -> Field[CasePoint]:
        column = metric_column(key, name, **changes)
        return Field(column, lambda p: metric_cell(p.figures, key, own(p)))

    return (
        field("run", "Run", lambda p: run_cell(p.run)),
        field("commit", "Commit", lambda p: commit_cell(p.run)),
        field(
            "outcome",
            "Outcome",
            lambda p: outcome_word(p.figures.outcome, p.figures.reason)._replace(to=own(p)),
        ),
        field("speedup", "Speed-up", lambda p: speedup_cell(p.figures, own(p)), True, "×"),
        metric("base_ns", "eager", group=step),
        metric("new_ns", "compiled", group=step),
        metric("compile_cold_ns", "compile_cold", title="Cold", group=compiling),
        metric("compile_warm_ns", "compile_warm", title="Warm", group=compiling),
        metric("memory_ratio", title="× eager", group=memory),
        metric("new_tensor_bytes", "tensor_bytes", group=memory),
        metric("new_peak_bytes", "peak_bytes", group=memory),
        metric("graph_breaks"),
        field("reason", "Reason", lambda p: _reason(p.figures)),
        hidden("created", "Made", lambda p: p.run.created, False),
        *ends("speedup", "Speed-up", lambda p: p.figures.interval),
        hidden("result_id", "Result", lambda p: p.figures.result_id, False),
    )


def _reason(case: CaseMetrics) -> Cell:
    return text_cell("" if case.outcome is Outcome.OK else failure_text(case), longest=90)


def _facts(
    source: DataAccess,
    key: CaseKey,
    now: CaseMetrics | None,
    found: RunComparison | None,
    context: Context,
) -> Facts:
    assert context.new is not None
    items = [("Run", run_cell(context.new, run_title(context.new)))]
    if now is None:
        items.append(("Outcome", Cell("", "not in this run", mark="quiet")))
        return Facts("case", "", tuple(items))
    outcome, speedup = outcome_word(now.outcome, now.reason), speedup_cell(now)
    if now.outcome is Outcome.OK:
        verdict = _verdict(source, now, context.new)
        outcome = verdict_cell(now, verdict)
        speedup = speedup._replace(mark="worse" if verdict is Verdict.SLOWER else "")
    items += [
        ("Outcome", outcome),
        ("Speed-up", speedup),
        *((IN_WORDS.get(key, BY_KEY[key].title), _metric(now, key)) for key in SHOWN),
        ("Answer checked", text_cell(now.agreement)),
        ("FLOPs of a step", number_cell(now.flops)),
        ("FLOP count covers", _covered(now.flops_covered)),
    ]
    change = _change(source, key, found, context)
    if change is not None:
        items.insert(3, ("Change", change))
    kept = tuple((name, cell) for name, cell in items if cell.text not in ("", "-"))
    return Facts("case", "", kept)


def _verdict(source: DataAccess, now: CaseMetrics, head: RunHead) -> Verdict | None:
    """As the suite's page has it. Among the others of its suite only a gain or a loss can fall."""
    if now.verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return now.verdict
    from torchstone.stats import verdicts

    cases = source.cases(head, Selection(suite=now.key.suite, scale=now.key.scale))
    return dict(zip((one.key for one in cases), verdicts(cases), strict=True))[now.key]


def _metric(now: CaseMetrics, key: str) -> Cell:
    cell = metric_cell(now, key)
    return parts.memory_level(cell, now.memory_ratio) if key == "memory_ratio" else cell


def _covered(share: float | None) -> Cell:
    return Cell(share, "" if share is None else f"{format_percent(share)} of the time")


def _change(
    source: DataAccess, key: CaseKey, found: RunComparison | None, context: Context
) -> Cell | None:
    if found is None or found.refused or context.base is None:
        return None
    change = source.change(found, key)
    if change is None or change.speedup is None:
        return None
    cell = change_cell(change.speedup, change.verdict, threshold=change.threshold)
    cause = parts.moved_cell(change)
    moved = f"; {cause.text}" if cause.text and not cause.mark else ""
    return cell._replace(detail=f"{cell.detail}{moved}", to=Link("run", context.base.id))


def _behind(source: DataAccess, now: CaseMetrics | None, head: RunHead) -> list[Section]:
    """The evidence of the chosen point."""
    if now is None:
        return [Notice(f"{run_title(head)} has no such case; choose a point of the history.")]
    found: list[Section] = []
    if now.outcome is not Outcome.OK:
        found.append(Notice(sanitise(failure_text(now)), "warn"))
    if now.command:
        found.append(Code("command", "Reproduce it", command_line(now.command)))
    if not now.result_id:
        return [*found, *_foreign(now)]
    if source.exported:  # on a page of its own, which all variants of a model share
        return [*found, Notice("The evidence has its own page.", to=Link("result", now.result_id))]
    try:
        result = source.result(now.result_id)
    except NotFound as error:
        return [*found, Notice(error.message, "warn", error.remedy)]
    title = f"Evidence of {run_title(head)}"
    return [*found, Group(title, evidence(source, result, now.key.variant))]


def _foreign(now: CaseMetrics) -> list[Section]:
    """What another tool's file says, under its own names."""
    made: list[Section] = []
    for number, one in enumerate(now.foreign):
        cells = zip(one.columns, one.cells, strict=False)
        items = tuple((sanitise(name), text_cell(text)) for name, text in cells)
        made.append(Facts(f"foreign-{number}", sanitise(f"{one.format}: {one.table}"), items))
    return made


def _actions(now: CaseMetrics | None) -> tuple[tuple[str, Link], ...]:
    if now is None or not now.result_id:
        return ()
    return (("The result", Link("result", now.result_id)),)
