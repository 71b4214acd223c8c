"""The read API: every page, table and chart as data. Versioned by its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi import Query as Parameter
from pydantic import create_model
from starlette.responses import JSONResponse, Response

from torchstone.show.page import charts_of, tables_of
from torchstone.web.documents import (
    ErrorDocument,
    LiveDocument,
    PageDocument,
    TableDocument,
    live_data,
    page_data,
)
from torchstone.web.query import (
    API,
    EXPLAINED,
    LANDING_API,
    LONGEST,
    BadQuery,
    NotFound,
    parse,
    shown,
)
from torchstone.web.registry import PAGES, PageDef
from torchstone.web.render import draw
from torchstone.web.security import PICTURE_POLICY
from torchstone.web.sources import DataAccess
from torchstone.web.tables import csv_text, table_data, to_json
from torchstone.web.views.parts import running
from torchstone.web.views.runs import progress_of_run

if TYPE_CHECKING:
    from torchstone.web.app import AppState

FORMATS = ("json", "csv")
Route = Callable[..., Response]
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorDocument, "description": "The query makes no sense"},
    404: {"model": ErrorDocument, "description": "What it names is not stored"},
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


def add_api(app: FastAPI, app_state: AppState) -> None:
    """All routes under /api/v1."""
    for one in PAGES.values():
        _add_page(app, app_state, one)
    app.add_api_route(
        f"{API}/progress",
        _progress(app_state),
        summary="Runs that are measured now",
        response_model=LiveDocument,
        tags=["live"],
    )
    app.add_api_route(
        f"{API}/runs/{{ident}}/progress",
        _progress_of_one(app_state),
        summary="How far one run is",
        response_model=LiveDocument,
        responses=ERRORS,
        tags=["live"],
    )


def _add_page(app: FastAPI, app_state: AppState, one: PageDef) -> None:
    from torchstone.web.app import answer

    path = API + (LANDING_API if one.name == "landing" else one.path)

    def page(source: DataAccess, asked: Any, ident: str) -> Any:
        return one.view(source, parse(_given(asked)), ident)

    def whole(request: Request, asked: Any, ident: str = "") -> Response:
        def make(source: DataAccess, state: str) -> str:
            return to_json(page_data(page(source, asked, ident)))

        return answer(request, app_state, "application/json", make)

    def table(request: Request, asked: Any, name: str, form: str, ident: str = "") -> Response:
        if form not in FORMATS:
            raise BadQuery(f"There is no format {shown(form)}.", "Choose json or csv.")

        def make(source: DataAccess, state: str) -> str:
            found = tables_of(page(source, asked, ident)).get(name)
            if found is None:
                raise NotFound(f"This page has no table {shown(name)}.")
            if form == "csv":
                same = found.same and (one.name, name, found.same)
                return source.text(same, lambda: csv_text(found))
            return to_json(table_data(found))

        kind = "text/csv" if form == "csv" else "application/json"
        done = answer(request, app_state, kind, make)
        if form == "csv":
            done.headers["content-disposition"] = f'attachment; filename="{one.name}.csv"'
        return done

    def chart(request: Request, asked: Any, name: str, ident: str = "") -> Response:
        def make(source: DataAccess, state: str) -> str:
            found = charts_of(page(source, asked, ident)).get(name)
            drawn = draw(found, app_state.links, alone=True) if found else ""
            if not drawn:
                raise NotFound(f"This page has no chart {shown(name)}, or nothing in it.")
            return drawn

        done = answer(request, app_state, "image/svg+xml", make)
        done.headers["content-security-policy"] = PICTURE_POLICY
        return done

    routes = _about_one if one.about_one else _about_all
    _register(app, one, path, routes(whole, table, chart))


def _about_one(whole: Route, table: Route, chart: Route) -> Sequence[Route]:
    """For paths that name a thing."""

    def whole_of(request: Request, asked: Asked, ident: Ident) -> Response:
        return whole(request, asked, ident)

    def table_of(
        request: Request, asked: Asked, ident: Ident, name: Name, form: Form = "json"
    ) -> Response:
        return table(request, asked, name, form, ident)

    def chart_of(request: Request, asked: Asked, ident: Ident, name: Name) -> Response:
        return chart(request, asked, name, ident)

    return whole_of, table_of, chart_of


def _about_all(whole: Route, table: Route, chart: Route) -> Sequence[Route]:
    """For paths that name none."""

    def whole_all(request: Request, asked: Asked) -> Response:
        return whole(request, asked)

    def table_all(request: Request, asked: Asked, name: Name, form: Form = "json") -> Response:
        return table(request, asked, name, form)

    def chart_all(request: Request, asked: Asked, name: Name) -> Response:
        return chart(request, asked, name)

    return whole_all, table_all, chart_all


def _register(app: FastAPI, one: PageDef, path: str, routes: Sequence[Route]) -> None:
    """The three routes of a page."""
    kinds = (
        ("", one.summary, PageDocument, None),
        ("/tables/{name}", f"A table of: {one.summary}", TableDocument, "text/csv"),
        ("/charts/{name}.svg", f"A chart of: {one.summary}", None, "image/svg+xml"),
    )
    for route, (ending, summary, model, other) in zip(routes, kinds, strict=True):
        content = {"description": "Done", "content": {other: {}}} if other else {}
        app.add_api_route(
            path + ending,
            route,
            summary=summary,
            response_model=model,
            response_class=Response if model is None else JSONResponse,
            responses={**ERRORS, **({200: content} if content else {})},
            operation_id=f"{one.name}{ending.split('{')[0].replace('/', '_').rstrip('_')}",
            tags=[one.name],
        )


def _given(asked: Any) -> list[tuple[str, str]]:
    return [(name, getattr(asked, name)) for name in EXPLAINED]


def _progress(app_state: AppState) -> Callable[..., Response]:
    from torchstone.web.app import answer

    def progress(request: Request) -> Response:
        def make(source: DataAccess, state: str) -> str:
            return to_json(live_data(state, running(source, ())))

        return answer(request, app_state, "application/json", make)

    return progress


def _progress_of_one(app_state: AppState) -> Callable[..., Response]:
    from torchstone.web.app import answer

    def progress(request: Request, ident: Ident) -> Response:
        def make(source: DataAccess, state: str) -> str:
            return to_json(live_data(state, [progress_of_run(source, ident)]))

        return answer(request, app_state, "application/json", make)

    return progress
