"""The store: all SQL of Torchstone.

Holds: results with their raw samples, runs with the figures of their cases, and what is remembered
about each machine's noise, append-only, in a SQLite file or a PostgreSQL database; and tables
derived from them, which make pages quick. Touches: that database, `records`, `stats`, the standard
library and SQLAlchemy. The latter and `sqlite3` are imported when a store is opened, not before,
because they cost a third of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchstone.store.limits import RunSummary, Summary

if TYPE_CHECKING:
    from torchstone.store.case_rows import BriefRunView, BulkRun
    from torchstone.store.database import Store
    from torchstone.store.engine import (
        AlreadyStored,
        CorruptResultError,
        CorruptRunError,
        StoreBusyError,
    )
    from torchstone.store.maintenance import Rebuilt, ResultSize, SizeReport
    from torchstone.store.results import PruneReport

__all__ = [
    "AlreadyStored",
    "BriefRunView",
    "BulkRun",
    "CorruptResultError",
    "CorruptRunError",
    "PruneReport",
    "Rebuilt",
    "ResultSize",
    "RunSummary",
    "SizeReport",
    "Store",
    "StoreBusyError",
    "Summary",
    "check_store",
    "open_store",
]
_HOMES = ("engine", "case_rows", "results", "maintenance", "database")
"""Where the names are that are imported when they are asked for, the quickest to import first."""


def open_store(url: str | None = None, *, create: bool = True, read_only: bool = False) -> Store:
    """Open a database for use in a `with` block.

    `url` is a path, `sqlite:///PATH` or `postgresql+psycopg://USER@HOST/NAME`; without it,
    `TORCHSTONE_DB` from the environment, else `torchstone.db` in the user's data directory. With
    `create`, a file, or the tables, that do not exist are made. Raises `UsageError`, leaving the
    database as it is, if it cannot serve.
    """
    from torchstone.store.database import open_database

    return open_database(url, create=create, read_only=read_only)


def check_store(url: str | None = None) -> bool:
    """Whether there is a database with tables; `UsageError` if it or its place cannot serve.
    Writes nothing."""
    from torchstone.store.engine import check
    from torchstone.store.location import locate

    return check(locate(url))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torchstone.store' has no attribute {name!r}")
    from importlib import import_module

    homes = (import_module(f"torchstone.store.{home}") for home in _HOMES)
    return next(getattr(home, name) for home in homes if hasattr(home, name))
