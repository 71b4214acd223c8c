"""What the API answers: a page's tables, charts and facts as data, of one documented shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from torchstone.show.markdown import plain as plain_records
from torchstone.show.page import (
    Chart,
    Code,
    Facts,
    Group,
    Notice,
    Page,
    Picture,
    Progress,
    Scalar,
    Table,
    walk,
)
from torchstone.web.tables import plain, table_data

API_SCHEMA = 1


@dataclass(frozen=True)
class ColumnDocument:
    """A column of a table."""

    key: str
    title: str
    unit: str
    number: bool


@dataclass(frozen=True)
class TableDocument:
    """A table: a record for each row, by the columns' keys."""

    name: str
    title: str
    columns: list[ColumnDocument]
    rows: list[dict[str, Scalar]]
    total: int | None
    """Rows before the table was cut to a page; null where they are not counted."""
    next: str = ""
    """The address of the rows after these."""
    note: str = ""


@dataclass(frozen=True)
class PointDocument:
    """One value of a line, at a run's time in UTC seconds."""

    time_s: float
    value: float | None
    low: float | None
    high: float | None
    label: str
    note: str
    n: int | None = None
    """Of a figure over cases: how many are in it."""
    of: int | None = None
    """How many count in that run."""
    partial: bool = False
    """The run ended before it came to all of them."""


@dataclass(frozen=True)
class SeriesDocument:
    """One line of a chart."""

    name: str
    points: list[PointDocument]


@dataclass(frozen=True)
class ChartDocument:
    """A chart's values. `data` holds those of pictures that are not over time."""

    name: str
    title: str
    unit: str
    series: list[SeriesDocument]
    data: Any = None
    note: str = ""


@dataclass(frozen=True)
class NoticeDocument:
    """A sentence that a reader must know."""

    level: str
    text: str
    remedy: str


@dataclass(frozen=True)
class NoteDocument:
    """What stands below several tables or charts."""

    title: str
    text: str


@dataclass(frozen=True)
class ProgressDocument:
    """How far a run is."""

    id: str
    state: str
    done: int
    planned: int
    outcomes: dict[str, int] = field(default_factory=dict)
    case: str = ""
    """What is measured just now."""


@dataclass(frozen=True)
class LiveDocument:
    """Runs that are measured now. `state` changes whenever something stored does."""

    state: str
    runs: list[ProgressDocument]


@dataclass(frozen=True)
class PageDocument:
    """Whatever a page shows."""

    schema: int
    page: str
    title: str
    lead: str
    query: dict[str, str]
    facts: dict[str, dict[str, Scalar]]
    words: dict[str, dict[str, str]]
    """The facts as people read them: with unit, interval and denominator."""
    tables: dict[str, TableDocument]
    charts: dict[str, ChartDocument]
    texts: dict[str, str]
    notices: list[NoticeDocument]
    notes: list[NoteDocument]
    progress: list[ProgressDocument]


@dataclass(frozen=True)
class ErrorDocument:
    """What went wrong, and what helps."""

    error: str
    remedy: str = ""


def page_data(page: Page, whole: bool = False) -> dict[str, Any]:
    """The page as plain data. `whole`: with every row of long tables, not the page's alone."""
    parts = walk(page.sections)
    facts = [one for one in parts if isinstance(one, Facts)]
    words = {
        one.name: {name: plain(f"{cell.text} {cell.detail}".strip()) for name, cell in one.items}
        for one in facts
    }
    return {
        "schema": API_SCHEMA,
        "page": page.name,
        "title": plain(page.title),
        "lead": plain(page.lead),
        "query": {name: plain(value) for name, value in page.params},
        "facts": {one.name: {name: plain(cell.value) for name, cell in one.items} for one in facts},
        "words": words,
        "tables": {one.name: table_data(one, whole) for one in parts if isinstance(one, Table)},
        "charts": {one.name: chart_data(one) for one in parts if isinstance(one, (Chart, Picture))},
        "texts": {one.name: plain(one.text) for one in parts if isinstance(one, Code)},
        "notices": [_picked(NoticeDocument, one) for one in parts if isinstance(one, Notice)],
        "notes": [
            {"title": plain(one.title), "text": plain(one.note)}
            for one in parts
            if isinstance(one, Group) and one.note
        ],
        "progress": [progress_data(one) for one in parts if isinstance(one, Progress)],
    }


def _picked(document: type, record: object, **rest: Any) -> dict[str, Any]:
    """A document's fields, in its order: from the record, but for those that are given."""
    names = [one.name for one in fields(document)]
    return {n: rest[n] if n in rest else plain(getattr(record, n)) for n in names}


def chart_data(chart: Chart | Picture) -> dict[str, Any]:
    """A chart's values, or what a picture is drawn from."""
    if isinstance(chart, Picture):
        return _picked(ChartDocument, chart, unit="", series=[], data=_drawn_from(chart.data))
    points = [f.name for f in fields(PointDocument)]
    series = [
        {
            "name": plain(one.name),
            "points": [{n: plain(getattr(point, n)) for n in points} for point in one.points],
        }
        for one in chart.series
    ]
    return _picked(ChartDocument, chart, series=series, data=None)


def _drawn_from(data: object) -> Any:
    """The records of a picture as plain data; sets become lists."""
    if isinstance(data, (set, frozenset)):
        return sorted(data)
    if isinstance(data, (list, tuple)):
        return [_drawn_from(one) for one in data]
    if is_dataclass(data) and not isinstance(data, type):
        return {f.name: _drawn_from(getattr(data, f.name)) for f in fields(data)}
    return plain_records(data)


def progress_data(one: Progress) -> dict[str, Any]:
    """How far a run is."""
    return _picked(ProgressDocument, one, id=plain(one.run), outcomes=dict(one.parts))


def live_data(state: str, progress: Sequence[Progress]) -> dict[str, Any]:
    """The small answer that pages ask for again and again."""
    return {"state": state, "runs": [progress_data(one) for one in progress]}
