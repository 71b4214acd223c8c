"""What a page shows, as plain records: pages, API, CSV and static files are all made from these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Any, Generic, NamedTuple, TypeVar, overload

Scalar = str | float | int | bool | None

MARKS = {
    "better": "▲",
    "worse": "▼",
    "same": "=",
    "not-worse": "≥",
    "not-better": "≤",
    "doubt": "?",
    "unsure": "?",
    "fail": "✗",
    "pass": "✓",
    "running": "●",
    "quiet": "",
}
"""What a mark looks like without colour; `quiet` is only paler, and so is `unsure`."""


@dataclass(frozen=True)
class Link:
    """Where a link leads: a page, the thing it is about, and what its URL says. See `links`."""

    page: str
    ident: str = ""
    params: tuple[tuple[str, str], ...] = ()


class Cell(NamedTuple):
    """One figure or word. `value` is what JSON and CSV hold, `text` what is read by people.

    A tuple, because a page has thousands, and a frozen dataclass takes four times as long to make.
    """

    value: Scalar = None
    text: str = ""
    to: Link | None = None
    mark: str = ""
    detail: str = ""
    """Smaller, after the text: an interval, a denominator."""
    title: str = ""
    """The whole of what `text` cuts short, shown on hover."""
    over: str = ""
    """`of 5`: how many cases a mean is over. Terminal and Markdown show it, pages on hover."""


@dataclass(frozen=True)
class Column:
    """A column. Those that are not `shown` are in the JSON and the CSV alone."""

    key: str
    title: str
    number: bool = False
    unit: str = ""
    shown: bool = True
    help: str = ""
    group: str = ""
    """A heading over neighbouring columns, such as `base`."""
    band: int = 0
    """Columns of one band stay together where a terminal is too narrow for all."""
    wide: bool = False
    """Left out on terminals of fewer than 130 columns."""


@dataclass(frozen=True)
class Table:
    """Rows of cells. `total` is how many there are before cutting to a page; None: not counted."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""
    empty: str = "There is nothing to show."
    sort: str = ""
    """A column's key, with `-` before it for the largest first; empty: in their own order."""
    total: int | None = 0
    start: int = 0
    """How many rows come before these."""
    more: Link | None = None
    """Where the rows after these are."""
    whole: Callable[[], Iterable[tuple[Cell, ...]]] | None = attribute(default=None, compare=False)
    """Makes every row, where these are a part."""
    same: object = attribute(default=None, compare=False)
    """Equal as long as every row is: what was made of all of them may be kept. None: not known."""
    to: Link | None = None
    """Where the title leads."""
    sortable: bool = False
    """Whether the server puts it in order; others are sorted in the browser alone."""
    heads: Mapping[int, tuple[str, str]] = attribute(default_factory=dict, compare=False)
    """Headings, each with an aside, before the rows of these numbers; terminals alone."""


Item = TypeVar("Item")


@dataclass(frozen=True)
class Field(Generic[Item]):
    """A column and what stands in it: declared together, so that they cannot drift apart."""

    column: Column
    cell: Callable[[Item], Cell]


def field(
    key: str,
    title: str,
    cell: Callable[[Item], Cell],
    number: bool = False,
    unit: str = "",
    **column: Any,
) -> Field[Item]:
    """A column that is shown."""
    return Field(Column(key, title, number, unit, **column), cell)


def hidden(
    key: str, title: str, value: Callable[[Item], Scalar], number: bool = True, unit: str = ""
) -> Field[Item]:
    """A column that only programs read: it is in the JSON and the CSV alone."""
    return Field(Column(key, title, number, unit, shown=False), lambda item: Cell(value(item)))


def ends(
    key: str, title: str, interval: Callable[[Item], tuple[float, float] | None]
) -> tuple[Field[Item], ...]:
    """Both ends of an interval, each in a hidden column of its own."""

    def end(place: int, name: str) -> Field[Item]:
        def value(item: Item) -> float | None:
            return (interval(item) or (None, None))[place]

        return hidden(f"{key}_{name}", f"{title}, {name} end", value, unit="×")

    return end(0, "low"), end(1, "high")


class LazyRows(Sequence[tuple[Cell, ...]], Generic[Item]):
    """Rows that are made when they are looked at: a page shows few of thousands of cases."""

    def __init__(self, items: Sequence[Item], fields: Sequence[Field[Item]]) -> None:
        self._items = items
        self._fields = fields

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> tuple[Cell, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[Cell, ...]]: ...
    def __getitem__(self, place: int | slice) -> tuple[Cell, ...] | Sequence[tuple[Cell, ...]]:
        """One row, or those of a slice."""
        if isinstance(place, slice):
            return tuple(self._row(item) for item in self._items[place])
        return self._row(self._items[place])

    def _row(self, item: Item) -> tuple[Cell, ...]:
        return tuple([one.cell(item) for one in self._fields])


def make_table(
    name: str,
    title: str,
    fields: Sequence[Field[Item]],
    items: Sequence[Item],
    *,
    without: Collection[str] = (),
    **rest: Any,
) -> Table:
    """A row an item. Columns of the keys `without` are left to the JSON and the CSV."""
    columns = tuple(
        replace(one.column, shown=False) if one.column.key in without else one.column
        for one in fields
    )
    return Table(name, title, columns, LazyRows(items, fields), **{"total": len(items), **rest})


class Point(NamedTuple):
    """One run's value in a chart. `value` None: the run has its place, but no value."""

    time_s: float
    value: float | None
    low: float | None = None
    high: float | None = None
    label: str = ""
    """On the axis: the commit, or the run."""
    note: str = ""
    to: Link | None = None
    failed: bool = False
    """The run has the case, and it did not pass."""
    n: int | None = None
    """Of a figure over cases: how many are in it."""
    of: int | None = None
    """How many count in that run."""
    partial: bool = False
    """The run ended before it came to all of them."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Event:
    """Something at a time in a chart: a change point, a new torch."""

    time_s: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A figure over time. `unit` is `ratio`, `seconds`, `bytes`, `share` or `count`."""

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    note: str = ""
    empty: str = "No run in this range has the figure."
    events: tuple[Event, ...] = ()
    better: str = ""
    """`higher` or `lower`: which way is good."""
    small: bool = False
    """One of several in a row."""


@dataclass(frozen=True)
class Picture:
    """A picture that is not over time: `data` are the records it is drawn from (see `drawing`)."""

    name: str
    title: str
    data: object
    note: str = ""
    empty: str = "There is nothing to draw."


@dataclass(frozen=True)
class Facts:
    """Names with values, in two columns."""

    name: str
    title: str
    items: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True)
class Headline(Facts):
    """Counts in words, each a link: what a reader wants to know first. Stands above the choices."""


@dataclass(frozen=True)
class Code:
    """A command to copy, or a text as it was left behind."""

    name: str
    title: str
    text: str
    copy: bool = True


@dataclass(frozen=True)
class Notice:
    """A sentence that a reader must see; `level` is `note`, `warn` or `fail`."""

    text: str
    level: str = "note"
    remedy: str = ""
    to: Link | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    run: str
    state: str
    done: int
    planned: int
    parts: tuple[tuple[str, int], ...] = ()
    """Outcomes with their counts, failures last."""
    text: str = ""
    case: str = ""
    """What is measured just now."""
    to: Link | None = None


@dataclass(frozen=True)
class Group:
    """Sections under one heading. `folded` ones open on a click."""

    title: str
    sections: tuple[Section, ...]
    folded: bool = False
    grid: bool = False
    """Side by side where there is room."""
    note: str = ""


Section = Table | Chart | Picture | Facts | Code | Notice | Progress | Group


@dataclass(frozen=True)
class Choice:
    """One droplist, check box or search field."""

    name: str
    label: str
    value: str
    options: tuple[tuple[str, str], ...] = ()
    kind: str = "select"
    """`select`, `check` or `search`."""
    help: str = ""


@dataclass(frozen=True)
class Controls:
    """A form whose answers are the page's URL. `hidden` is kept as it is."""

    to: Link
    choices: tuple[Choice, ...]
    hidden: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Page:
    """One page, whole."""

    name: str
    title: str
    sections: tuple[Section, ...] = ()
    ident: str = ""
    lead: str = ""
    crumbs: tuple[tuple[str, Link], ...] = ()
    controls: Controls | None = None
    params: tuple[tuple[str, str], ...] = ()
    """What the URL says, in one order: the page's own address, defaults left out."""
    actions: tuple[tuple[str, Link], ...] = ()
    status: int = 200
    watched: str = attribute(default="")
    """The run whose progress the page follows; empty: whatever runs."""
    progress: str = ""
    """The address that says when an open page has changed; empty: that of runs."""
    live: bool = False
    """Whether an open page is kept up to date; elsewhere a newer state is offered."""


def walk(sections: Sequence[Section]) -> list[Section]:
    """All sections, those inside groups too, in order."""
    found: list[Section] = []
    for section in sections:
        found.append(section)
        if isinstance(section, Group):
            found += walk(section.sections)
    return found


def tables_of(page: Page) -> dict[str, Table]:
    """The tables by name."""
    return {one.name: one for one in walk(page.sections) if isinstance(one, Table)}


def charts_of(page: Page) -> dict[str, Chart | Picture]:
    """Charts and pictures by name."""
    return {one.name: one for one in walk(page.sections) if isinstance(one, (Chart, Picture))}
