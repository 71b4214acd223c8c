"""One database and one server for all tests of a process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.web import long_history, stored
from torchstone.store import Store, open_store

pytest.importorskip("fastapi")
pytest.importorskip("jinja2")
uvicorn = pytest.importorskip("uvicorn")

from starlette.testclient import TestClient  # noqa: E402

from torchstone.web.app import make_app  # noqa: E402
from torchstone.web.security import Hosts  # noqa: E402

# Nothing here is about speed, and a shared machine may be slow.
PATIENCE_MS = 180_000
PATIENCE_S = 240.0
GRACE_S = 5.0
"""For a server to end by itself: no test asks it for anything any more."""


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be written to: every test sees the same."""
    return stored.make_database(tmp_path_factory.mktemp("web") / "nightly.db")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored.make_hostile(tmp_path_factory.mktemp("web") / "hostile.db")


@pytest.fixture(scope="session")
def long_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_history.make_long(tmp_path_factory.mktemp("web") / "long.db")


@contextmanager
def reading(path: Path) -> Iterator[Store]:
    with open_store(str(path), create=False, read_only=True) as store:
        yield store


@contextmanager
def client_of(path: Path) -> Iterator[TestClient]:
    with (
        reading(path) as store,
        TestClient(make_app(store, Hosts.of(["testserver"]))) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def client(database: Path) -> Iterator[TestClient]:
    with client_of(database) as made:
        yield made


@pytest.fixture(scope="session")
def hostile_client(hostile: Path) -> Iterator[TestClient]:
    with client_of(hostile) as made:
        yield made


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """A real server on a free port; its address."""
    with reading(path) as store:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        # A browser's connection that nobody closed does not keep the server, and so the tests.
        config = uvicorn.Config(
            make_app(store, Hosts.of()), log_level="error", ws="none", timeout_graceful_shutdown=2
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            assert server.started
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(GRACE_S)
            server.force_exit = True
            thread.join(GRACE_S)
            listening.close()


@pytest.fixture(scope="session")
def address(database: Path) -> Iterator[str]:
    with serving(database) as made:
        yield made


@pytest.fixture
def new_page(browser: Any) -> Iterator[Any]:
    """Open pages; what they ask for elsewhere, or complain of, fails the test."""
    seen: list[str] = []
    contexts: list[Any] = []

    def opened(allowed: str, **settings: Any) -> Any:
        context = browser.new_context(
            **{
                "viewport": {"width": 1280, "height": 900},
                "reduced_motion": "reduce",
                "color_scheme": "light",
                **settings,
            }
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)

        def asked(request: Any) -> None:
            if not request.url.startswith((allowed, "data:")):
                seen.append(f"asked for {request.url[:120]}")

        page.on("request", asked)
        page.on("console", lambda message: seen.append(f"said {message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"failed: {error}"))
        page.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert seen == []
