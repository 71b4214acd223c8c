"""The dashboard on PostgreSQL: the same pages as on SQLite, made again when something changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.web import stored
from tests.web.conftest import client_of
from tests.web.test_server import ONE_EACH, PLAIN
from torchstone.show.page import Progress
from torchstone.store import Store, heartbeat, open_store
from torchstone.store.copying import copy
from torchstone.store.location import locate
from torchstone.web.query import API, parse
from torchstone.web.registry import PAGES
from torchstone.web.sources import DataAccess

ADDRESSES = (
    *dict.fromkeys((*ONE_EACH, *PLAIN)),
    *("/?granularity=week&range=all", "/runs?branch=main", "/case?model=GoogleFnet"),
    *("/regressions?filter=%25_%00", "/compare?across=1", "/failures?mode=training"),
    *(f"{API}{one.split('?')[0]}" for one in ONE_EACH if one != "/profiles/prof1/view"),
)


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


def copied(path: Path, url: str) -> None:
    with open_store(str(path), read_only=True) as one, open_store(url) as other:
        copy(one, other, lambda what, done, total: None)


def test_every_page_is_the_same_on_both(database: Path, url: str) -> None:
    copied(database, url)
    with client_of(database) as one, client_of(url) as other:  # type: ignore[arg-type]
        for address in ADDRESSES:
            wanted, found = one.get(address), other.get(address)
            assert found.status_code == wanted.status_code, address
            assert same(found.text, url) == same(wanted.text, database), address


def same(text: str, place: Path | str) -> str:
    """A page without the name and the state of its database."""
    return re.sub(r'data-state="\w+"', "", text.replace(locate(str(place)).name, ""))


def test_hostile_names_are_the_same_on_both(hostile: Path, url: str) -> None:
    copied(hostile, url)
    with client_of(hostile) as one, client_of(url) as other:  # type: ignore[arg-type]
        for address in PLAIN:
            wanted, found = one.get(address), other.get(address)
            assert same(found.text, url) == same(wanted.text, hostile), address


def test_a_page_is_sent_again_once_something_is_stored(url: str) -> None:
    with open_store(url) as store:
        stored.add_night(store, 0, stored.keys(["timm"]))
        with client_of(url) as client:  # type: ignore[arg-type]
            tag = client.get("/").headers["etag"]
            assert client.get("/", headers={"if-none-match": tag}).status_code == 304
            stored.add_night(store, 1, stored.keys(["timm"]))
            again = client.get("/", headers={"if-none-match": tag})
            assert (again.status_code, again.headers["etag"] != tag) == (200, True)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def test_a_run_on_another_machine_is_seen_as_running(url: str, store: Store) -> None:
    run = stored.add_night(store, 0, stored.keys(["timm"]), until=5)
    source = DataAccess(store)
    before = source.store.version()

    def shown() -> Progress:
        page = PAGES["run"].view(source, parse(()), run.id)
        (found,) = [one for one in page.sections if isinstance(one, Progress)]
        return found

    with heartbeat.start_heartbeat(locate(url), run.id) as alive:
        alive.now("timm/resnet18", 5, 12)
        assert source.store.version() != before
        assert (shown().state, shown().case) == ("running", "timm/resnet18")
    assert shown().state == "interrupted"


def test_errors_do_not_tell_where_the_database_is(postgres: Server, url: str) -> None:
    with open_store(url) as store:
        stored.add_night(store, 0, stored.keys(["timm"]))
    with client_of(url) as client:  # type: ignore[arg-type]
        postgres.execute("ALTER TABLE run_fact RENAME TO gone", url)
        try:
            answer = client.get(f"{API}/runs")
        finally:
            postgres.execute("ALTER TABLE gone RENAME TO run_fact", url)
        assert answer.status_code in (404, 503)
        assert str(postgres.folder) not in answer.text
