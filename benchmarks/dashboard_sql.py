"""What a page asks of the database: its bare SQL, recorded and asked again without us, and what the
store takes to answer the same with records."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from dashboard_server import BenchmarkError, again
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from torchstone.store import Store
from torchstone.web.app import make_app
from torchstone.web.security import Hosts

HOST = "testserver"
CACHE = "PRAGMA cache_size = -16384"
"""As the store sets it."""
Statement = tuple[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a page asks the first time, and what it still asks when it remembers the rest."""

    first: tuple[Statement, ...]
    again: tuple[Statement, ...]


@dataclass(frozen=True)
class Bare:
    """Statements, and the middle of the milliseconds that SQLite and Python's module take."""

    statements: int
    ms: float


@dataclass(frozen=True)
class Cost:
    """Of a page: its statements and their milliseconds, and those of the store's answers. `warm`
    is of a page that remembers what it may."""

    statements: int = 0
    sql_ms: float | None = None
    store_ms: float | None = None
    statements_warm: int = 0
    sql_warm_ms: float | None = None
    store_warm_ms: float | None = None


def cost(store: Store, path: Path, address: str, repeats: int) -> Cost:
    """What the page at this address asks costs without the page."""
    asked = ask(store, address)
    first, again = (replay(path, part, repeats) for part in (asked.first, asked.again))
    answers = [_answered(store, address) for _ in range(max(1, repeats // 8))]
    stored, stored_again = (statistics.median(part) for part in zip(*answers, strict=True))
    return Cost(first.statements, first.ms, stored, again.statements, again.ms, stored_again)


def ask(store: Store, address: str) -> Asked:
    """Make the page twice in this process, with nothing remembered before."""
    client = TestClient(make_app(store, Hosts.of([HOST])))
    found = []
    for number in range(2):
        with recorded() as statements:
            _get(client, again(address, number))
        found.append(tuple(statements))
    return Asked(*found)


def _answered(store: Store, address: str) -> tuple[float, float]:
    """Milliseconds in the store's methods, of a first and of a later request."""
    timed = Timed(store)
    client = TestClient(make_app(cast(Store, timed), Hosts.of([HOST])))
    took = []
    for number in range(2):
        timed.ms = 0.0
        _get(client, again(address, number))
        took.append(timed.ms)
    return took[0], took[1]


def _get(client: TestClient, address: str) -> None:
    reply = client.get(address)
    if reply.status_code != 200:
        raise BenchmarkError(f"{address} answered {reply.status_code}: {reply.text[:300]}")


class Timed:
    """A store that counts the milliseconds of its answers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.ms = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def answer(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return found(*given, **named)
            finally:
                self.ms += (time.perf_counter() - began) * 1e3

        return answer


@contextmanager
def recorded() -> Iterator[list[Statement]]:
    """Every statement of this process meanwhile, but for those that begin a transaction."""
    seen: list[Statement] = []

    def note(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if not statement.startswith("BEGIN"):
            seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def replay(path: Path, statements: Sequence[Statement], repeats: int) -> Bare:
    """Ask them again on a bare connection, in their order, and take every row."""
    uri = f"file:{quote(str(path.resolve()))}?mode=ro"
    times = []
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)) as raw:
        raw.execute(CACHE)
        for _ in range(repeats + 1):
            began = time.perf_counter()
            for statement, parameters in statements:
                raw.execute(statement, parameters).fetchall()
            times.append((time.perf_counter() - began) * 1e3)
    return Bare(len(statements), statistics.median(times[1:]))
