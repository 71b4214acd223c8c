"""Opening the SQLite file: durable, patient with other programs, and harmless to foreign files."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError

from torchstone.records import UsageError
from torchstone.store import migrations, schema
from torchstone.store.errors import not_a_database, translated
from torchstone.store.location import Location, cannot_open, check_file

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another. A save holds the database for milliseconds, so a wait of
this length means that a program hangs."""

_HEADER_BYTES = 100  # SQLite file format, section 1.3; SQLite takes less for an empty file
_WRITES = "torchstone_writes"
_CACHE_KIB = 16 * 1024  # the pages of a few runs; SQLite's own 2 MiB hold less than one


def open_engine(location: Location, *, create: bool, read_only: bool) -> Engine:
    """An engine on a checked database with all tables; `UsageError` and no change otherwise."""
    path = location.path
    exists = check_file(location, create=create and not read_only, read_only=read_only)
    with translated(path):
        version = _version(path, read_only=read_only) if exists else 0
        if read_only and not version:
            raise UsageError(f"The database {path} is empty.", "Run `torchstone bench` first.")
        if read_only and version < schema.SCHEMA:
            raise _older(str(path), version)
        if read_only:
            return _engine(path, _readable_mode(path))
        if not exists and location.own:
            _make_directory(path.parent)
        engine = _engine(path, "rw" if exists else "rwc")
        try:
            _use_wal(engine)
            if version < schema.SCHEMA:
                with writing(engine) as connection:
                    migrations.bring_up_to_date(connection)
        except BaseException:
            engine.dispose()
            raise
        return engine


def _older(name: str, version: int) -> UsageError:
    """The error for a database whose columns are not today's, where nothing may be changed."""
    return UsageError(
        f"The database {name} was made by an older Torchstone (schema {version}; this program "
        f"reads {schema.SCHEMA}).",
        f"Bring it up to date: torchstone db rebuild --db {name}",
    )


def check(location: Location) -> bool:
    """Whether the file exists; `UsageError` if it, or its place, could not take results."""
    exists = check_file(location, create=True, read_only=False)
    if exists:
        with translated(location.path):
            _version(location.path, read_only=False)
    return exists


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that takes the write lock at once, so that it never fails half-way.

    It commits at the end and rolls back on any exception.
    """
    with _finishing(), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


@contextmanager
def _finishing() -> Iterator[None]:
    """Put Ctrl-C off for the milliseconds of a write, and then let it act.

    The libraries beneath do not expect an interrupt between any two of their lines.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is None:  # None: not Python's to put back
        yield
        return
    waiting: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def _version(path: Path, *, read_only: bool) -> int:
    """Look, without writing, which version the file's tables have; 0 if it is still empty."""
    # Asked before the header is read: another program may just now be emptying its log into it.
    logged = _side_file(path, "-wal").exists()
    try:
        size = path.stat().st_size
    except OSError as error:
        raise cannot_open(path, error.strerror or str(error)) from None
    if not size:
        return 0
    if size < _HEADER_BYTES:
        raise not_a_database(path)
    _check_header(path, logged=logged)
    try:
        return _probe(path, _readable_mode(path))
    except (DBAPIError, sqlite3.Error):
        # A program killed while it made the file leaves a journal that only a writer may undo.
        if read_only or not _side_file(path, "-journal").exists():
            raise
        return _probe(path, "rw")


def _check_header(path: Path, *, logged: bool) -> None:
    """Refuse by the header alone where that is enough: opening a file leaves files beside it.

    By SQLite itself, as a file that nobody changes. Opened and closed by us, it would cost this
    process all the locks that it has on the file through other stores (a rule of POSIX).
    """
    with closing(sqlite3.connect(_uri(path, "immutable"), uri=True)) as raw:
        try:
            ours, version, pages = (
                raw.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version", "page_count")
            )
        except sqlite3.DatabaseError as error:
            if not os.access(path, os.R_OK):
                raise cannot_open(path, str(error)) from None
            if "not a database" in str(error):
                raise not_a_database(path) from None
            return  # a log is being emptied into it, or it is damaged: opening it tells which
    if ours == schema.APPLICATION_ID:
        if version > schema.SCHEMA:
            raise schema.newer(str(path), version)
        return
    # Pages that a killed program did not yet move out of the log may still make it ours.
    if pages > 1 and not logged:
        raise schema.not_ours(str(path))


def _probe(path: Path, mode: str) -> int:
    engine = _engine(path, mode)
    try:
        with engine.connect() as connection:
            return schema.check_version(connection)
    finally:
        engine.dispose()


def _readable_mode(path: Path) -> str:
    """`ro`; in a directory where SQLite cannot make its side files, `immutable`."""
    if os.access(path.parent, os.W_OK) or _side_file(path, "-wal").exists():
        return "ro"
    return "immutable"


def _side_file(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _engine(path: Path, mode: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        creator=partial(_connect, _uri(path, mode), read_only=mode in ("ro", "immutable")),
    )
    event.listen(engine, "begin", _begin)
    event.listen(engine, "invalidate", _let_go)
    return engine


def _uri(path: Path, mode: str) -> str:
    options = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    return f"file:{quote(os.path.abspath(path))}?{options}"


def _connect(uri: str, *, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,  # transactions begin where we say, see `_begin`
        check_same_thread=False,  # the pool gives a connection to one thread at a time
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
    connection.execute("PRAGMA trusted_schema = OFF")  # the file may come from elsewhere
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _let_go(connection: DBAPIConnection, record: object, reason: object) -> None:
    """Release the lock when an interrupt makes the pool throw a connection away.

    Closing alone does not: SQLite keeps a closed connection, and its lock, while a statement of
    it lives, and the traceback of the interrupt keeps one alive.
    """
    connection.rollback()


def _use_wal(engine: Engine) -> None:
    """Switch to the write-ahead log: readers and a writer do not wait for each other.

    SQLite does not wait when two programs switch a new file at once, so we do. A file system
    without shared memory keeps the old journal, which is as safe, only less parallel.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        while True:
            try:
                cursor.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)
    finally:
        raw.close()


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_open(directory, error.strerror or str(error)) from None
