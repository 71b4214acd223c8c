"""Readers and what the server makes for itself do not stand in each other's way."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path

import pytest

from tests.web.conftest import PATIENCE_S, reading
from torchstone.web import app, serving
from torchstone.web.app import AppState, WarmupGate

SHORT_S, LONG_S = 0.3, 20.0


@pytest.fixture
def own_collector() -> Iterator[None]:
    """The server looks for garbage seldom; the other tests of this process must not."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def read(gate: WarmupGate, read_it: threading.Event) -> None:
    with gate.reading():
        read_it.set()


def test_nobody_waits_for_a_page_that_nobody_makes() -> None:
    done = threading.Event()
    read(WarmupGate(), done)
    assert done.is_set()


def test_readers_wait_for_the_first_page() -> None:
    gate, done = WarmupGate(), threading.Event()
    gate.first_page.clear()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read, gate, done)
        with pytest.raises(TimeoutError):
            reader.result(SHORT_S)
        assert not done.is_set()
        gate.first_page.set()
        reader.result(app.PATIENCE_S)
    assert done.is_set()


def test_what_is_made_after_it_waits_for_readers() -> None:
    gate = WarmupGate()
    with ThreadPoolExecutor(1) as pool:
        with gate.reading():
            maker = pool.submit(gate.give_way)
            with pytest.raises(TimeoutError):
                maker.result(SHORT_S)
        maker.result(app.PATIENCE_S)


def test_neither_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE_S", 0.05)
    gate, done = WarmupGate(), threading.Event()
    gate.first_page.clear()
    read(gate, done)
    assert done.is_set()
    with gate.reading():
        gate.give_way()


def test_only_one_reader_has_to_lose_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE_S", 0.05)
    gate, done = WarmupGate(), threading.Event()
    gate.first_page.clear()
    read(gate, done)
    monkeypatch.setattr(app, "PATIENCE_S", LONG_S)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(read, gate, threading.Event()).result(LONG_S / 2)


def test_a_server_that_ends_lets_waiting_readers_go() -> None:
    gate, done = WarmupGate(), threading.Event()
    gate.first_page.clear()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read, gate, done)
        gate.end()
        reader.result(app.PATIENCE_S / 2)
    assert done.is_set()


def test_readers_go_on_when_the_first_page_cannot_be_made(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGES", {})
    with reading(database) as store:
        app_state = AppState(store)
        app_state.warmup_gate.first_page.clear()
        with pytest.raises(KeyError):
            app_state.warm()
        done = threading.Event()
        monkeypatch.setattr(app, "PATIENCE_S", 3600.0)
        read(app_state.warmup_gate, done)
    assert done.is_set()


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
