"""Changes of level: the page that lists them, and histories that other tools measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchstone.records import (
    OURS,
    CasePoint,
    LevelChange,
    Outcome,
    RunHead,
    SeriesKey,
)
from torchstone.records.format import count, finite
from torchstone.show.cells import cut, text_cell, when_s
from torchstone.show.page import (
    Cell,
    Chart,
    Event,
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
    field,
    make_table,
)
from torchstone.show.regressions import (
    OPEN_STATES,
    TITLES,
    cause_words,
    change_fields,
    change_words,
    commit_text,
    false_alarm_words,
    headline,
    metric_title,
    missing_words,
    range_text,
    value_text,
)
from torchstone.show.table import sanitise
from torchstone.web.query import NotFound, Query
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged

if TYPE_CHECKING:
    from torchstone.stats.series import Line, Lines

MOST_LISTED = 200
"""Imported series on a page; the filter finds the others."""
TOO_MANY_NOTE = (
    "Imported histories are too long to look at for a page: `torchstone regressions --tool asv`."
)


def regressions(source: DataAccess, query: Query) -> Page:
    """Open, confirmed, acknowledged, muted and closed regressions, and improvements."""
    found = source.changes()
    here = Link("regressions", "", query.params)
    if found is None:
        empty = Notice("No series is stored yet, or none is long enough to change.")
        return Page("regressions", "Regressions", (empty,), params=query.params)
    report, whole = found
    sections: list[Section] = [
        Notice(f"{sanitise(one.name)}: {sanitise(missing_words(one))}", "warn")
        for one in report.missing
    ]
    if not whole:
        sections.append(Notice(TOO_MANY_NOTE))
    for state in (*OPEN_STATES, "better"):
        changes = report.of_state(state)
        if changes or state == "open":
            table = _table(state, changes)
            title = f"{TITLES[state]} ({len(changes)})"
            folded = state in ("closed", "better")
            sections.append(Group(title, (arranged(table, query, here),), folded=folded))
    sections.append(Notice(false_alarm_words(report.false_alarms, report.series)))
    return Page(
        "regressions",
        "Regressions",
        tuple(sections),
        lead=f"{headline(report)}; {report.series:,} series, {report.values:,} values.",
        params=query.params,
    )


def _table(state: str, changes: Sequence[LevelChange]) -> Table:
    """As the command prints it; here the interval stands below its figure."""
    own = {
        "change": _change_cell,
        "name": lambda c: text_cell(sanitise(c.key.title), Link("change", c.id), 90),
    }
    fields = [replace(one, cell=own.get(one.column.key, one.cell)) for one in change_fields(True)]
    columns = {"machine": any(one.machine for one in changes)}
    without = [key for key, known in columns.items() if not known]
    return make_table(state, "", fields, changes, empty="Nothing is open.", without=without)


def _change_cell(one: LevelChange) -> Cell:
    words, _, ends = change_words(one).partition(" (")
    return Cell(finite(one.ratio), words, mark="worse" if one.worse else "better", detail=ends[:-1])


def change(source: DataAccess, query: Query, ident: str) -> Page:
    """One change: its series over time, and all that is known of it."""
    found = source.changes()
    known = [one for one in (found[0].changes if found else ()) if one.id == ident]
    if not known:
        raise NotFound(f"There is no change {sanitise(ident)[:40]}.", "It may have another id now.")
    one = known[0]
    sections: tuple[Section, ...] = (_facts(one), *_drawn(source, one))
    return Page(
        "change",
        cut(sanitise(one.key.title), 80),
        sections,
        ident=ident,
        lead=f"{metric_title(one.key.metric)} {change_words(one)}, {one.state}.",
        crumbs=(("Regressions", Link("regressions")),),
        params=query.params,
    )


def _facts(one: LevelChange) -> Facts:
    unit = one.key.unit
    levels = f"{value_text(one.before, unit)} → {value_text(one.after, unit)}"
    ends = (commit_text(one.earliest), commit_text(one.latest))
    likely = "..".join(ends) if ends[0] != ends[1] else ""
    items = (
        ("Series", text_cell(sanitise(f"{one.key.suite} {one.key.title}"))),
        ("Metric", text_cell(metric_title(one.key.metric))),
        ("Change", Cell(one.ratio, change_words(one), mark="worse" if one.worse else "better")),
        ("Level", text_cell(levels)),
        ("First bad", text_cell(f"{range_text(one)}, {when_s(one.first_bad.at)}")),
        ("Could be any of", text_cell(likely)),
        ("Cause", text_cell(cause_words(one))),
        ("Machine", text_cell(sanitise(one.machine))),
        ("Ledger", text_cell(sanitise(one.ledger))),
        ("State", text_cell(sanitise(f"{one.state} {one.until}".strip()))),
        ("Reason", text_cell(sanitise(one.reason))),
        ("Machine's id", text_cell(sanitise(one.key.machine))),
        ("Branch or environment", text_cell(sanitise(one.key.environment))),
        ("Values before, after", text_cell(f"{one.values_before}, {one.values_after}")),
    )
    return Facts("change", "", tuple(item for item in items if item[1].text not in ("", "-")))


def _drawn(source: DataAccess, one: LevelChange) -> tuple[Section, ...]:
    lines = source.series_like(one.key)
    return tuple(_chart(lines, line) for line in lines.lines if line.key == one.key)


def _chart(lines: Lines, line: Line) -> Chart:
    """A series with its changes."""
    from torchstone.track.regressions import changes_of

    changes = changes_of(lines).get(line.ident, [])
    points = tuple(
        Point(
            (run := lines.run(line, place)).at,
            value,
            label=commit_text(run),
            to=Link("run", run.id) if line.key.tool == OURS else None,
        )
        for place, value in enumerate(line.values.tolist())
    )
    name = metric_title(line.key.metric)
    unit = line.key.unit
    better = line.key.better
    drawn = (Series(name, points),)
    return Chart("history", name, unit, drawn, events=events(changes), better=better)


def events(changes: Sequence[LevelChange]) -> tuple[Event, ...]:
    """Marks of a chart."""
    return tuple(
        Event(one.first_bad.at, f"{(one.ratio - 1) * 100:+.0f} % {commit_text(one.first_bad)}")
        for one in changes
    )


# Change points on the charts of a case.


def case_events(points: Sequence[CasePoint], metric: str) -> tuple[Event, ...]:
    """Of a case over time."""
    passing = [point for point in points if point.figures.outcome is Outcome.OK]
    return level_events([(one.run, getattr(one.figures, metric)) for one in passing], metric)


def level_events(values: Sequence[tuple[RunHead, float | None]], metric: str) -> tuple[Event, ...]:
    """Changes of level on one machine and branch; nothing where several are drawn."""
    from torchstone.records import SeriesRun
    from torchstone.stats.changepoints import LEAST_VALUES

    passing = [(run, value) for run, value in values if value is not None]
    if len(passing) < LEAST_VALUES or len({(h.machine_id, h.branch) for h, _ in passing}) > 1:
        return ()
    import numpy as np

    from torchstone.stats.series import Line, Lines
    from torchstone.track.regressions import changes_of

    runs = {
        number: SeriesRun(head.id, head.created_s or 0.0, head.commit)
        for number, (head, _) in enumerate(passing)
    }
    better = "higher" if metric == "speedup" else "lower"
    key = SeriesKey(OURS, "", "", metric=metric, better=better)
    line = Line(key, "one", list(runs), np.array([value for _, value in passing], dtype=float))
    return events(changes_of(Lines([line], {OURS: runs}))["one"])


# What other tools measured.


def imported(source: DataAccess, query: Query) -> Page:
    """Imported series, by name."""
    found = source.store.imported_keys(query.filter, limit=MOST_LISTED)
    total = source.store.imported_count(query.filter)
    fields: tuple[Field[tuple[int, SeriesKey]], ...] = (
        field(
            "name",
            "Benchmark",
            lambda r: text_cell(sanitise(r[1].title), Link("series", f"i{r[0]}"), 90),
        ),
        field("metric", "Metric", lambda r: text_cell(metric_title(r[1].metric))),
        field("tool", "Tool", lambda r: text_cell(r[1].tool)),
        field("suite", "Project", lambda r: text_cell(sanitise(r[1].suite))),
        field("machine", "Machine", lambda r: text_cell(sanitise(r[1].machine))),
        field(
            "environment", "Environment", lambda r: text_cell(sanitise(r[1].environment), None, 40)
        ),
    )
    empty = "Nothing was imported: `torchstone import asv PATH`."
    table = make_table("imported", "", fields, found, empty=empty)
    from torchstone.show.page import Choice, Controls

    here = Link("imported", "", query.params)
    search = Choice("filter", "Filter", query.filter, kind="search")
    shown = f"; the first {len(found)}" if total > len(found) else ""
    return Page(
        "imported",
        "Imported",
        (table,),
        lead=f"{count(total, 'series', 'series')} of other tools, by their own definitions{shown}.",
        controls=Controls(here, (search,)),
        params=query.params,
    )


def series(source: DataAccess, query: Query, ident: str) -> Page:
    """One imported series over time."""
    lines = source.series(ident)
    line = lines.lines[0]
    key = line.key
    items = (
        ("Tool", text_cell(key.tool)),
        ("Project", text_cell(sanitise(key.suite))),
        ("Machine", text_cell(sanitise(key.machine))),
        ("Environment", text_cell(sanitise(key.environment))),
        ("Values", text_cell(str(line.values.size))),
    )
    return Page(
        "series",
        cut(sanitise(key.title), 80),
        (_chart(lines, line), Facts("series", "", items)),
        ident=ident,
        lead=f"{metric_title(key.metric)}, as {key.tool} defines it.",
        crumbs=(("Imported", Link("imported")),),
        params=query.params,
    )
