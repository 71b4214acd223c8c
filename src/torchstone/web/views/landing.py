"""The landing page: a table a suite, marked against the base, and the trends of the last days."""

from __future__ import annotations

from dataclasses import replace

from torchstone.records import CaseKey, GroupChange, RunComparison, SuiteSummary
from torchstone.show.run_table import Labels
from torchstone.store.case_facts import matcher
from torchstone.web.cells import (
    compile_cell,
    mean_cell,
    pass_cell,
    ratio_cell,
    run_title,
    suite_title,
    table_name,
    text_cell,
    threshold_cell,
)
from torchstone.web.context import Context, controls, resolve
from torchstone.web.page import Cell, Column, Group, Link, Notice, Page, Section, Table
from torchstone.web.query import ALL, EVERY_S, Query
from torchstone.web.sources import DataAccess
from torchstone.web.views import parts

OPTIONAL = ("suite", *parts.SETTINGS, *parts.RUNS_OF, "torch")
CONTROLS = ("range", "granularity", *OPTIONAL, "base", "new", "across")
KEY = ("suite", "scale", "mode", "precision", "device", "threads", "allocator")
COLUMNS = (
    Column("variant", "Variant"),
    Column("pass_rate", "Pass rate", True, help="Passing cases out of those that count"),
    Column("newly_failing", "Newly failing", True, help="Passed in the base, does not pass now"),
    Column("speedup", "Speed-up", True, "×", help="Geometric mean over passing cases"),
    Column(
        "change",
        "Against base",
        True,
        "×",
        help="New mean over base mean, over the cases that pass in both, of those that count now",
    ),
    Column("threshold", "Threshold", True, help="A smaller change of the mean is not believed"),
    Column("compile_cold", "Compile, cold / warm", True, "s", help="Mean over passing cases"),
    Column(
        "memory_ratio",
        "Memory ratio",
        True,
        "×",
        help="Tensors at the peak, baseline over arm",
    ),
)
HIDDEN = (
    *parts.columns(KEY),
    Column("passed", "Passed", True, shown=False),
    Column("counted", "Counted", True, shown=False),
    Column("planned", "Planned", True, shown=False),
    *parts.SPEEDUP_ENDS,
    Column("speedup_n", "Cases in the mean", True, shown=False),
    *parts.CHANGE_ENDS,
    Column("common", "Cases in both", True, shown=False),
    Column("compared", "Cases in the change", True, shown=False),
    Column("compile_change", "Compile, cold, new over base", True, "×", shown=False),
    Column("memory_change", "The arm's peak, new over base", True, "×", shown=False),
    *parts.COST_MARKS,
    Column("compile_warm", "Compile, warm", True, "s", shown=False),
    Column("run", "Run", shown=False),
)
AGAINST_BASE = ("newly_failing", "change", "threshold")
"""Columns that say nothing where there is no base."""


def landing(source: DataAccess, query: Query) -> Page:
    """Every suite of the newest run, or of the one that was chosen."""
    context = resolve(source, query)
    here = Link("landing", "", query.params)
    top: tuple[Section, ...] = parts.running(source, context.heads)
    if context.new is None:
        sections = (*top, *parts.nothing_stored())
        return Page("landing", "Overview", sections, params=query.params, live=True)
    found = parts.comparison(source, context)
    fits = matcher(context.cases)
    groups = [one for one in context.groups if fits(parts.group_key(one))]
    suites: dict[tuple[str, str], list[SuiteSummary]] = {}
    for group in groups:
        suites.setdefault((group.suite, group.scale), []).append(group)
    tables: dict[str, Table] = {}
    for (suite, scale), rows in suites.items():
        name = table_name(suite_title(suite, scale), tables)
        tables[name] = _table(name, suite, scale, rows, found, context)
    sections = (*top, *parts.remarks(found, context))
    if not tables:
        sections += (Notice("This run has no case that fits the choices above."),)
    words = parts.threshold_words(found, fits) + parts.cost_words(found)
    sections += (Group("Suites", tuple(tables.values()), note=words), *_trends(source, context))
    return Page(
        "landing",
        "Overview",
        sections,
        lead=_lead(context),
        controls=controls(context, here, CONTROLS, OPTIONAL),
        params=query.params,
        live=True,
    )


def _lead(context: Context) -> str:
    new = f"New: {run_title(context.new)}" if context.new else ""
    base = f"base: {run_title(context.base)}" if context.base else "no base to compare with"
    return f"{new}; {base}."


def _table(
    name: str,
    suite: str,
    scale: str,
    groups: list[SuiteSummary],
    found: RunComparison | None,
    context: Context,
) -> Table:
    labels = Labels.of(groups)
    changes = parts.changes_by_group(found)
    rows = tuple(_row(one, labels, changes.get(parts.group_key(one)), context) for one in groups)
    title = suite_title(suite, scale)
    key = CaseKey(suite, "", scale, "", "", "")
    place = Link(
        "suite",
        "",
        (
            ("suite", key.suite),
            ("scale", scale or ALL),
            ("mode", context.chosen.mode),
            ("precision", context.chosen.precision),
            *context.carried,
        ),
    )
    hidden = () if found is not None and not found.refused else AGAINST_BASE
    columns = parts.without((*COLUMNS, *HIDDEN), hidden)
    return Table(name, title, columns, rows, to=place, total=len(rows))


def _row(
    one: SuiteSummary, labels: Labels, change: GroupChange | None, context: Context
) -> tuple[Cell, ...]:
    to = parts.suite_place(parts.group_key(one), context.carried)
    return (
        text_cell(labels.settings(one), to),
        pass_cell(one.passes, to),
        _newly(change, to),
        mean_cell(one.speedup, to),
        parts.against_cell(change, to),
        threshold_cell(change.threshold if change else None, to),
        _compile(one, change, to),
        _memory(one, change, to),
        *_hidden(one, change, context),
    )


def _newly(change: GroupChange | None, to: Link) -> Cell:
    if change is None:
        return Cell(None, "")
    bad = change.counts.get("newly failing", 0)
    good = change.counts.get("newly passing", 0)
    detail = f"{good} newly passing" if good else ""
    return Cell(bad, str(bad), to if bad else None, "fail" if bad else "quiet", detail)


def _compile(one: SuiteSummary, change: GroupChange | None, to: Link) -> Cell:
    cell = compile_cell(one.compile_cold_ns, one.compile_warm_ns, to)
    return _moved(cell, "compile_cold", change.compile_cold.value if change else None, change)


def _memory(one: SuiteSummary, change: GroupChange | None, to: Link) -> Cell:
    """The ratio is better when it is more; what moved is the peak, which is better when less."""
    cell = ratio_cell(one.memory_ratio.value, to)
    return _moved(cell, "memory", change.memory.value if change else None, change, "peak ")


def _moved(
    cell: Cell, name: str, value: float | None, change: GroupChange | None, what: str = ""
) -> Cell:
    """A cost with how it moved, where it moved beyond its threshold."""
    mark = parts.cost_mark(name, value, change)
    if value is None or not mark or not cell.text:
        return cell
    return cell._replace(mark=mark, detail=f"{what}{(value - 1) * 100:+.0f} %")


def _hidden(one: SuiteSummary, change: GroupChange | None, context: Context) -> tuple[Cell, ...]:
    ratio = change.speedup if change else None
    warm = one.compile_warm_ns.value
    return (
        *parts.cells(one, KEY),
        Cell(one.passes.passed),
        Cell(one.passes.counted),
        Cell(one.passes.planned),
        *parts.ends(one.speedup.interval),
        Cell(one.speedup.n),
        *parts.ends(ratio.interval if ratio else None),
        Cell(change.verdict.value if change and change.verdict else None),
        Cell(change.common if change else None),
        Cell(change.new_common.n if change else None),
        *_costs(change),
        Cell(None if warm is None else warm / 1e9),
        Cell(context.new.id if context.new else ""),
    )


def _costs(change: GroupChange | None) -> tuple[Cell, ...]:
    cold, peak = (change.compile_cold.value, change.memory.value) if change else (None, None)
    marks = (("compile_cold", cold), ("memory", peak))
    return Cell(cold), Cell(peak), *(Cell(parts.cost_mark(n, v, change)) for n, v in marks)


def _trends(source: DataAccess, context: Context) -> tuple[Section, ...]:
    """Four charts of the chosen suite; of the first one where none was chosen."""
    wanted = context.history
    if not wanted.suite:
        fits = matcher(context.cases)
        shown = [one for one in context.groups if fits(parts.group_key(one))]
        if not shown:
            return ()
        wanted = replace(wanted, suite=shown[0].suite, scale=wanted.scale or shown[0].scale)
    points = source.points(wanted, EVERY_S[context.chosen.granularity])
    charts = parts.trend_charts(points, context.carried)
    runs = len({point.run.id for point in points})
    title = f"Trends of {suite_title(wanted.suite, wanted.scale)}"
    note = f"{runs} run{'' if runs == 1 else 's'}, each at its commit."
    note += parts.newest_only(points)
    return (Group(title, charts, grid=True, note=note),)
