"""Trainings and services that are monitored on this machine: live while they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchstone.lab.recording import this_machine
from torchstone.monitor.journal import MonitorRecord, find_record
from torchstone.monitor.views import MonitorView, RankView, Totals, totals, view_of, views
from torchstone.records import Peak, UsageError
from torchstone.records.monitoring import PHASE_NAMES, PHASES, RequestChunk, StepChunk
from torchstone.show.cells import cut, text_cell, when_s
from torchstone.show.monitor import (
    EVENTS,
    RANKS,
    clock_time,
    facts_of,
    flops_words,
    per_second_cell,
    phases_table,
    seconds_cell,
    state_cell,
)
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
    Progress,
    Section,
    Series,
    field,
    make_table,
)
from torchstone.show.table import sanitise
from torchstone.web.query import NotFound, Query
from torchstone.web.sources import DataAccess

PROGRESS = "/api/v1/progress/monitors"
"""Says when something was written."""
MOST_POINTS = 240
"""Of a chart; neighbouring seconds are put together."""
MOST_MARKS = 20
START = "torchstone monitor train.py"


def _first(view: MonitorView) -> RankView:
    return view.ranks[0] if view.ranks else RankView(0, 0, False, -1, Totals(), Totals(), {})


def _steps(view: MonitorView) -> Cell:
    steps = max((one.whole.steps for one in view.ranks), default=0)
    return Cell(steps, f"{steps:,}")


def _warnings(view: MonitorView) -> Cell:
    number = sum(event.level.value == "warn" for _, event in view.events)
    return Cell(number, str(number) if number else "", mark="doubt" if number else "")


MONITORS: tuple[Field[MonitorView], ...] = (
    field("monitor", "Monitor", lambda v: text_cell(v.name, Link("monitor", v.id))),
    field("id", "Id", lambda v: text_cell(v.id, longest=80)),
    field("state", "State", state_cell),
    field("kind", "Kind", lambda v: text_cell(v.kind)),
    field("ranks", "Ranks", lambda v: Cell(len(v.ranks), str(len(v.ranks))), True),
    field("steps", "Steps", _steps, True),
    field("rate", "Rate", lambda v: per_second_cell(_first(v).recent), True),
    field("median", "Median", lambda v: seconds_cell(_first(v).recent.times.quantile(0.5)), True),
    field("warnings", "Warnings", _warnings, True),
    field("started", "Started", lambda v: Cell(v.started_s, when_s(v.started_s))),
    field("last", "Last written", lambda v: Cell(v.last_s, when_s(v.last_s))),
)


def monitors(source: DataAccess, query: Query) -> Page:
    """Of this machine, those that wrote last first."""
    empty = f"No monitor is recorded on this machine. Start one: {START}."
    table = make_table("monitors", "", MONITORS, views(everything=True), empty=empty)
    lead = "Trainings and services of this machine; what they write is shown as it comes."
    return Page(
        "monitors",
        "Monitors",
        (table,),
        lead=lead,
        params=query.params,
        live=True,
        progress=PROGRESS,
    )


def monitors_progress() -> list[Progress]:
    """Those that run, for a page that asks again and again."""
    return [
        Progress(one.id, one.state, max((r.whole.steps for r in one.ranks), default=0), 0)
        for one in views()
    ]


def monitor(source: DataAccess, query: Query, ident: str) -> Page:
    """One monitor: its split, its ranks, what was found, and all of that over time."""
    try:
        record = find_record(ident)
    except UsageError as error:
        raise NotFound(error.message, error.remedy) from None
    view = view_of(record)
    sections: list[Section] = [_facts(view, _peak(source, view))]
    if view.slow_rank is not None:
        sections.append(Notice(sanitise(view.slow_rank.text), "warn"))
    if view.reason:
        sections.append(Notice(f"It ended: {sanitise(view.reason)}.", "warn"))
    sections.append(Group("Over time", tuple(_charts(record, view)), grid=True))
    first = _first(view).whole
    if first.phases_ns:
        sections.append(phases_table(first))
    pairs = [(view, rank) for rank in view.ranks]
    sections.append(make_table("ranks", "Ranks, in the last ten seconds", RANKS, pairs))
    empty = "Nothing out of the ordinary was seen."
    newest = list(reversed(view.events))
    sections.append(make_table("events", "Events", EVENTS, newest, empty=empty))
    sections += [Notice(f"Not seen: {sanitise(one)}") for one in view.unseen]
    return Page(
        "monitor",
        cut(sanitise(view.name), 80),
        tuple(sections),
        ident=view.id,
        crumbs=(("Monitors", Link("monitors")),),
        params=query.params,
        live=True,
        progress=PROGRESS,
    )


def _peak(source: DataAccess, view: MonitorView) -> Peak | None:
    if not view.flops_per_step:
        return None
    found = source.store.calibration(this_machine(), view.device)
    return None if found is None else found.peak(view.dtype, view.threads)


def _facts(view: MonitorView, peak: Peak | None) -> Facts:
    flops = flops_words(view, _first(view).recent, peak)
    items = (
        ("State", state_cell(view)),
        ("Id", text_cell(view.id, longest=80)),
        ("In all", text_cell(", ".join(facts_of(view)))),
        ("Command", text_cell(view.command, longest=200)),
        ("Started", Cell(view.started_s, when_s(view.started_s))),
        ("Last written", Cell(view.last_s, when_s(view.last_s))),
        *((("FLOP/s, in the last ten seconds", text_cell(flops, longest=200)),) if flops else ()),
    )
    return Facts("monitor", "", items)


def _charts(record: MonitorRecord, view: MonitorView) -> list[Chart]:
    parts = {rank.rank: _grouped(rank.chunks or rank.requests) for rank in record.ranks}
    marks = tuple(
        Event(event.time_s, f"{clock_time(event.time_s)} step {event.step:,}: {event.text}")
        for _, event in view.events
        if event.level.value == "warn"
    )[-MOST_MARKS:]
    several = len(parts) > 1

    def series(value: Callable[[Totals], float | None], name: str) -> tuple[Series, ...]:
        return tuple(
            Series(
                f"rank {rank}" if several else name,
                tuple(Point(at, value(one), label=clock_time(at)) for at, one in found),
            )
            for rank, found in parts.items()
        )

    what = "request" if view.kind == "requests" else "step"
    charts = [
        Chart(
            "times",
            f"Median {what}",
            "seconds",
            series(lambda one: one.times.quantile(0.5), "median"),
            events=marks,
            better="lower",
        ),
        Chart(
            "rss",
            "Memory",
            "bytes",
            series(lambda one: one.process.rss_bytes, "resident memory"),
            better="lower",
        ),
    ]
    if view.kind != "requests" and parts:
        first = next(iter(parts.values()))
        shares = tuple(
            Series(
                PHASE_NAMES[name],
                tuple(Point(at, one.share(name), label=clock_time(at)) for at, one in first),
            )
            for name in PHASES
            if any(one.share(name) is not None for _, one in first)
        )
        note = f"Of rank {next(iter(parts))}." if several else ""
        charts.insert(1, Chart("shares", "Where a step's time goes", "share", shares, note=note))
    return charts


def _grouped(chunks: Sequence[StepChunk | RequestChunk]) -> list[tuple[float, Totals]]:
    """At most so many points, each the sum of neighbouring chunks."""
    size = max(1, -(-len(chunks) // MOST_POINTS))
    found = []
    for start in range(0, len(chunks), size):
        part = chunks[start : start + size]
        found.append((part[-1].time_s, totals(part)))
    return found
