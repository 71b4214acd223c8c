"""What every part of the store stands on: one engine, for reading or for writing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, PoolProxiedConnection, select

from torchstone.records import UsageError
from torchstone.store import schema
from torchstone.store.engine import writing
from torchstone.store.errors import translated


class Base:
    """An open database. The parts of the store (`*_part`) add what can be asked of it."""

    def __init__(self, engine: Engine, path: Path, *, read_only: bool) -> None:
        self._engine = engine
        self._held = threading.local()
        self._watching = threading.Lock()
        self._watch: PoolProxiedConnection | None = None
        self._read_only = read_only
        self.path = path

    def close(self) -> None:
        """Give the file back. The last program to close it also folds its log into it."""
        with self._watching:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
        self._engine.dispose()

    def commits(self) -> int:
        """Another number after every commit that can be seen now, as long as the store is open."""
        with self._watching, translated(self.path):
            if self._watch is None:
                self._watch = self._engine.raw_connection()
            cursor = self._watch.cursor()
            try:
                # It compares with what this very connection saw last.
                return int(cursor.execute("PRAGMA data_version").fetchone()[0])
            finally:
                cursor.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer everything that this thread asks in the block from one state of the database.

        What others write meanwhile is seen after it; this thread may not. Blocks may be nested,
        and the outermost one counts.
        """
        if self._connection is not None:
            yield
            return
        with ExitStack() as stack:
            with translated(self.path):
                connection = stack.enter_context(self._engine.connect())
                connection.execute(select(schema.meta.c.value).limit(1))  # the first look fixes it
            stack.callback(setattr, self._held, "connection", None)
            self._held.connection = connection
            yield

    @property
    def _connection(self) -> Connection | None:
        """The one that holds this thread's snapshot."""
        return getattr(self._held, "connection", None)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        held = self._connection
        if held is not None:
            with translated(self.path):
                yield held
            return
        with translated(self.path), self._engine.connect() as connection:
            yield connection

    def _refuse_reading_only(self) -> None:
        if self._read_only:
            raise UsageError(
                f"The database {self.path} was opened for reading only.",
                "Open it for writing, or name another database with --db.",
            )

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._refuse_reading_only()
        if self._connection is not None:
            raise RuntimeError("what is written inside a snapshot could not be read back there")
        with translated(self.path), writing(self._engine) as connection:
            yield connection
