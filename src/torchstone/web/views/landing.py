"""The landing page: a table a suite, marked against the base, and the trends of the last days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torchstone.records import (
    ChangeKind,
    GroupChange,
    GroupPoint,
    Mean,
    RunComparison,
    SuiteSummary,
)
from torchstone.records.format import count
from torchstone.show.cells import (
    run_title,
    suite_title,
    table_name,
    text_cell,
    threshold_cell,
)
from torchstone.show.page import (
    Cell,
    Chart,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Section,
    Table,
    ends,
    field,
    hidden,
    make_table,
)
from torchstone.show.run import Labels, suite_fields
from torchstone.show.table import sanitise
from torchstone.store.case_facts import matcher
from torchstone.web.context import Context, controls, resolve
from torchstone.web.query import ALL, EVERY_S, Query
from torchstone.web.sources import DataAccess
from torchstone.web.views import parts
from torchstone.web.views.headline import elsewhere, headline, summary_words

OPTIONAL = ("suite", *parts.SETTINGS, *parts.RUNS_OF, "torch")
CONTROLS = ("range", "granularity", *OPTIONAL, "base", "new", "across")
KEY = ("suite", "scale", "mode", "precision", "device", "threads", "allocator")
AGAINST_BASE = ("newly_failing", "change", "threshold")
"""Columns that say nothing where there is no base."""


def landing(source: DataAccess, query: Query) -> Page:
    """Every suite of the newest run, or of the one that was chosen."""
    context = resolve(source, query)
    here = Link("landing", "", query.params)
    top: tuple[Section, ...] = parts.running(source, context.heads)
    if context.new is None:
        sections = (*top, *parts.nothing_stored(), *elsewhere(source))
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
    if found is not None and not found.refused:
        cases = tuple(one.new for one in found.cases if one.new is not None)
    else:
        cases = source.cases(context.new)
    sections = (*top, *headline(context, found, cases), *elsewhere(source))
    sections += parts.remarks(found, context)
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
        actions=parts.outside_actions(source, context.new, context.base),
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
    asked = context.query.kept("mode", "precision")
    place = Link("suite", "", (("suite", suite), ("scale", scale or ALL), *asked, *context.carried))
    changes = parts.changes_by_group(found)
    lines = []
    for one in groups:
        key = parts.group_key(one)
        lines.append(_Line(one, changes.get(key), parts.suite_place(key, context.carried)))
    without = () if found is not None and not found.refused else AGAINST_BASE
    fields = _fields(lines, context)
    return make_table(name, suite_title(suite, scale), fields, lines, without=without, to=place)


class _Line(NamedTuple):
    """A suite's figures, and how they moved."""

    one: SuiteSummary
    change: GroupChange | None
    to: Link


def _fields(lines: Sequence[_Line], context: Context) -> tuple[Field[_Line], ...]:
    labels = Labels.of(line.one for line in lines)
    own = [line.one for line in lines]
    figures: tuple[Field[_Line], ...] = suite_fields(own, lambda r: r.one, lambda r: r.to)
    passed, speedup, compiled, memory, *_ = figures
    against = "New mean over base mean, over the cases that pass in both, of those that count now"
    small = "A smaller change of the mean is noise"
    return (
        field("variant", "Variant", lambda r: text_cell(labels.settings(r.one), r.to)),
        Field(passed.column, lambda r: parts.pass_level(passed.cell(r), r.one.passes)),
        field(
            "newly_failing",
            "Newly failing",
            lambda r: _newly(r.change, r.to),
            True,
            help="Passed in the base, not now",
        ),
        Field(speedup.column, lambda r: parts.speedup_level(speedup.cell(r), r.one.speedup)),
        field("verdicts", "Cases", lambda r: summary_words(r.one, r.to), help="Their own verdicts"),
        field(
            "change",
            "Change",
            lambda r: parts.against_cell(r.change, r.to),
            True,
            "×",
            help=against,
        ),
        field(
            "threshold",
            "Noise limit",
            lambda r: threshold_cell(r.change.threshold if r.change else None, r.to),
            True,
            help=small,
        ),
        Field(compiled.column, lambda r: _moved(compiled.cell(r), "compile_cold", r.change)),
        Field(
            memory.column,
            lambda r: parts.memory_level(
                _moved(memory.cell(r), "memory", r.change, "peak "), r.one.memory_ratio.value
            ),
        ),
        *parts.key_fields(KEY, lambda r: r.one),
        hidden("passed", "Passed", lambda r: r.one.passes.passed),
        hidden("counted", "Counted", lambda r: r.one.passes.counted),
        hidden("planned", "Planned", lambda r: r.one.passes.planned),
        *ends("speedup", "Speed-up", lambda r: r.one.speedup.interval),
        hidden("speedup_n", "Cases in the mean", lambda r: r.one.speedup.n),
        *parts.change_fields(lambda r: r.change),
        hidden("common", "Cases in both", lambda r: r.change.common if r.change else None),
        hidden(
            "compared", "Cases in the change", lambda r: r.change.new_common.n if r.change else None
        ),
        _cost_field("compile", "compile_cold", "Compile, cold, new over base"),
        _cost_field("memory", "memory", "The arm's peak, new over base"),
        *parts.cost_fields(lambda r: r.change),
        hidden("compile_warm", "Compile, warm", lambda r: _seconds(r.one), unit="s"),
        hidden("run", "Run", lambda r: context.new.id if context.new else "", number=False),
    )


def _seconds(one: SuiteSummary) -> float | None:
    warm = one.compile_warm_ns.value
    return None if warm is None else warm / 1e9


def _cost_field(key: str, name: str, title: str) -> Field[_Line]:
    def value(line: _Line) -> float | None:
        mean: Mean | None = getattr(line.change, name, None)
        return mean.value if mean else None

    return hidden(f"{key}_change", title, value, unit="×")


def _newly(change: GroupChange | None, to: Link) -> Cell:
    if change is None:
        return Cell(None, "")
    bad = change.counts.get(ChangeKind.NEWLY_FAILING.value, 0)
    good = change.counts.get(ChangeKind.NEWLY_PASSING.value, 0)
    detail = f"{good} newly passing" if good else ""
    return Cell(bad, str(bad), to if bad else None, "fail" if bad else "quiet", detail)


def _moved(cell: Cell, name: str, change: GroupChange | None, what: str = "") -> Cell:
    """A cost with how it moved, where it moved beyond its threshold. Of memory a ratio is shown,
    which is better when it is more; what moved is the peak, which is better when it is less."""
    mark = parts.cost_mark(name, change)
    if change is None or not mark or not cell.text:
        return cell
    percent = (getattr(change, name).value - 1) * 100
    return cell._replace(mark=mark, detail=f"{what}{percent:+.0f} %")


def _trends(source: DataAccess, context: Context) -> tuple[Section, ...]:
    """Six small charts for every suite, with a line a mode, under one variant."""
    fits = matcher(context.cases)
    shown = [one for one in context.groups if fits(parts.group_key(one))]
    if not shown:
        return ()
    variants = list(dict.fromkeys(one.variant for one in shown))
    wanted = replace(context.history, variant=variants[0])
    points = source.points(wanted, EVERY_S[context.chosen.granularity])
    made, told = trends_by_suite(points, context.carried, shown)
    others = len(variants) - 1
    more = f" {count(others, 'other variant')}: choose one under Variant." if others else ""
    note = f"{count(len({one.run.id for one in points}), 'run')}.{more} {told}"
    title = f"Trends of {sanitise(variants[0])}"
    return (Group(title, made, note=note + parts.newest_only(points)),)


def trends_by_suite(
    points: Sequence[GroupPoint],
    carried: tuple[tuple[str, str], ...],
    first: Sequence[SuiteSummary] = (),
) -> tuple[tuple[Group, ...], str]:
    """Small charts of each suite by itself, in the order of `first`: no line joins two suites. With
    what there is to say of all of them."""
    suites: dict[str, list[GroupPoint]] = {}
    for group in first:
        suites.setdefault(suite_title(group.suite, group.scale), [])
    for point in points:
        title = suite_title(point.summary.suite, point.summary.scale)
        suites.setdefault(title, []).append(point)
    names: dict[str, None] = {}
    made: list[Group] = []
    drawn: list[Chart] = []
    for title, mine in suites.items():
        if mine:
            name = table_name(title, names)
            names[name] = None
            charts = parts.trend_charts(mine, carried, f"{name}-")
            drawn += charts
            made.append(Group(title, tuple(replace(one, small=True) for one in charts), grid=True))
    return tuple(made), " ".join(_told(drawn))


def _told(charts: Sequence[Chart]) -> list[str]:
    """What all of the small charts have to say, each sentence once."""
    every = " ".join(chart.note for chart in charts)
    shared = [one for one in (parts.BARS, parts.HOLLOW) if one in every]
    rest = [one.note.replace(parts.BARS, "").replace(parts.HOLLOW, "").strip() for one in charts]
    return [*shared, *dict.fromkeys(note for note in rest if note)]
