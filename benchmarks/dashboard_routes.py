"""Every page and every route of the API, with addresses of things that the history has."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboard_history import MACHINE_ID, is_night
from dashboard_server import BenchmarkError, Server

from torchstone.records import Outcome, RunHead
from torchstone.show.cells import case_place
from torchstone.show.page import Link
from torchstone.store import Store
from torchstone.web.query import API, ROUTES, ServerLinks
from torchstone.web.registry import PAGES
from torchstone.web.views.parts import suite_place

LANDING_MS = 150.0
OTHERS_MS = 100.0
"""The aims: 95 of 100 requests take less."""
OPENAPI = f"{API}/openapi.json"
EVERY_RUN = "runs: runs.csv"
"""A list that is as long as the history."""

ABSENT = ("change", "series", "tuning", "scaling", "monitor")
"""Pages about one thing that the history has none of."""


@dataclass(frozen=True)
class Route:
    """One address. `place` is the page whose queries it asks."""

    name: str
    kind: str
    """`page`, `wide` (over all time, or of all cases), or `api`."""
    address: str
    place: str

    @property
    def aim_ms(self) -> float:
        """What 95 of 100 requests should stay under."""
        return LANDING_MS if self.address.partition("?")[0] == "/" else OTHERS_MS


def places(store: Store) -> dict[str, Link]:
    """A page of each kind, by its name: as links of the dashboard lead to them."""
    newest = newest_night(store)
    cases = store.cases(newest.id)
    found = [one for one in cases if one.result_id and one.outcome is Outcome.OK]
    profiles = store.list_profiles(1)
    if not found or not profiles:
        raise BenchmarkError("the history has no samples or no profile")
    case = found[len(found) // 2]  # the server makes the first one's page for itself
    idents = {
        "machine": MACHINE_ID,
        "run": newest.id,
        "profile": profiles[0].id,
        "profile-view": profiles[0].id,
        "result": case.result_id,
    }
    made = {name: Link(name, idents.get(name, "")) for name in ROUTES if name not in ABSENT}
    return {**made, "suite": suite_place(case.key), "case": case_place(case.key)}


def newest_night(store: Store) -> RunHead:
    """The last night of the history; what a writer added, or a pull request, does not count."""
    heads = store.run_heads(limit=200)
    return next(head for head in heads if is_night(head.id))


def wide(known: dict[str, Link]) -> dict[str, Link]:
    """The same pages where they have most to show."""
    key = dict(known["suite"].params)
    every = (*((name, "all") for name in ("mode", "precision", "variant")),)
    return {
        "landing, all time": Link("landing", "", (("range", "all"),)),
        "suite, all cases": Link("suite", "", (("suite", key["suite"]), *every)),
        "suite, all time": _added(known["suite"], ("range", "all")),
        "case, all time": _added(known["case"], ("range", "all")),
        "compare, one group": Link("compare", "", known["suite"].params),
    }


def _added(place: Link, *params: tuple[str, str]) -> Link:
    return Link(place.page, place.ident, (*place.params, *params))


def pages(store: Store) -> dict[str, Link]:
    """All pages, then the wide ones."""
    known = places(store)
    return {**known, **wide(known)}


def routes(server: Server, known: dict[str, Link]) -> list[Route]:
    """All addresses; `BenchmarkError` if the server has a route that is not among them."""
    links = ServerLinks()
    made = [
        Route(name, "page" if name in ROUTES else "wide", links.url(place), name)
        for name, place in known.items()
    ]
    none: set[str] = set()
    for name in (name for name in PAGES if name not in ABSENT):
        more, lacking = _api_of(server, links, name, known[name])
        made += more
        none |= lacking
    run = known["run"].ident
    made.append(Route("progress", "api", f"{API}/progress", "progress"))
    made.append(Route("progress of monitors", "api", f"{API}/progress/monitors", "progress"))
    made.append(Route("progress of a run", "api", f"{API}/runs/{run}/progress", "progress of run"))
    made.append(Route("openapi", "api", OPENAPI, ""))
    _check_all(list(server.data(OPENAPI)["paths"]), made, none)
    return made


def _api_of(
    server: Server, links: ServerLinks, name: str, place: Link
) -> tuple[list[Route], set[str]]:
    """A page as data, its longest table and its fullest chart; and what it has none of."""
    whole = links.data(place)
    document = server.data(whole)
    made, none = [Route(f"{name}: json", "api", whole, name)], set()
    table = _largest(document["tables"])
    if table:
        told = f"{name}: {table}.csv"
        kind = "wide" if told == EVERY_RUN else "api"
        made.append(Route(told, kind, links.table(place, table, "csv"), name))
    else:
        none.add(f"{name}: tables")
    chart = _largest(
        {key: one for key, one in document["charts"].items() if one["series"] or one["data"]}
    )
    if chart:
        made.append(Route(f"{name}: {chart}.svg", "api", links.chart(place, chart), name))
    else:
        none.add(f"{name}: charts")
    return made, none


def _largest(parts: dict[str, Any]) -> str:
    """The name of the one that says most."""
    return max(parts, key=lambda name: len(json.dumps(parts[name])), default="")


def _check_all(templates: Sequence[str], made: Sequence[Route], none: set[str]) -> None:
    paths = [route.address.partition("?")[0] for route in made]
    lacking = {tuple(text.split(": ")) for text in none}
    missed = [
        template
        for template in templates
        if not any(re.fullmatch(_pattern(template), path) for path in paths)
        and not any(_is_of(template, name, part) for name, part in lacking)
        and not any(_is_about(template, name) for name in ABSENT)
    ]
    if missed:
        raise BenchmarkError(f"not measured, because this benchmark does not know it: {missed}")


def _pattern(template: str) -> str:
    parts = re.split(r"\{[^}]+\}", template)
    return "[^/]+".join(re.escape(part) for part in parts)


def _is_about(template: str, name: str) -> bool:
    """Whether a route is that of a page, of its tables or charts."""
    own = API + ROUTES[name].format("{ident}")
    return template == own or template.startswith(f"{own}/")


def _is_of(template: str, name: str, part: str) -> bool:
    """Whether a route is that of a page's tables or charts."""
    own = "/landing" if name == "landing" else ROUTES[name].format("{ident}")
    return template.startswith(f"{API}{own}/{part}/")
