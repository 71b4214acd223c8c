"""Stored scalings, and one of them: an arm a row, efficiency with intervals, communication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchstone.records import TorchstoneError
from torchstone.records.format import count
from torchstone.records.scaling import PLAIN, RankArm, Scaling
from torchstone.show.cells import number_cell, text_cell, when
from torchstone.show.charts import IntervalRow
from torchstone.show.page import Cell, Facts, Field, Link, Notice, Page, Picture, Section, field
from torchstone.show.page import make_table as table
from torchstone.show.scaling import ARMS, communication_of
from torchstone.show.table import sanitise
from torchstone.store.tunings import ScalingSummary
from torchstone.web.query import NotFound, Query
from torchstone.web.sources import DataAccess
from torchstone.web.tables import arranged

MOST = 10_000
LIST: tuple[Field[ScalingSummary], ...] = (
    field("scaling", "Scaling", lambda one: text_cell(one.id, Link("scaling", one.id))),
    field("target", "Target", lambda one: text_cell(one.target)),
    field("batch", "Batch", lambda one: text_cell(_fixed(one.scaling))),
    field("arms", "Arms", lambda one: number_cell(one.arms), True),
    field(
        "failed",
        "Failed",
        lambda one: Cell(one.failed, str(one.failed), mark="fail" if one.failed else ""),
        True,
    ),
    field("created", "Made", lambda one: Cell(one.created, when(one.created))),
)
MOVED: tuple[Field[RankArm], ...] = (
    field("arm", "Arm", lambda arm: text_cell(arm.name)),
    field(
        "moved", "A step's communication", lambda arm: text_cell(communication_of(arm), longest=300)
    ),
)


def scalings(source: DataAccess, query: Query) -> Page:
    """The newest first."""
    empty = "No scaling is stored yet. Make one with `torchstone scaling TARGET`."
    listed = table("scalings", "", LIST, source.store.list_scalings(MOST), empty=empty)
    here = Link("scalings", "", query.params)
    listed = replace(arranged(listed, query, here), sortable=False)
    lead = "How much of each further rank arrives: efficiency, communication, gradients."
    return Page("scalings", "Scaling over ranks", (listed,), lead=lead, params=query.params)


def scaling(source: DataAccess, query: Query, ident: str) -> Page:
    """One of them, whole."""
    try:
        found = source.store.load_scaling(ident)
    except TorchstoneError as error:
        raise NotFound(error.message, error.remedy) from None
    crumbs = (("Scaling", Link("scalings")),)
    title = f"Scaling of {sanitise(found.target)}"
    return Page(
        "scaling", title, tuple(_sections(found)), found.id, crumbs=crumbs, params=query.params
    )


def _fixed(scaling: str) -> str:
    return "of a rank (weak)" if scaling == "weak" else "of all ranks (strong)"


def _sections(found: Scaling) -> Iterable[Section]:
    for text in found.findings:
        yield Notice(sanitise(text), "warn")
    threads = f"{count(found.threads, 'thread')} a rank on {count(found.cores, 'core')}"
    facts = {"Fixed batch": _fixed(found.scaling), "Threads": threads, "torch": found.torch}
    yield Facts("asked", "Asked", tuple((name, text_cell(text)) for name, text in facts.items()))
    yield table("arms", "Arms", ARMS, found.arms)
    rows = tuple(_row(arm) for arm in found.arms if arm.ranks > 1 and arm.efficiency)
    if rows:
        note = "Against one rank through the same wrapper; 1 is perfect scaling."
        yield Picture("efficiency", "Efficiency", rows, note)
    moved = [arm for arm in found.arms if arm.communication is not None and arm.ranks > 1]
    if moved:
        yield table("moved", "Communication", MOVED, moved)


def _row(arm: RankArm) -> IntervalRow:
    one = next((one for one in arm.efficiency if one.against != PLAIN), arm.efficiency[0])
    low, high = one.interval
    known = high < float("inf")
    return IntervalRow(
        arm.name, one.value, low if known else None, high if known else None, verdict="none"
    )
