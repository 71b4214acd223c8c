"""Readers and what the server makes for itself do not stand in each other's way."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path

import pytest
from starlette.requests import Request

from tests.web.conftest import PATIENCE_S, reading
from torchstone.web import app, serving
from torchstone.web.app import AppState, WarmupGate

SHORT_S = 0.3


@pytest.fixture
def own_collector() -> Iterator[None]:
    """The server looks for garbage seldom; the other tests of this process must not."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_is_made_for_later_waits_for_readers() -> None:
    gate = WarmupGate()
    with ThreadPoolExecutor(1) as pool:
        with gate.reading():
            maker = pool.submit(gate.give_way)
            with pytest.raises(TimeoutError):
                maker.result(SHORT_S)
        maker.result(app.PATIENCE_S)


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE_S", 0.05)
    gate = WarmupGate()
    with gate.reading():
        gate.give_way()


def test_the_overview_is_there_before_anybody_can_ask(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(database) as store:
        app_state = AppState(store)
        app_state.first()
        monkeypatch.setattr(app, "PAGES", {})  # what is not kept would raise
        asked = {"type": "http", "path": "/", "query_string": b"", "headers": []}
        answer = app_state.answer(Request(asked), "text/html", lambda source, state: "made anew")
    assert b"Overview" in answer.body
    assert b"made anew" not in answer.body


def test_nothing_is_made_for_a_server_that_ends(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []
    monkeypatch.setattr(app, "PAGES", {})  # looking for a page in it would raise
    monkeypatch.setattr(app, "PATIENCE_S", 3600.0)
    with reading(database) as store:
        app_state = AppState(store)
        app_state.describe = lambda: described.append("api")
        app_state.warmup_gate.end()
        with app_state.warmup_gate.reading():  # for whom nobody waits any more
            app_state.warm()
    assert described == []


@pytest.mark.usefixtures("own_collector")
def test_the_server_ends_after_the_page_that_it_is_making(database: Path) -> None:
    makes, may_end = threading.Event(), threading.Event()

    def describe() -> None:
        makes.set()
        may_end.wait(PATIENCE_S)

    def serve(app_state: AppState) -> None:
        with serving._warming(app_state):
            assert makes.wait(PATIENCE_S)

    with reading(database) as store, ThreadPoolExecutor(1) as pool:
        app_state = AppState(store)
        app_state.describe = describe
        server = pool.submit(serve, app_state)
        assert makes.wait(PATIENCE_S)
        with pytest.raises(TimeoutError):
            server.result(SHORT_S)
        may_end.set()
        server.result(PATIENCE_S)


def test_a_page_that_cannot_be_made_stops_no_server(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGES", {})
    with reading(database) as store:
        AppState(store).first()
