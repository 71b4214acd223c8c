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
from torchstone.web.app import Courtesy, Desk

SHORT_S, LONG_S = 0.3, 20.0


@pytest.fixture
def own_collector() -> Iterator[None]:
    """The server looks for garbage seldom; the other tests of this process must not."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def read(desk: Courtesy, read_it: threading.Event) -> None:
    with desk.reading():
        read_it.set()


def test_nobody_waits_for_a_page_that_nobody_makes() -> None:
    done = threading.Event()
    read(Courtesy(), done)
    assert done.is_set()


def test_readers_wait_for_the_first_page() -> None:
    desk, done = Courtesy(), threading.Event()
    desk.begin()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read, desk, done)
        with pytest.raises(TimeoutError):
            reader.result(SHORT_S)
        assert not done.is_set()
        desk.made()
        reader.result(app.PATIENCE_S)
    assert done.is_set()


def test_what_is_made_after_it_waits_for_readers() -> None:
    desk = Courtesy()
    with ThreadPoolExecutor(1) as pool:
        with desk.reading():
            maker = pool.submit(desk.give_way)
            with pytest.raises(TimeoutError):
                maker.result(SHORT_S)
        maker.result(app.PATIENCE_S)


def test_neither_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE_S", 0.05)
    desk, done = Courtesy(), threading.Event()
    desk.begin()
    read(desk, done)
    assert done.is_set()
    with desk.reading():
        desk.give_way()


def test_only_one_reader_has_to_lose_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE_S", 0.05)
    desk, done = Courtesy(), threading.Event()
    desk.begin()
    read(desk, done)
    monkeypatch.setattr(app, "PATIENCE_S", LONG_S)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(read, desk, threading.Event()).result(LONG_S / 2)


def test_a_server_that_ends_lets_waiting_readers_go() -> None:
    desk, done = Courtesy(), threading.Event()
    desk.begin()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read, desk, done)
        desk.end()
        reader.result(app.PATIENCE_S / 2)
    assert done.is_set()


def test_readers_go_on_when_the_first_page_cannot_be_made(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGES", {})
    with reading(database) as store:
        desk = Desk(store)
        desk.courtesy.begin()
        with pytest.raises(KeyError):
            desk.warm()
        done = threading.Event()
        monkeypatch.setattr(app, "PATIENCE_S", 3600.0)
        read(desk.courtesy, done)
    assert done.is_set()


def test_nothing_is_made_for_a_server_that_ends(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []
    monkeypatch.setattr(app, "PAGES", {})  # looking for a page in it would raise
    monkeypatch.setattr(app, "PATIENCE_S", 3600.0)
    with reading(database) as store:
        desk = Desk(store)
        desk.describe = lambda: described.append("api")
        desk.courtesy.end()
        with desk.courtesy.reading():  # for whom nobody waits any more
            desk.warm()
    assert described == []


@pytest.mark.usefixtures("own_collector")
def test_the_server_ends_after_the_page_that_it_is_making(database: Path) -> None:
    makes, may_end = threading.Event(), threading.Event()

    def describe() -> None:
        makes.set()
        may_end.wait(PATIENCE_S)

    def serve(desk: Desk) -> None:
        with serving._warming(desk):
            assert makes.wait(PATIENCE_S)

    with reading(database) as store, ThreadPoolExecutor(1) as pool:
        desk = Desk(store)
        desk.describe = describe
        server = pool.submit(serve, desk)
        assert makes.wait(PATIENCE_S)
        with pytest.raises(TimeoutError):
            server.result(SHORT_S)
        may_end.set()
        server.result(PATIENCE_S)
