"""The server's application: one route a page, the same as data under /api/v1, and the assets."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Path, Request
from fastapi import Query as Parameter
from fastapi.exceptions import RequestValidationError
from pydantic import create_model
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from torchstone import __version__
from torchstone.monitor.journal import monitors_stamp
from torchstone.records import TorchstoneError, UsageError
from torchstone.show.page import (
    Cell,
    Facts,
    Link,
    Notice,
    Page,
    Progress,
    charts_of,
    tables_of,
)
from torchstone.store import CorruptResultError, CorruptRunError, Store
from torchstone.store.limits import LAST
from torchstone.web import documents, site
from torchstone.web.query import (
    API,
    EXPLAINED,
    LANDING_API,
    LONGEST,
    OUTSIDE,
    BadQuery,
    NotFound,
    ServerLinks,
    parse,
    shown,
)
from torchstone.web.registry import PAGES, PageDef
from torchstone.web.render import SiteInfo, draw, html, profile_page
from torchstone.web.security import PICTURE_POLICY, App, Guard, Hosts
from torchstone.web.sources import DataAccess, PageCache
from torchstone.web.tables import csv_text, table_data, to_json
from torchstone.web.views.monitors import PROGRESS, monitors_progress
from torchstone.web.views.parts import running
from torchstone.web.views.runs import progress_of_run

# What the server makes for itself after its start, without standing in a reader's way.


PATIENCE_S = 10.0
"""Of what is made for later readers; a busy server is never left alone."""
LOOK_S = 0.02


class WarmupGate:
    """Threads of one interpreter take turns, so that two who make pages take twice as long each:
    what the server makes for itself waits for readers."""

    def __init__(self) -> None:
        self.ended = Event()
        """The server is told to end, so that no further page is wanted."""
        self._lock = Lock()
        self._readers = 0

    def end(self) -> None:
        """The server ends: nobody waits for anybody any more."""
        self.ended.set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody asks for a page."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def give_way(self) -> None:
        """Wait until nobody reads; not forever."""
        end = time.monotonic() + PATIENCE_S
        while self._readers and time.monotonic() < end and not self.ended.wait(LOOK_S):
            pass


THREADS = 8
"""Pages made at once. More only wait for each other: drawing is Python's own work."""
KEEP = "public, max-age=31536000, immutable"
"""Assets have their content's hash in their address."""
LARGEST_KEPT = 1_000_000
LEAST_COMPRESSED = 1_000
"""Bytes; below it the head of an answer is most of it."""
COMPRESSION = 5
"""Of zlib: level 9 takes three times as long for a hundredth less."""
DRILL_DOWN = ("landing", "suite", "case")
"""From the newest run to a model: each page's first row leads to the next."""
LISTS = ("compare", "failures", "runs")
MONITORS = "/monitors"
OVERVIEW = ("/", f"{API}{LANDING_API}")
ALL_TIME = Link("landing", "", (("range", "all"),))
LOOK_AGAIN = "no-cache"
"""Pages may be kept, but the server is asked whether they still hold."""

_log = logging.getLogger("torchstone.web")


class AppState:
    """What all requests share: the store, the links, and what was made lately."""

    def __init__(self, store: Store, repository: str = "") -> None:
        self.store = store
        self.repository = repository
        self.links = ServerLinks(site.version())
        self.cache = PageCache()
        self.describe: Callable[[], object] = dict
        """Makes the description of the API, which takes long and is then kept."""
        self.warmup_gate = WarmupGate()

    def source(self) -> DataAccess:
        """The store, as pages read it."""
        return DataAccess(self.store, self.cache, repository=self.repository)

    def first(self) -> None:
        """Make the overview before anybody can ask for it, and keep it as it is sent."""
        source = self.source()
        state, path = self.state(source, "/"), "/"
        key = (state, path, b"")
        with _logged("/"), self.store.snapshot():  # whoever asks for it is told
            page = PAGES["landing"].view(source, parse([]), "")
            body = html(page, self.links, SiteInfo(source.name, now=state))
            if len(body) <= LARGEST_KEPT and state == self.state(source, path):
                self.cache.put("answer", key, body)
                self.cache.put("packed", key, _packed(body))

    def warm(self) -> None:
        """Make a page of each kind once, as a reader comes to them, so that the first one need wait
        neither for what is kept nor for what pages bring in."""
        place: Link | None = Link("landing")
        for _ in DRILL_DOWN:
            place = self._made(place) if place is not None else None
        newest = (Link("result", LAST), Link("run", LAST))
        for place in (*(Link(name) for name in LISTS), *newest, ALL_TIME):
            self._made(place)
        self.warmup_gate.give_way()
        if not self.warmup_gate.ended.is_set():
            self.describe()

    def _made(self, place: Link) -> Link | None:
        """Make that page, when nobody reads; where its first row leads."""
        self.warmup_gate.give_way()
        if self.warmup_gate.ended.is_set():
            return None
        with suppress(TorchstoneError), self.store.snapshot():  # whoever asks for it is told
            asked = parse(list(place.params))
            page = PAGES[place.page].view(self.source(), asked, place.ident)
            html(page, self.links, SiteInfo(""))
            return next((one.rows[0][0].to for one in tables_of(page).values() if one.rows), None)
        return None

    def state(self, source: DataAccess, path: str = "") -> str:
        """A short word that changes whenever an answer might."""
        told = f"{source.store.version()} {__version__} {site.version()}"
        if MONITORS in path:  # of files, which change each second while a training runs
            told += f" {monitors_stamp()}"
        elif path in OVERVIEW:
            told += f" {source.monitored()}"
        return hashlib.sha256(told.encode()).hexdigest()[:20]

    def answer(
        self, request: Request, kind: str, make: Callable[[DataAccess, str], str]
    ) -> Response:
        """What `make` makes of one state of the store; nothing at all where the asker has it."""
        with self.warmup_gate.reading():
            source = self.source()
            state = self.state(source, request.scope["path"])
            tag = f'"{state}"'
            headers = {"etag": tag, "cache-control": LOOK_AGAIN, "vary": "accept"}
            if tag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
            # Many readers look at the same few pages while nothing is stored.
            key = (state, request.scope["path"], request.scope["query_string"])
            body: str | None = self.cache.find("answer", key)
            if body is None:
                with source.store.snapshot():
                    body = make(source, state)
                if len(body) <= LARGEST_KEPT and state == self.state(
                    source, request.scope["path"]
                ):  # it is of that
                    self.cache.put("answer", key, body)
            return self._sent(request, body, kind, headers, key)

    def _sent(
        self, request: Request, body: str, kind: str, headers: dict[str, str], key: object
    ) -> Response:
        """Compressed where the asker can read that; what is kept is kept so too."""
        headers = {**headers, "vary": "accept, accept-encoding"}
        if len(body) < LEAST_COMPRESSED or not _takes_gzip(request):
            return Response(body, media_type=kind, headers=headers)
        packed: bytes | None = self.cache.find("packed", key)
        if packed is None:
            packed = _packed(body)
            if len(body) <= LARGEST_KEPT:
                self.cache.put("packed", key, packed)
        return Response(packed, media_type=kind, headers={**headers, "content-encoding": "gzip"})


@contextmanager
def _logged(path: str) -> Iterator[None]:
    """What goes wrong with one page stops no server."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, TorchstoneError):
            _log.error("%s", path, exc_info=error)


def _packed(body: str) -> bytes:
    return gzip.compress(body.encode(), COMPRESSION, mtime=0)


def _takes_gzip(request: Request) -> bool:
    """Whether `gzip` is among what may be sent; `gzip;q=0` refuses it."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, rest = part.partition(";")
        if name.strip() == "gzip":
            return rest.strip().replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def make_app(
    store: Store, hosts: Hosts, app_state: AppState | None = None, writer: Store | None = None
) -> App:
    """The application, guarded. Only with a `writer` does it have a route that writes."""
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
        _add_page(app, app_state, one)
        _add_data(app, app_state, one)

    def view(request: Request, ident: str) -> Response:
        def make(source: DataAccess, state: str) -> str:
            return profile_page(source, ident, app_state.links)

        return app_state.answer(request, "text/html", make)

    app.add_api_route("/profiles/{ident}/view", view, include_in_schema=False)
    app.add_api_route("/assets/{name}", _asset, include_in_schema=False)
    app.add_api_route("/favicon.ico", _icon, include_in_schema=False)
    app.add_api_route("/health", _health, include_in_schema=False)
    _add_progress(app, app_state)
    _add_docs(app, app_state)
    _add_errors(app, app_state)
    app_state.describe = app.openapi
    if writer is None:
        return Guard(app, hosts)
    from torchstone.web.pushes import PUSHES, add_pushes

    add_pushes(app, writer)
    return Guard(app, hosts, writable=PUSHES)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    from anyio.to_thread import current_default_thread_limiter

    current_default_thread_limiter().total_tokens = THREADS
    yield


def _page_of(request: Request, one: PageDef, source: DataAccess) -> Page:
    """The page that the URL asks for."""
    asked = parse(request.query_params.multi_items())
    return one.view(source, asked, str(request.path_params.get("ident", "")))


def _add_page(app: FastAPI, app_state: AppState, one: PageDef) -> None:
    """Its route as HTML."""

    def show(request: Request) -> Response:
        def make(source: DataAccess, state: str) -> str:
            page = _page_of(request, one, source)
            return html(page, app_state.links, SiteInfo(source.name, now=state))

        return app_state.answer(request, "text/html", make)

    app.add_api_route(one.path, show, include_in_schema=False)


def _asset(name: str, request: Request) -> Response:
    found = site.all_assets().get(name)
    if found is None:
        raise NotFound("There is no such file.")
    kind = site.KINDS[name.rpartition(".")[2]]
    headers = {"cache-control": KEEP, "vary": "accept-encoding"}
    if len(found) < LEAST_COMPRESSED or not _takes_gzip(request):
        return Response(found, media_type=kind, headers=headers)
    packed = gzip.compress(found, COMPRESSION, mtime=0)
    return Response(packed, media_type=kind, headers={**headers, "content-encoding": "gzip"})


async def _health() -> Response:
    """That the server answers. Not in a thread: those may all be making pages."""
    return PlainTextResponse("ok\n", headers={"cache-control": "no-store"})


def _icon(request: Request) -> Response:
    """At an address without a hash: what is kept of it must be asked for again."""
    found = _asset("icon.svg", request)
    found.headers["cache-control"] = "public, max-age=3600"
    return found


# The read API: every page, table and chart as data. Versioned by its path.


FORMATS = ("json", "csv")
_FILE = re.compile(r"[^A-Za-z0-9_-]+")
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": documents.ErrorDocument, "description": "The query makes no sense"},
    404: {"model": documents.ErrorDocument, "description": "What it names is not stored"},
}
_FIELDS: dict[str, Any] = {
    name: (str, Parameter(default="", max_length=LONGEST, description=text))
    for name, text in EXPLAINED.items()
}
if TYPE_CHECKING:
    Asked = Any
    Form = str
else:
    Asked = Annotated[create_model("Parameters", **_FIELDS), Parameter()]
    Form = Annotated[str, Parameter(alias="format", description="`json` or `csv`")]
Ident = Annotated[str, Path(description="An id, or its beginning", max_length=200)]
Name = Annotated[str, Path(description="The name in the page's document", max_length=200)]


async def _parameters(asked: Asked) -> None:
    """Checks and describes what the URL of a page may say."""


async def _about_one(ident: Ident) -> None:
    """Checks and describes the id in the path of a page about one thing."""


def _add_data(app: FastAPI, app_state: AppState, one: PageDef) -> None:
    """The page as data, and its tables and charts one by one."""

    def whole(request: Request) -> Response:
        def make(source: DataAccess, state: str) -> str:
            return to_json(documents.page_data(_page_of(request, one, source)))

        return app_state.answer(request, "application/json", make)

    def table(request: Request, name: Name, form: Form = "json") -> Response:
        if form not in FORMATS:
            raise BadQuery(f"There is no format {shown(form)}.", "Choose json or csv.")

        def make(source: DataAccess, state: str) -> str:
            found = tables_of(_page_of(request, one, source)).get(name)
            if found is None:
                raise NotFound(f"This page has no table {shown(name)}.")
            if form == "csv":
                same = found.same and (one.name, name, found.same)
                return source.text(same, lambda: csv_text(found))
            return to_json(table_data(found))

        if form == "json":
            return app_state.answer(request, "application/json", make)
        done = app_state.answer(request, "text/csv", make)
        file = f"{one.name}-{_FILE.sub('-', name)}.csv"
        done.headers["content-disposition"] = f'attachment; filename="{file}"'
        return done

    def chart(request: Request, name: Name) -> Response:
        def make(source: DataAccess, state: str) -> str:
            found = charts_of(_page_of(request, one, source)).get(name)
            drawn = draw(found, app_state.links, alone=True) if found else ""
            if not drawn:
                raise NotFound(f"This page has no chart {shown(name)}, or nothing in it.")
            return drawn

        done = app_state.answer(request, "image/svg+xml", make)
        done.headers["content-security-policy"] = PICTURE_POLICY
        return done

    routes: tuple[tuple[Callable[..., Response], str, str, Any, str], ...] = (
        (whole, "", "", documents.PageDocument, ""),
        (table, "/tables/{name}", "A table of: ", documents.TableDocument, "text/csv"),
        (chart, "/charts/{name}.svg", "A chart of: ", None, "image/svg+xml"),
    )
    for route, ending, words, model, other in routes:
        done: dict[str, Any] = {"description": "Done", "content": {other: {}}}
        app.add_api_route(
            API + (LANDING_API if one.name == "landing" else one.path) + ending,
            route,
            summary=words + one.summary,
            response_model=model,
            response_class=Response if model is None else JSONResponse,
            responses={**ERRORS, 200: done} if other else ERRORS,
            operation_id=f"{one.name}{ending.split('{')[0].replace('/', '_').rstrip('_')}",
            dependencies=[Depends(_parameters), *([Depends(_about_one)] if one.about_one else [])],
            tags=[one.name],
        )


def _add_progress(app: FastAPI, app_state: AppState) -> None:
    """The small answers that pages ask for again and again."""

    def live(request: Request, found: Callable[[DataAccess], Sequence[Progress]]) -> Response:
        def make(source: DataAccess, state: str) -> str:
            return to_json(documents.live_data(state, found(source)))

        return app_state.answer(request, "application/json", make)

    def of_all(request: Request) -> Response:
        return live(request, lambda source: running(source, ()))

    def of_monitors(request: Request) -> Response:
        return live(request, lambda source: monitors_progress())

    def of_one(request: Request, ident: Ident) -> Response:
        return live(request, lambda source: [progress_of_run(source, ident)])

    told: dict[str, Any] = {"response_model": documents.LiveDocument, "tags": ["live"]}
    words = "Runs that are measured now"
    app.add_api_route(f"{API}/progress", of_all, summary=words, operation_id="progress", **told)
    words = "Monitors that write now"
    named = "monitors_progress"
    app.add_api_route(PROGRESS, of_monitors, summary=words, operation_id=named, **told)
    told |= {"responses": ERRORS, "operation_id": "run_progress"}
    path = f"{API}/runs/{{ident}}/progress"
    app.add_api_route(path, of_one, summary="How far one run is", **told)


PART_ENDS = ("/tables/{name}", "/charts/{name}.svg")
PART_WORDS = (
    "All rows of a table by its name in the page's document, as JSON; as CSV with ?format=csv",
    "A chart of it as a picture",
)
"""What every page has below its own address."""


def _add_docs(app: FastAPI, app_state: AppState) -> None:
    """The API for people to read, made from its description: nothing is fetched from elsewhere."""

    def show() -> Response:
        items, parameters = [], {}
        for path, told in app.openapi()["paths"].items():
            for one in told["get"].get("parameters", ()):
                parameters[one["name"]] = Cell(None, one["description"].replace("`", ""))
            if path.endswith(PART_ENDS):  # every page has them
                continue
            to = None if "{" in path else Link(OUTSIDE, path)
            items.append((path, Cell(path, told["get"]["summary"], to)))
        parts = [
            (f"…{end}", Cell(end, words)) for end, words in zip(PART_ENDS, PART_WORDS, strict=True)
        ]
        start = Notice(
            "Every page, table and chart is there as data, to be read only. A page's own address "
            f"works too: put {API} before it.",
            remedy=f"{API}/openapi.json describes it for programs.",
        )
        sections = (
            start,
            Facts("api", "Pages", tuple(items)),
            Facts("api-parts", "Tables and charts of each page", tuple(parts)),
            Facts("api-parameters", "Parameters, of all of them", tuple(parameters.items())),
        )
        page = Page("docs", "API", sections)
        text = html(page, app_state.links, SiteInfo(app_state.store.location.name))
        return Response(text, media_type="text/html")

    app.add_api_route("/docs", show, include_in_schema=False)


def _add_errors(app: FastAPI, app_state: AppState) -> None:
    def sorry(request: Request, status: int, error: str, remedy: str = "") -> Response:
        if request.url.path.startswith("/api/"):
            body = json.dumps({"error": error, "remedy": remedy})
            return Response(body, status, media_type="application/json")
        title = {400: "This cannot be shown", 404: "Not found"}.get(status, "Something went wrong")
        page = Page("error", title, (Notice(error, "warn", remedy),), status=status)
        text = html(page, app_state.links, SiteInfo(app_state.store.location.name))
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
    return text.replace(str(app_state.store.location), app_state.store.location.name)


def _faults(error: RequestValidationError) -> str:
    found: list[Any] = list(error.errors())
    said = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in found[:5]]
    return "; ".join(said)
