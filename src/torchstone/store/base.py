"""What every part of the store stands on: one engine, for reading or for writing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, select

from torchstone.records import UsageError
from torchstone.store import schema
from torchstone.store.engine import writing
from torchstone.store.errors import translated


class Base:
    """An open database. The parts of the store (`*_part`) add what can be asked of it."""

    def __init__(self, engine: Engine, path: Path, *, read_only: bool) -> None:
        self._engine = engine
        self._held = threading.local()
        self._read_only = read_only
        self.path = path

    def close(self) -> None:
        """Give the file back. The last program to close it also folds its log into it."""
        self._engine.dispose()

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
