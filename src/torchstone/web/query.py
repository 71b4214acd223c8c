"""What a URL asks for, read and checked. The whole state of a page is in its URL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

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
_NAMED = ("suite", "model", "scale", "mode", "precision", "variant", "device", "allocator")
_SELECTED = {name: name for name in (*_NAMED, "branch", "torch")} | {"machine": "machine_id"}
"""Parameters that select cases and runs, and the field of a selection that each is."""


class BadQuery(TorchstoneError):
    """The URL asks for something that cannot be; the page says what can."""


class NotFound(TorchstoneError):
    """What the URL names is not stored."""


def _asked(explained: str) -> str:
    """A parameter that may be left out; what it means is for the API's description."""
    return field(default="", metadata={"explained": explained})


@dataclass(frozen=True)
class Query:
    """The parameters of a page, all as they were given; empty ones are to be filled in."""

    suite: str = _asked("A suite's name.")
    model: str = _asked("A model's name.")
    scale: str = _asked("`small`, `full` or `all`.")
    mode: str = _asked("`inference`, `training` or `all`.")
    precision: str = _asked("Such as `fp32`; `all` for every one.")
    variant: str = _asked("Such as `inductor`; `all` for every one.")
    device: str = _asked("Such as `cpu`; `all` for every one.")
    threads: str = _asked("A thread count; `all` for every one.")
    allocator: str = _asked("Such as `keep`; `all` for every one.")
    machine: str = _asked("A machine's id; `all` for every one.")
    branch: str = _asked("A branch; `all` for every one.")
    torch: str = _asked("A torch version; `all` for every one.")
    base: str = _asked(
        "The run to compare with: any word that `torchstone compare` takes, but no file."
    )
    new: str = _asked("The run that is looked at, named in the same way.")
    range: str = _asked(f"Days before the newest run: {', '.join(RANGES)}.")
    since: str = _asked(
        "Instead of a range: from this time on (UTC, `2026-01-31` or `2026-01-31T12:00`)."
    )
    until: str = _asked("Instead of a range: up to this time.")
    granularity: str = _asked(
        f"{', '.join(f'`{name}`' for name in GRANULARITIES)}: how many runs are drawn."
    )
    common: str = _asked("`1`: only cases that both runs have.")
    across: str = _asked(f"What may differ, with commas: {', '.join(ACROSS)}; torch may anyway.")
    base_variant: str = _asked(
        "Of a comparison of variants: the base's; `variant` must name the new one's."
    )
    outcome: str = _asked("Only cases that ended so.")
    sort: str = _asked("A column's key; with `-` before it the largest first.")
    filter: str = _asked("Only rows that hold this text.")
    page: str = _asked("Which part of a long table, from 1.")
    before: str = _asked("Only runs stored before this one.")

    @cached_property
    def params(self) -> tuple[tuple[str, str], ...]:
        """What was given, in one order."""
        given = ((in_url, getattr(self, name)) for in_url, name in IN_URL.items())
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


IN_URL = {_NAMES.get(one.name, one.name): one.name for one in fields(Query)}
"""The field of each parameter."""
EXPLAINED = {_NAMES.get(one.name, one.name): one.metadata["explained"] for one in fields(Query)}
"""What each parameter means, for the API's description."""


def parse(given: Iterable[tuple[str, str]]) -> Query:
    """The query of a URL; `BadQuery` for what no page could mean. Other names are left alone."""
    known = ((name, value) for name, value in given if name in IN_URL and value)
    asked = {IN_URL[name]: _checked(name, value) for name, value in known}
    query = Query(**asked)
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

    texts: dict[str, Any] = {field: getattr(query, name) for name, field in _SELECTED.items()}
    texts = {field: "" if value == ALL else value for field, value in texts.items()}
    threads = int(query.threads) if query.threads not in ("", ALL) else None
    return Selection(since_s=since, until_s=until, threads=threads, **texts)


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
    "regressions": "/regressions",
    "change": "/regressions/{}",
    "imported": "/imported",
    "series": "/imported/{}",
    "machines": "/machines",
    "machine": "/machines/{}",
    "runs": "/runs",
    "run": "/runs/{}",
    "profiles": "/profiles",
    "profile": "/profiles/{}",
    "profile-view": "/profiles/{}/view",
    "tunings": "/tunings",
    "tuning": "/tunings/{}",
    "scalings": "/scalings",
    "scaling": "/scalings/{}",
    "result": "/result/{}",
    "monitors": "/monitors",
    "monitor": "/monitors/{}",
}
"""The path of each page; the braces stand for what it is about."""
LANDING_API = "/landing"

OUTSIDE = "outside"
"""The page of a link that leads elsewhere; its ident is the address."""


def outside(address: str) -> Link | None:
    """A link to another site; None where the address could do more than lead there."""
    return Link(OUTSIDE, address) if address.startswith(("https://", "http://")) else None


_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 48
_DIGITS = 10


@dataclass(frozen=True)
class ServerLinks:
    """From places to routes of the running server. `version` changes with the assets, so that they
    may be kept."""

    version: str = ""
    static: ClassVar[bool] = False
    """Whether there is no server behind the pages."""

    def url(self, place: Link | None) -> str:
        """The page's address. An empty text: it is not to be had here."""
        if place is not None and place.page == OUTSIDE:
            return place.ident
        return "" if place is None else _route(place)

    def asset(self, name: str) -> str:
        """The address of a stylesheet or script: another when its content is."""
        return f"/assets/{quote(name)}?v={self.version}"

    def table(self, place: Link, name: str, ending: str) -> str:
        """The address of a table as `csv` or `json`."""
        params = (*place.params, ("format", ending))
        return _with_query(f"{api_path(place)}/tables/{quote(name, safe='')}", params)

    def chart(self, place: Link, name: str) -> str:
        """The address of a chart as SVG."""
        return _with_query(f"{api_path(place)}/charts/{quote(name, safe='')}.svg", place.params)

    def data(self, place: Link) -> str:
        """The address of the whole page as JSON."""
        return _with_query(api_path(place), place.params)


SITE_WIDE = ("from", "granularity")
"""What is the same on every page of a site."""


@dataclass(frozen=True)
class SiteLinks:
    """From places to names of files, so that pages can be opened from disk: pages in one folder,
    the rest in two beneath it. Only pages that are `wanted` are linked."""

    wanted: Callable[[Link], bool]
    written: Callable[[Link, str], bool] = lambda place, name: True
    """Whether a file of that name is written beside a page: a table, or `page` for all of it."""
    static: ClassVar[bool] = True

    def url(self, place: Link | None) -> str:
        """The file's name, or nothing where no file is written."""
        if place is not None and place.page == OUTSIDE:
            return place.ident
        if place is not None and any(name in SITE_WIDE for name, _ in place.params):
            kept = tuple(item for item in place.params if item[0] not in SITE_WIDE)
            place = replace(place, params=kept)
        return file_of(place) if place is not None and self.wanted(place) else ""

    def asset(self, name: str) -> str:
        """Under its own name."""
        return f"assets/{name}"

    def table(self, place: Link, name: str, ending: str) -> str:
        """As CSV; as JSON tables are in the page's."""
        kept = ending == "csv" and self.written(place, name)
        return f"data/{data_name(place, name, ending)}" if kept else ""

    def chart(self, place: Link, name: str) -> str:
        """Nowhere: the page itself holds it."""
        return ""

    def data(self, place: Link) -> str:
        """As JSON."""
        return f"data/{data_name(place, 'page', 'json')}" if self.written(place, "page") else ""


Links = ServerLinks | SiteLinks


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
    return f"{path}?{urlencode(params)}" if params else path
