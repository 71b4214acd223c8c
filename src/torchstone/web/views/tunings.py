"""Stored tunings, and one of them: the adopted steps, every experiment, time against memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchstone.records import Decision, Experiment, Stage, TorchstoneError, Tuning
from torchstone.records.format import format_seconds
from torchstone.show.cells import number_cell, text_cell, when
from torchstone.show.charts import IntervalRow, ScatterPoint
from torchstone.show.page import (
    Cell,
    Code,
    Facts,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Picture,
    Section,
    field,
    make_table,
)
from torchstone.show.table import sanitise
from torchstone.show.tune import FIELDS, final, headline
from torchstone.store.tunings import TuningSummary
from torchstone.tuning.decide import pareto
from torchstone.web.query import NotFound, Query
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged

MOST = 10_000
_LONG = 300
LIST: tuple[Field[TuningSummary], ...] = (
    field("tuning", "Tuning", lambda t: text_cell(t.id, Link("tuning", t.id))),
    field("target", "Target", lambda t: text_cell(t.target)),
    field("mode", "Mode", lambda t: text_cell(t.mode)),
    field("goal", "Goal", lambda t: text_cell(t.goal)),
    field("state", "State", lambda t: text_cell(t.state)),
    field("measured", "Measured", lambda t: number_cell(t.experiments), True),
    field("adopted", "Adopted", lambda t: text_cell(", ".join(t.adopted))),
    field(
        "speedup",
        "Speed-up",
        lambda t: Cell(t.speedup, f"{t.speedup:.3g}×" if t.speedup else ""),
        True,
        "×",
    ),
    field("created", "Made", lambda t: Cell(t.created, when(t.created))),
)


def _evidence(one: Experiment) -> Cell:
    to = Link("result", one.result_id) if one.result_id else None
    return Cell(one.result_id, "samples" if to else "", to)


EXPERIMENTS: tuple[Field[Experiment], ...] = (
    *(replace(one, column=replace(one.column, wide=False)) for one in FIELDS),
    field("evidence", "Evidence", _evidence),
)
"""The report's columns, with a link to the samples behind each."""


def tunings(source: DataAccess, query: Query) -> Page:
    """The newest first."""
    empty = "No tuning is stored yet. Make one with `torchstone tune TARGET`."
    table = make_table("tunings", "", LIST, source.store.list_tunings(MOST), empty=empty)
    here = Link("tunings", "", query.params)
    table = replace(arranged(table, query, here), sortable=False)
    lead = "Each technique that makes a target faster, proven and written to a recipe."
    return Page("tunings", "Tunings", (table,), lead=lead, params=query.params)


def tuning(source: DataAccess, query: Query, ident: str) -> Page:
    """One tuning, whole."""
    try:
        found = source.store.load_tuning(ident)
    except TorchstoneError as error:
        raise NotFound(error.message, error.remedy) from None
    crumbs = (("Tunings", Link("tunings")),)
    title = f"Tuning of {sanitise(found.arm.target)}"
    sections = tuple(_sections(found))
    return Page("tuning", title, sections, found.id, crumbs=crumbs, params=query.params)


def _sections(found: Tuning) -> Iterable[Section]:
    yield Notice(sanitise(headline(found)))
    yield _facts(found)
    yield from _ladder(found)
    yield make_table("experiments", "Experiments", EXPERIMENTS, final(found))
    yield from _plot(found)
    if found.recipe:
        yield Code("recipe", "Recipe", found.recipe)
    if found.findings:
        told = tuple(Notice(sanitise(one)[:_LONG]) for one in found.findings)
        yield Group("By hand", told)
    yield Group("How it was decided", tuple(Notice(sanitise(one)) for one in found.rules), True)


def _facts(found: Tuning) -> Facts:
    arm, environment = found.arm, found.environment
    items = {
        "Mode": arm.mode,
        "Precision": arm.precision,
        "Device": arm.device,
        "Goal": found.goal,
        "Answers": found.allow,
        "State": found.state,
        "Wall time": format_seconds(found.elapsed_s, 3),
        "torch": environment.torch.get("version", "") if environment else "",
    }
    told = ((name, text_cell(text)) for name, text in items.items() if text)
    return Facts("asked", "Asked", tuple(told))


def _ladder(found: Tuning) -> Iterable[Section]:
    """Each adopted step against the ones before, and all of them from the recipe file."""
    steps = [(f"+ {one.technique}", one) for one in found.ladder]
    if found.confirmation is not None:
        steps.append(("all, from the recipe file", found.confirmation))
    rows = tuple(_row(name, one) for name, one in steps if one.speedup)
    if rows:
        note = "Each step against the ones before it; the last against the baseline."
        yield Picture("ladder", "Adopted steps: speed-up", rows, note)


def _row(name: str, one: Experiment) -> IntervalRow:
    low, high = (1 / one.interval[1], 1 / one.interval[0]) if one.interval else (None, None)
    verdict = "better" if one.decision is Decision.ADOPTED else "unsure"
    return IntervalRow(name, one.speedup or 1.0, low, high, verdict=verdict)


def _plot(found: Tuning) -> Iterable[Section]:
    """Time against memory of what was measured against the baseline."""
    front = pareto(found.experiments)
    points = tuple(
        ScatterPoint(one.technique, one.time_ratio, one.memory_ratio, one in front)
        for one in found.experiments
        if one.stage is not Stage.SELECT
        and one.time_ratio is not None
        and one.memory_ratio is not None
        and one.decision not in (Decision.WRONG_ANSWER, Decision.FAILED)
    )
    if points:
        note = "Shares of the baseline; less is better. No other beats those on the line in both."
        yield Picture("pareto", "Time and memory", points, note)
