"""The server's application: one route a page, the same as data under /api/v1, and the assets."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Event, Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from torchstone import __version__
from torchstone.records import TorchstoneError, UsageError
from torchstone.show.page import Link, Notice, Page, tables_of
from torchstone.store import CorruptResultError, CorruptRunError, Store
from torchstone.store.limits import LAST
from torchstone.web import site
from torchstone.web.api import add_api
from torchstone.web.query import BadQuery, NotFound, Query, ServerLinks, parse
from torchstone.web.registry import PAGES, PageDef
from torchstone.web.render import SiteInfo, html, profile_page
from torchstone.web.security import App, Guard, Hosts
from torchstone.web.sources import DataAccess, LRUCache, PageCache

# What the server makes for itself after its start, without standing in a reader's way.


PATIENCE_S = 10.0
"""For the first page; whoever has waited so long makes the page himself."""
LOOK_S = 0.02


class WarmupGate:
    """Threads of one interpreter take turns, so that two who make pages take twice as long each.

    Readers wait for the first page, which is made anyway and leaves what every page needs; what
    is made after it waits for readers.
    """

    def __init__(self) -> None:
        self._made = Event()
        self._made.set()  # as long as nobody begins, nobody waits
        self._ended = Event()
        self._lock = Lock()
        self._readers = 0

    @property
    def ended(self) -> bool:
        """Whether the server is told to end, so that no further page is wanted."""
        return self._ended.is_set()

    def end(self) -> None:
        """The server ends: nobody waits for anybody any more."""
        self._ended.set()
        self._made.set()

    def begin(self) -> None:
        """A first page is going to be made."""
        self._made.clear()

    def made(self) -> None:
        """The first page is there, or there will be none."""
        self._made.set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody asks for a page."""
        if not self._made.wait(PATIENCE_S):
            self._made.set()  # nor need others wait as long again
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def give_way(self) -> None:
        """Wait until nobody reads; not forever, because a busy server is never left alone."""
        end = time.monotonic() + PATIENCE_S
        while self._readers and time.monotonic() < end and not self._ended.wait(LOOK_S):
            pass


THREADS = 8
"""Pages made at once. More only wait for each other: drawing is Python's own work."""
KEEP = "public, max-age=31536000, immutable"
"""Assets have their content's hash in their address."""
ANSWERS = 32
"""Kept for equal requests while nothing is stored: many readers look at the same few pages."""
LARGEST_KEPT = 1_000_000
DRILL_DOWN = ("landing", "suite", "case")
"""From the newest run to a model: each page's first row leads to the next."""
LISTS = ("compare", "failures", "runs")
ALL_TIME = Link("landing", "", (("range", "all"),))
LOOK_AGAIN = "no-cache"
"""Pages may be kept, but the server is asked whether they still hold."""

_log = logging.getLogger("torchstone.web")


class AppState:
    """What all requests share: the store, the links, and what was made lately."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.links = ServerLinks(site.version())
        self.answers: LRUCache[str] = LRUCache(ANSWERS)
        self.describe: Callable[[], object] = dict
        """Makes the description of the API, which takes long and is then kept."""
        self.warmup_gate = WarmupGate()
        self._memory = PageCache()

    def source(self) -> DataAccess:
        """The store, as pages read it."""
        return DataAccess(self.store, self._memory)

    def warm(self) -> None:
        """Make a page of each kind once, as a reader comes to them, so that the first one need wait
        neither for what is kept nor for what pages bring in."""
        place: Link | None = Link("landing")
        for _ in DRILL_DOWN:
            try:
                place = self._made(place) if place is not None else None
            finally:
                self.warmup_gate.made()
        newest = (Link("result", LAST), Link("run", LAST))
        for place in (*(Link(name) for name in LISTS), *newest, ALL_TIME):
            self._made(place)
        self.warmup_gate.give_way()
        if not self.warmup_gate.ended:
            self.describe()

    def _made(self, place: Link) -> Link | None:
        """Make that page, when nobody reads; where its first row leads."""
        self.warmup_gate.give_way()
        if self.warmup_gate.ended:
            return None
        with suppress(TorchstoneError), self.store.snapshot():  # whoever asks for it is told
            asked = parse(list(place.params))
            page = PAGES[place.page].view(self.source(), asked, place.ident)
            html(page, self.links, SiteInfo(""))
            return next((one.rows[0][0].to for one in tables_of(page).values() if one.rows), None)
        return None

    def state(self, source: DataAccess) -> str:
        """A short word that changes whenever an answer might."""
        told = f"{source.version()} {__version__} {site.version()}"
        return hashlib.sha256(told.encode()).hexdigest()[:20]


def make_app(store: Store, hosts: Hosts, app_state: AppState | None = None) -> App:
    """The application, guarded."""
    app_state = app_state or AppState(store)
    app = FastAPI(
        title="Torchstone",
        version=__version__,
        summary="Stored PyTorch benchmark runs, for reading.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page fetches scripts from elsewhere
        redoc_url=None,
        lifespan=_lifespan,
    )
    for one in PAGES.values():
        app.add_api_route(one.path, _page_route(app_state, one), include_in_schema=False)
    app.add_api_route("/profiles/{ident}/view", _view_route(app_state), include_in_schema=False)
    app.add_api_route("/assets/{name}", _asset, include_in_schema=False)
    app.add_api_route("/favicon.ico", _icon, include_in_schema=False)
    add_api(app, app_state)
    _add_errors(app, app_state)
    app_state.describe = app.openapi
    return Guard(app, hosts)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    from anyio.to_thread import current_default_thread_limiter

    current_default_thread_limiter().total_tokens = THREADS
    yield


def answer(
    request: Request, app_state: AppState, kind: str, make: Callable[[DataAccess, str], str]
) -> Response:
    """What `make` makes of one state of the store; nothing at all where the asker has it."""
    with app_state.warmup_gate.reading():
        return _answer(request, app_state, kind, make)


def _answer(
    request: Request, app_state: AppState, kind: str, make: Callable[[DataAccess, str], str]
) -> Response:
    source = app_state.source()
    state = app_state.state(source)
    tag = f'"{state}"'
    headers = {"etag": tag, "cache-control": LOOK_AGAIN, "vary": "accept"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)

    key = (state, request.scope["path"], request.scope["query_string"])
    body = app_state.answers.find(key)
    if body is None:
        with source.store.snapshot():
            body = make(source, state)
        if len(body) <= LARGEST_KEPT and app_state.state(source) == state:  # it is of that state
            app_state.answers.put(key, body)
    return Response(body, media_type=kind, headers=headers)


def query_of(request: Request) -> Query:
    """What the URL asks."""
    return parse(request.query_params.multi_items())


def _page_route(app_state: AppState, one: PageDef) -> Callable[..., Response]:
    def show(request: Request) -> Response:
        ident = str(request.path_params.get("ident", ""))

        def make(source: DataAccess, state: str) -> str:
            page = one.view(source, query_of(request), ident)
            return html(page, app_state.links, SiteInfo(source.name, now=state))

        return answer(request, app_state, "text/html", make)

    return show


def _view_route(app_state: AppState) -> Callable[..., Response]:
    def show(request: Request) -> Response:
        ident = str(request.path_params["ident"])
        return answer(
            request,
            app_state,
            "text/html",
            lambda source, _: profile_page(source, ident, app_state.links),
        )

    return show


def _asset(name: str) -> Response:
    found = site.find(name)
    if found is None:
        raise NotFound("There is no such file.")
    return Response(found.content, media_type=found.kind, headers={"cache-control": KEEP})


def _icon() -> Response:
    """At an address without a hash: what is kept of it must be asked for again."""
    found = _asset("icon.svg")
    found.headers["cache-control"] = "public, max-age=3600"
    return found


def _add_errors(app: FastAPI, app_state: AppState) -> None:
    def sorry(request: Request, status: int, error: str, remedy: str = "") -> Response:
        if request.url.path.startswith("/api/"):
            body = json.dumps({"error": error, "remedy": remedy})
            return Response(body, status, media_type="application/json")
        title = {400: "This cannot be shown", 404: "Not found"}.get(status, "Something went wrong")
        page = Page("error", title, (Notice(error, "warn", remedy),), status=status)
        text = html(page, app_state.links, SiteInfo(app_state.store.path.name))
        return Response(text, status, media_type="text/html")

    def known(request: Request, error: Exception) -> Response:
        if isinstance(error, TorchstoneError):
            status = 400 if isinstance(error, BadQuery) else 503
            if isinstance(error, (NotFound, UsageError)):
                status = 500 if isinstance(error, (CorruptResultError, CorruptRunError)) else 404
            return sorry(
                request, status, *(_public(app_state, t) for t in (error.message, error.remedy))
            )
        if isinstance(error, HTTPException):
            return sorry(request, error.status_code, "There is no such page.")
        if isinstance(error, RequestValidationError):
            return sorry(request, 400, _faults(error))
        return unknown(request, error)

    def unknown(request: Request, error: Exception) -> Response:
        _log.error("%s", request.url.path, exc_info=error)
        return sorry(request, 500, "This page could not be made; the server's log says why.")

    for kind in (TorchstoneError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, known)
    app.add_exception_handler(Exception, unknown)


def _public(app_state: AppState, text: str) -> str:
    """A sentence without the folder that the database is in."""
    return text.replace(str(app_state.store.path), app_state.store.path.name)


def _faults(error: RequestValidationError) -> str:
    found: list[Any] = list(error.errors())
    said = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in found[:5]]
    return "; ".join(said)
