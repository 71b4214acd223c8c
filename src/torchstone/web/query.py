"""What a URL asks for, read and checked. The whole state of a page is in its URL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from typing import Protocol
from urllib.parse import quote, quote_plus

from torchstone.records import Selection, TorchstoneError
from torchstone.show.page import Link
from torchstone.track import ACROSS

LONGEST = 600
"""Characters of one value: a model's name has at most 500."""
MOST_PAGES = 10_000
PAGE_DIGITS = 9
ALL = "all"
"""The value of a droplist that leaves everything in; empty is the default."""
RANGES = {
    "1": "last day",
    "7": "last 7 days",
    "14": "last 14 days",
    "30": "last 30 days",
    "90": "last 90 days",
    "180": "last 180 days",
    "365": "last year",
    ALL: "all time",
}
GRANULARITIES = {"run": "every run", "day": "one run a day", "week": "one run a week"}
DAY_S = 86_400.0
EVERY_S = {"run": 0.0, "day": DAY_S, "week": 7 * DAY_S}
"""The stretches of which a granularity shows the last run: a mean would hide which run it was."""

_SORT = re.compile(r"-?[a-z][a-z0-9_]{0,39}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z?)?")
_NAMES = {"since": "from", "until": "to"}
"""Fields whose name in the URL is a word that Python keeps for itself."""


class BadQuery(TorchstoneError):
    """The URL asks for something that cannot be; the page says what can."""


class NotFound(TorchstoneError):
    """What the URL names is not stored."""


@dataclass(frozen=True)
class Query:
    """The parameters of a page, all as they were given; empty ones are to be filled in."""

    suite: str = ""
    model: str = ""
    scale: str = ""
    mode: str = ""
    precision: str = ""
    variant: str = ""
    device: str = ""
    threads: str = ""
    allocator: str = ""
    machine: str = ""
    branch: str = ""
    torch: str = ""
    base: str = ""
    new: str = ""
    range: str = ""
    since: str = ""
    until: str = ""
    granularity: str = ""
    common: str = ""
    across: str = ""
    base_variant: str = ""
    outcome: str = ""
    sort: str = ""
    filter: str = ""
    page: str = ""
    before: str = ""

    @cached_property
    def params(self) -> tuple[tuple[str, str], ...]:
        """What was given, in one order."""
        given = ((_NAMES.get(f.name, f.name), getattr(self, f.name)) for f in fields(self))
        return tuple((name, value) for name, value in given if value)

    def kept(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Those of the given parameters that have one of these names."""
        return tuple((name, value) for name, value in self.params if name in names)

    @property
    def only_common(self) -> bool:
        """Whether cases of one run alone are left out."""
        return bool(self.common)

    @property
    def allowed(self) -> frozenset[str]:
        """What may differ between two runs that are compared."""
        return frozenset(word for word in self.across.split(",") if word)

    @property
    def page_number(self) -> int:
        """From 1."""
        return int(self.page) if self.page else 1


EXPLAINED = {
    "suite": "A suite's name.",
    "model": "A model's name.",
    "scale": "`small`, `full` or `all`.",
    "mode": "`inference`, `training` or `all`.",
    "precision": "Such as `fp32`; `all` for every one.",
    "variant": "Such as `inductor`; `all` for every one.",
    "device": "Such as `cpu`; `all` for every one.",
    "threads": "A thread count; `all` for every one.",
    "allocator": "Such as `keep`; `all` for every one.",
    "machine": "A machine's id; `all` for every one.",
    "branch": "A branch; `all` for every one.",
    "torch": "A torch version; `all` for every one.",
    "base": "The run to compare with: any word that `torchstone compare` takes, but no file.",
    "new": "The run that is looked at, named in the same way.",
    "range": f"Days before the newest run: {', '.join(RANGES)}.",
    "from": "Instead of a range: from this time on (UTC, `2026-01-31` or `2026-01-31T12:00`).",
    "to": "Instead of a range: up to this time.",
    "granularity": f"{', '.join(f'`{name}`' for name in GRANULARITIES)}: how many runs are drawn.",
    "common": "`1`: only cases that both runs have.",
    "across": f"What may differ, with commas: {', '.join(ACROSS)}; torch may anyway.",
    "base_variant": "Of a comparison of variants: the base's; `variant` must name the new one's.",
    "outcome": "Only cases that ended so.",
    "sort": "A column's key; with `-` before it the largest first.",
    "filter": "Only rows that hold this text.",
    "page": "Which part of a long table, from 1.",
    "before": "Only runs stored before this one.",
}
"""What each parameter means, for the API's description."""


def parse(given: Iterable[tuple[str, str]]) -> Query:
    """The query of a URL; `BadQuery` for what no page could mean. Other names are left alone."""
    known = {_NAMES.get(field.name, field.name): field.name for field in fields(Query)}
    values: dict[str, str] = {}
    for name, value in given:
        if name in known and value:
            values[known[name]] = _checked(name, value)
    query = Query(**values)
    _check_choices(query)
    return query


def _checked(name: str, value: str) -> str:
    if len(value) > LONGEST:
        raise BadQuery(f"{name} is longer than {LONGEST} characters.", "Shorten it.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadQuery(f"{name} is not text.") from None
    if "\0" in value:
        raise BadQuery(f"{name} holds a null character.")
    return value


def _check_choices(query: Query) -> None:
    _one_of("range", query.range, RANGES)
    _one_of("granularity", query.granularity, GRANULARITIES)
    _one_of("common", query.common, ("1",))
    for word in query.allowed:
        _one_of("across", word, ACROSS)
    for name, in_url in _NAMES.items():
        seconds_of(in_url, getattr(query, name))
    if query.sort and not _SORT.fullmatch(query.sort):
        raise BadQuery(f"{shown(query.sort)} is not a column to sort by.", "Click on a heading.")
    if query.page and not (query.page.isascii() and query.page.isdigit()):
        raise BadQuery(f"{shown(query.page)} is not the number of a page.", "Count from 1.")
    too_long = len(query.page) > PAGE_DIGITS
    if query.page and (too_long or not 1 <= int(query.page) <= MOST_PAGES):
        raise BadQuery(f"There is no page {shown(query.page)}.", "Count from 1.")
    if query.threads not in ("", ALL) and not re.fullmatch(r"[0-9]{1,6}", query.threads):
        raise BadQuery(f"{shown(query.threads)} is not a number of threads.")


def _one_of(name: str, value: str, choices: Iterable[str]) -> None:
    if value and value not in choices:
        raise BadQuery(
            f"{shown(value)} is not a choice of {name}.", f"Choose from {', '.join(choices)}."
        )


def shown(value: str) -> str:
    """A value from outside in a sentence: short, quoted, on one line."""
    return repr(value if len(value) <= 60 else value[:57] + "…")


def seconds_of(name: str, value: str) -> float | None:
    """The UTC seconds of a date in the URL; None without one."""
    if not value:
        return None
    if not _DATE.fullmatch(value):
        raise BadQuery(f"{name}: {shown(value)} is not a date.", "Write it as 2026-01-31T12:00.")
    try:
        moment = datetime.fromisoformat(value.removesuffix("Z"))
        return moment.replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        raise BadQuery(f"{name}: there is no such day as {shown(value)}.") from None


def selection(query: Query, newest_s: float | None = None) -> Selection:
    """Which cases and runs are meant. A range counts back from `newest_s`; without it, no range."""
    since, until = seconds_of("from", query.since), seconds_of("to", query.until)
    if since is None and until is None and newest_s is not None and query.range != ALL:
        since = newest_s - float(query.range or "7") * DAY_S

    def one(value: str) -> str:
        return "" if value == ALL else value

    return Selection(
        suite=one(query.suite),
        model=one(query.model),
        scale=one(query.scale),
        mode=one(query.mode),
        precision=one(query.precision),
        variant=one(query.variant),
        device=one(query.device),
        threads=int(query.threads) if query.threads not in ("", ALL) else None,
        allocator=one(query.allocator),
        machine_id=one(query.machine),
        branch=one(query.branch),
        torch=one(query.torch),
        since_s=since,
        until_s=until,
    )


def with_defaults(query: Query, **defaults: str) -> Query:
    """The same with what is still empty filled in."""
    missing = {name: value for name, value in defaults.items() if not getattr(query, name)}
    return replace(query, **missing)


# Every address of the dashboard: routes for the server, file names for the static site.


API = "/api/v1"
ROUTES = {
    "landing": "/",
    "suite": "/suite",
    "case": "/case",
    "compare": "/compare",
    "failures": "/failures",
    "machines": "/machines",
    "machine": "/machines/{}",
    "runs": "/runs",
    "run": "/runs/{}",
    "profiles": "/profiles",
    "profile": "/profiles/{}",
    "profile-view": "/profiles/{}/view",
    "result": "/result/{}",
}
"""The path of each page; the braces stand for what it is about."""
LANDING_API = "/landing"

_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 48
_DIGITS = 10


class Links(Protocol):
    """From places to addresses. An empty text: it is not to be had here."""

    def __hash__(self) -> int:
        """What was made with these links may be kept under them."""

    @property
    def static(self) -> bool:
        """Whether there is no server behind the pages."""

    def url(self, place: Link | None) -> str:
        """The page's address."""

    def asset(self, name: str) -> str:
        """The address of a stylesheet or script."""

    def table(self, place: Link, name: str, ending: str) -> str:
        """The address of a table as `csv` or `json`."""

    def chart(self, place: Link, name: str) -> str:
        """The address of a chart as SVG."""

    def data(self, place: Link) -> str:
        """The address of the whole page as JSON."""


@dataclass(frozen=True)
class ServerLinks:
    """Routes of the running server. `version` changes with the assets, so that they may be kept."""

    version: str = ""
    static: bool = False

    def url(self, place: Link | None) -> str:
        """The route with its query."""
        return "" if place is None else _route(place)

    def asset(self, name: str) -> str:
        """Under a name that changes when the content does."""
        return f"/assets/{quote(name)}?v={self.version}"

    def table(self, place: Link, name: str, ending: str) -> str:
        """A route of the API."""
        params = (*place.params, ("format", ending))
        return _with_query(f"{api_path(place)}/tables/{quote(name, safe='')}", params)

    def chart(self, place: Link, name: str) -> str:
        """A route of the API."""
        return _with_query(f"{api_path(place)}/charts/{quote(name, safe='')}.svg", place.params)

    def data(self, place: Link) -> str:
        """A route of the API."""
        return _with_query(api_path(place), place.params)


@dataclass(frozen=True)
class SiteLinks:
    """Names of files, all in one folder, so that pages can be opened from disk.

    Only pages that are `wanted` are linked.
    """

    wanted: Callable[[Link], bool]
    static: bool = True

    def url(self, place: Link | None) -> str:
        """The file's name, or nothing where no file is written."""
        return file_of(place) if place is not None and self.wanted(place) else ""

    def asset(self, name: str) -> str:
        """In a folder of their own."""
        return f"assets/{name}"

    def table(self, place: Link, name: str, ending: str) -> str:
        """In a folder of their own; as JSON they are in the page's."""
        return f"data/{data_name(place, name, ending)}" if ending == "csv" else ""

    def chart(self, place: Link, name: str) -> str:
        """In a folder of their own."""
        return f"data/{data_name(place, name, 'svg')}"

    def data(self, place: Link) -> str:
        """In a folder of their own."""
        return f"data/{data_name(place, 'page', 'json')}"


def file_of(place: Link) -> str:
    """The name of a page's file: readable, and different for different pages."""
    if place == Link("landing"):
        return "index.html"
    if not place.ident and not place.params:
        return f"{place.page}.html"
    told = " ".join((place.ident, *(value for _, value in place.params))).lower()
    slug = _SLUG.sub("-", told).strip("-")[:_SLUG_LENGTH].strip("-")
    said = repr((place.page, place.ident, place.params)).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(said).hexdigest()[:_DIGITS]
    return f"{place.page}-{slug}-{digest}.html" if slug else f"{place.page}-{digest}.html"


def data_name(place: Link, name: str, ending: str) -> str:
    """The name of a file beside a page."""
    return f"{file_of(place).removesuffix('.html')}.{_SLUG.sub('-', name.lower())}.{ending}"


def api_path(place: Link) -> str:
    """The path of a page's data."""
    return API + (LANDING_API if place.page == "landing" else _path(place))


@lru_cache(maxsize=8192)  # all charts of a page, and many figures, lead to the same places
def _route(place: Link) -> str:
    return _with_query(_path(place), place.params)


def _path(place: Link) -> str:
    return ROUTES[place.page].format(quote(place.ident, safe=""))


def _with_query(path: str, params: tuple[tuple[str, str], ...]) -> str:
    if not params:
        return path
    return f"{path}?{'&'.join([f'{_quoted(name)}={_quoted(value)}' for name, value in params])}"


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    """A page's links say the same few words over and over."""
    return quote_plus(text)
