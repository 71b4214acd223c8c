"""Every address of the dashboard: routes for the server, file names for the static site."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote, quote_plus

from torchstone.web.page import Place

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

    def url(self, place: Place | None) -> str:
        """The page's address."""

    def asset(self, name: str) -> str:
        """The address of a stylesheet or script."""

    def table(self, place: Place, name: str, ending: str) -> str:
        """The address of a table as `csv` or `json`."""

    def chart(self, place: Place, name: str) -> str:
        """The address of a chart as SVG."""

    def data(self, place: Place) -> str:
        """The address of the whole page as JSON."""


@dataclass(frozen=True)
class ServerLinks:
    """Routes of the running server. `version` changes with the assets, so that they may be kept."""

    version: str = ""
    static: bool = False

    def url(self, place: Place | None) -> str:
        """The route with its query."""
        return "" if place is None else _route(place)

    def asset(self, name: str) -> str:
        """Under a name that changes when the content does."""
        return f"/assets/{quote(name)}?v={self.version}"

    def table(self, place: Place, name: str, ending: str) -> str:
        """A route of the API."""
        params = (*place.params, ("format", ending))
        return _with_query(f"{api_path(place)}/tables/{quote(name, safe='')}", params)

    def chart(self, place: Place, name: str) -> str:
        """A route of the API."""
        return _with_query(f"{api_path(place)}/charts/{quote(name, safe='')}.svg", place.params)

    def data(self, place: Place) -> str:
        """A route of the API."""
        return _with_query(api_path(place), place.params)


@dataclass(frozen=True)
class SiteLinks:
    """Names of files, all in one folder, so that pages can be opened from disk.

    Only pages that are `wanted` are linked.
    """

    wanted: Callable[[Place], bool]
    static: bool = True

    def url(self, place: Place | None) -> str:
        """The file's name, or nothing where no file is written."""
        return file_of(place) if place is not None and self.wanted(place) else ""

    def asset(self, name: str) -> str:
        """In a folder of their own."""
        return f"assets/{name}"

    def table(self, place: Place, name: str, ending: str) -> str:
        """In a folder of their own; as JSON they are in the page's."""
        return f"data/{data_name(place, name, ending)}" if ending == "csv" else ""

    def chart(self, place: Place, name: str) -> str:
        """In a folder of their own."""
        return f"data/{data_name(place, name, 'svg')}"

    def data(self, place: Place) -> str:
        """In a folder of their own."""
        return f"data/{data_name(place, 'page', 'json')}"


def file_of(place: Place) -> str:
    """The name of a page's file: readable, and different for different pages."""
    if place == Place("landing"):
        return "index.html"
    if not place.ident and not place.params:
        return f"{place.page}.html"
    told = " ".join((place.ident, *(value for _, value in place.params))).lower()
    slug = _SLUG.sub("-", told).strip("-")[:_SLUG_LENGTH].strip("-")
    said = repr((place.page, place.ident, place.params)).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(said).hexdigest()[:_DIGITS]
    return f"{place.page}-{slug}-{digest}.html" if slug else f"{place.page}-{digest}.html"


def data_name(place: Place, name: str, ending: str) -> str:
    """The name of a file beside a page."""
    return f"{file_of(place).removesuffix('.html')}.{_SLUG.sub('-', name.lower())}.{ending}"


def api_path(place: Place) -> str:
    """The path of a page's data."""
    return API + (LANDING_API if place.page == "landing" else _path(place))


@lru_cache(maxsize=8192)  # all charts of a page, and many figures, lead to the same places
def _route(place: Place) -> str:
    return _with_query(_path(place), place.params)


def _path(place: Place) -> str:
    return ROUTES[place.page].format(quote(place.ident, safe=""))


def _with_query(path: str, params: tuple[tuple[str, str], ...]) -> str:
    if not params:
        return path
    return f"{path}?{'&'.join([f'{_quoted(name)}={_quoted(value)}' for name, value in params])}"


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    """A page's links say the same few words over and over."""
    return quote_plus(text)
