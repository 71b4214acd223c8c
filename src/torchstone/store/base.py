"""What every part of the store stands on: one engine, for reading or for writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine

from torchstone.records import UsageError
from torchstone.store.engine import writing
from torchstone.store.errors import translated


class Base:
    """An open database. The parts of the store (`*_part`) add what can be asked of it."""

    def __init__(self, engine: Engine, path: Path, *, read_only: bool) -> None:
        self._engine = engine
        self._read_only = read_only
        self.path = path

    def close(self) -> None:
        """Give the file back. The last program to close it also folds its log into it."""
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
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
        with translated(self.path), writing(self._engine) as connection:
            yield connection
