"""Opening the database: durable, patient with other programs, and harmless to foreign files.

What is SQLite's own is here, what is PostgreSQL's in `postgres`, which is imported if it is asked
for.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, PoolProxiedConnection, create_engine, event, select
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError

from torchstone.records import TorchstoneError, UsageError
from torchstone.store import heartbeat, schema
from torchstone.store.location import Location, cannot_open, check_file

T = TypeVar("T")

# The store's errors, and the translation of the database's own into sentences with a remedy.


MAX_NAMED = 8
"""Ids or cases named in an error; more would bury the sentence."""


class StoreBusyError(TorchstoneError):
    """Another program held the database for longer than we wait."""


class CorruptResultError(UsageError):
    """A stored result can no longer be read; the others can."""

    def __init__(self, result_id: str, reason: str) -> None:
        super().__init__(
            f"The stored result {result_id} is damaged and cannot be read: {reason}.",
            "Other results are not affected (`torchstone list`); restore this one from a backup.",
        )
        self.result_id = result_id


class CorruptRunError(UsageError):
    """A stored run, or the figures of one of its cases, can no longer be read."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"The stored run {run_id} is damaged and cannot be read: {reason}.",
            "Other runs are not affected (`torchstone list runs`); restore this one from a backup.",
        )
        self.run_id = run_id


class AlreadyStored(TorchstoneError):
    """These cases of the run are stored; nothing of the second is kept.

    `same` where they are those of the very attempt that was given: a writer whose connection broke
    while it committed tries again, and does not know that all went well.
    """

    def __init__(self, run_id: str, positions: Sequence[int], *, same: bool = False) -> None:
        cases = ", ".join(str(position) for position in positions[:MAX_NAMED])
        more = ", ..." if len(positions) > MAX_NAMED else ""
        super().__init__(
            f"Already stored in run {run_id}: case {cases}{more} (counted from 0).",
            "A case is stored once; see it with `torchstone show`.",
        )
        self.run_id = run_id
        self.positions = tuple(positions)
        self.same = same


@contextmanager
def translated(location: Location) -> Iterator[None]:
    """Turn database errors into Torchstone's own; anything else passes as it is."""
    try:
        yield
    except DBAPIError as error:
        if location.url:
            from torchstone.store import postgres

            raise postgres.translate(location, error) from None  # it may quote the address
        unfit = isinstance(error, IntegrityError)
        raise _translate(location.path, str(error.orig), unfit=unfit) from error
    except sqlite3.Error as error:
        unfit = isinstance(error, sqlite3.IntegrityError)
        raise _translate(location.path, str(error), unfit=unfit) from error


def refused(name: object, reason: str) -> TorchstoneError:
    """The error for a change that the tables do not allow."""
    if "append-only" in reason:
        return UsageError(
            f"The database {name} refused the change: {reason}.", "Save a new result instead."
        )
    return TorchstoneError(
        f"The database {name} refused the change: {reason}. Nothing of it was stored.",
        "This is a fault of Torchstone's, or the database was changed by another program: "
        "report it, with the command.",
    )


def _translate(path: Path, reason: str, *, unfit: bool) -> TorchstoneError:
    # By text, because Python 3.10 gives no error code.
    text = reason.lower()
    if unfit or "append-only" in text:  # before the rest: it quotes names of columns
        return refused(path, reason)
    if "locked" in text or "busy" in text:
        return StoreBusyError(
            f"The database {path} is held by another program.",
            "Wait for it to end and try again, or name another database with --db.",
        )
    if "not a database" in text:
        return not_a_database(path)
    if "malformed" in text or "corrupt" in text:
        return UsageError(
            f"The database {path} is damaged ({reason}).",
            "Restore it from a backup, or name another database with --db.",
        )
    if "full" in text or _is_full(path):  # opening a file on a full disk fails for other reasons
        return TorchstoneError(
            f"The database {path} cannot grow: the disk is full.",
            "Free some space, or name another database with --db.",
        )
    if "readonly" in text or "read-only" in text:
        return cannot_open(path, "it may not be written")
    return cannot_open(path, reason)


_ROOM = 64 * 1024
"""Less than this is no room: a first page, an index and a log need more."""


def _is_full(path: Path) -> bool:
    """Whether the file system has no room left, for us."""
    try:
        found = os.statvfs(path.parent)
    except (OSError, AttributeError):
        return False
    return found.f_bavail * found.f_frsize < _ROOM


def not_a_database(path: Path) -> UsageError:
    """The error for a file of another kind."""
    return UsageError(
        f"{path} is not a database; it was left as it is.",
        "Give the path of a Torchstone database, or of a file that does not exist yet.",
    )


BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another. A save holds the database for milliseconds, so a wait of
this length means that a program hangs."""

_HEADER_BYTES = 100  # SQLite file format, section 1.3; SQLite takes less for an empty file
_WRITES = "torchstone_writes"
_CACHE_KIB = 16 * 1024  # the pages of a few runs; SQLite's own 2 MiB hold less than one


def open_engine(location: Location, *, create: bool, read_only: bool) -> Engine:
    """An engine on a checked database with all tables; `UsageError` and no change otherwise."""
    with translated(location):
        if location.url:
            return _open_server(location, create=create, read_only=read_only)
        path = location.path
        exists = check_file(location, create=create and not read_only, read_only=read_only)
        version = _version(path, read_only=read_only) if exists else 0
        if read_only:
            _check_readable(location, version)
            return _engine(path, _readable_mode(path))
        if not exists and location.own:
            _make_directory(path.parent)
        engine = _engine(path, "rw" if exists else "rwc")
        with _disposing(engine):
            _use_wal(engine)
            if version < schema.SCHEMA:
                with writing(engine) as connection:
                    bring_up_to_date(connection)
        return engine


def _check_readable(location: Location, version: int) -> None:
    if not version:
        raise UsageError(f"The database {location} is empty.", "Run `torchstone bench` first.")
    if version < schema.SCHEMA:
        raise UsageError(  # its columns are not today's
            f"The database {location} was made by an older Torchstone (schema {version}; this "
            f"program reads {schema.SCHEMA}).",
            f"Bring it up to date: torchstone db rebuild --db {location}",
        )


def _open_server(location: Location, *, create: bool, read_only: bool) -> Engine:
    from torchstone.store import postgres

    # A reader's first look stands for the ping, and is repeated: see `Base.snapshot`.
    engine = postgres.make_engine(location, ping=not read_only)
    with _disposing(engine):
        with engine.connect() as connection:
            version = schema.check_version(connection)
        if read_only or not (version or create):
            _check_readable(location, version)
        elif version < schema.SCHEMA:
            with _finishing(), postgres.writing(engine, counted=False) as connection:
                bring_up_to_date(connection)
    return engine


@contextmanager
def _disposing(engine: Engine) -> Iterator[None]:
    """Give everything back where it does not come to be opened."""
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


def check(location: Location) -> bool:
    """Whether there is a database with tables; `UsageError` if it, or its place, could not take
    results."""
    with translated(location):
        if location.url:
            from torchstone.store import postgres

            engine = postgres.make_engine(location)
            try:
                with engine.connect() as connection:
                    return bool(schema.check_version(connection))
            finally:
                engine.dispose()
        exists = check_file(location, create=True, read_only=False)
        return exists and bool(_version(location.path, read_only=False))


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that takes the write lock at once, so that it never fails half-way.

    It commits at the end and rolls back on any exception.
    """
    with _finishing():
        if engine.dialect.name == schema.SERVER:
            from torchstone.store import postgres

            with postgres.writing(engine) as connection:
                yield connection
            return
        with engine.execution_options(**{_WRITES: True}).begin() as connection:
            yield connection


@contextmanager
def _finishing() -> Iterator[None]:
    """Put Ctrl-C and SIGTERM off for the milliseconds of a write, and then let them act.

    The libraries beneath do not expect an interrupt between any two of their lines.
    """
    main = threading.current_thread() is threading.main_thread()
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # None: not Python's to put back. The system's own end of a program needs nothing put off.
    ours = [number for number, handler in known.items() if callable(handler)]
    if not main or not ours:
        yield
        return
    waiting: list[int] = []
    for number in ours:
        signal.signal(number, lambda got, frame: waiting.append(got))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, known[number])
        if waiting:
            signal.raise_signal(waiting[0])


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


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        known = path.stat()
    except OSError:
        return 0, 0, 0
    return known.st_ino, known.st_size, known.st_mtime_ns


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_open(directory, error.strerror or str(error)) from None


# What each database system has to be asked in its own words.


def table_bytes(connection: Connection) -> dict[str, int] | None:
    """Bytes on disk of each table with its indexes; None where this SQLite does not tell."""
    if connection.dialect.name == schema.SERVER:
        from torchstone.store import postgres

        return postgres.table_bytes(connection)
    try:
        rows = connection.exec_driver_sql(
            "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM "
            "(SELECT name, sum(pgsize) AS pgsize FROM dbstat WHERE aggregate = TRUE GROUP BY name)"
            " AS s LEFT JOIN sqlite_master AS m ON m.name = s.name GROUP BY 1"
        )
        return {str(row[0]): int(row[1]) for row in rows}
    except DBAPIError:  # compiled without the table `dbstat`
        return None


def file_bytes(connection: Connection) -> tuple[int, int]:
    """Bytes of the database, and how many of them are free for what comes next, which
    PostgreSQL does not tell."""
    if connection.dialect.name == schema.SERVER:
        return sum((table_bytes(connection) or {}).values()), 0
    page, pages, free = (
        int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
        for name in ("page_size", "page_count", "freelist_count")
    )
    return page * pages, page * free


def compact(engine: Engine) -> int:
    """Give free space back to the file system; how much. Needs as much again while it works."""
    if engine.dialect.name == schema.SERVER:
        from torchstone.store import postgres

        return postgres.compact(engine)
    with engine.connect() as connection:
        before, _ = file_bytes(connection)
        raw = connection.connection.driver_connection
        connection.rollback()  # neither can be done inside a transaction
        if raw is not None:
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        after, _ = file_bytes(connection)
        return before - after


# Older databases brought up to date: one step for each version, all in one transaction.
#
# A step only ever adds; an index that nothing asks for any more may go. A program of the older
# version that has the file open meanwhile goes on working, and no step can lose what is stored.


def _add_imported(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=schema.SINCE_2)


def _add_means(connection: Connection) -> None:
    """Suites over time in seconds and bytes; runs of before have none."""
    for name in schema.SINCE_3:
        connection.exec_driver_sql(f"ALTER TABLE group_fact ADD COLUMN {name} FLOAT")
        kind = "BIGINT" if connection.dialect.name == schema.SERVER else "INTEGER"
        connection.exec_driver_sql(
            f"ALTER TABLE group_fact ADD COLUMN {name}_n {kind} NOT NULL DEFAULT 0"
        )


def _add_sharing(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=schema.SINCE_4)


STEPS: Mapping[int, Callable[[Connection], None]] = {
    2: _add_imported,
    3: _add_means,
    4: _add_sharing,
}
"""By the version that a step leads to. A table changed later needs its older form kept here."""


def bring_up_to_date(connection: Connection) -> None:
    """Make the tables, or add what an older version lacks; the caller holds the write lock.

    The version is asked for under the lock, because another program may have been quicker.
    """
    version = schema.check_version(connection)
    if not version:
        schema.create(connection)
        if connection.dialect.name == schema.SERVER:
            from torchstone.store import postgres

            postgres.begin_counting(connection)
        return
    for step in range(version + 1, schema.SCHEMA + 1):
        STEPS[step](connection)
        schema.set_version(connection, step)


def _twice(connection: Connection, question: Callable[[Connection], T]) -> T:
    """What only reads may be asked again where the server was restarted since."""
    try:
        return question(connection)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        connection.rollback()  # the next statement takes another connection
        connection.engine.dispose()  # and not an idle one, which broke with this one
        return question(connection)


# What every part of the store stands on: one engine, for reading or for writing.


class Base:
    """An open database. `HistoryPart` and the like add what can be asked of it."""

    def __init__(self, engine: Engine, location: Location, *, read_only: bool) -> None:
        self._engine = engine
        self._held = threading.local()
        self._watching = threading.Lock()
        self._watch: PoolProxiedConnection | None = None
        self._asked: Connection | None = None
        self._read_only = read_only
        self.location = location

    def close(self) -> None:
        """Give the file back. The last program to close it also folds its log into it."""
        with self._watching:
            for kept in (self._watch, self._asked):
                if kept is not None:
                    kept.close()
            self._watch = self._asked = None
        self._engine.dispose()

    def version(self) -> str:
        """Another word after every commit that can be seen now, and whenever what is measured into
        the database changes, as long as the store is open."""
        if self.location.url:
            from torchstone.store import postgres

            return self._ask(postgres.version)
        path, log = self.location.path, _side_file(self.location.path, "-wal")
        # Times of files are coarse, and the log is written before what is in it can be seen.
        stamps = self._commits(), _stamp(path), _stamp(log)
        return repr((stamps, heartbeat.told(heartbeat.living(path))))

    def _commits(self) -> int:
        with self._watching, translated(self.location):
            if self._watch is None:
                self._watch = self._engine.raw_connection()
            cursor = self._watch.cursor()
            try:
                # It compares with what this very connection saw last.
                return int(cursor.execute("PRAGMA data_version").fetchone()[0])
            finally:
                cursor.close()

    def running_ids(self) -> frozenset[str]:
        """The runs that a living program is measuring into this database."""
        if not self.location.url:
            return heartbeat.running_ids(self.location)
        if self._connection is not None:
            return self._running(self._connection)
        return self._ask(self._running)

    def _running(self, connection: Connection) -> frozenset[str]:
        """The same, for whoever has a connection already."""
        if not self.location.url:
            return heartbeat.running_ids(self.location)
        from torchstone.store import postgres

        return frozenset(run_id for run_id, _ in postgres.living(connection))

    def progress(self, run_id: str) -> heartbeat.Progress | None:
        """How far the living programs of a run are; None where there is none."""
        if not self.location.url:
            return heartbeat.progress(self.location, run_id)
        from torchstone.store import postgres

        with self._reading() as connection:
            parts = [part for of, part in postgres.living(connection) if of == run_id]
        return heartbeat.progress_of(run_id, parts)

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Ask a server what every page asks first, over a connection that is kept for it. One that
        broke meanwhile is replaced."""
        with self._watching, translated(self.location):
            if self._asked is None:
                made = self._engine.execution_options(isolation_level="AUTOCOMMIT")
                self._asked = made.connect()
            try:
                return _twice(self._asked, question)
            except DBAPIError:
                self._asked.close()
                self._asked = None
                raise

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
            with translated(self.location):
                connection = stack.enter_context(self._engine.connect())
                # The first look fixes it.
                _twice(connection, lambda c: c.execute(select(schema.meta.c.value).limit(1)))
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
            with translated(self.location):
                yield held
            return
        with translated(self.location), self._engine.connect() as connection:
            yield connection

    def _refuse_reading_only(self) -> None:
        if self._read_only:
            raise UsageError(
                f"The database {self.location} was opened for reading only.",
                "Open it for writing, or name another database with --db.",
            )

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._refuse_reading_only()
        if self._connection is not None:
            raise RuntimeError("what is written inside a snapshot could not be read back there")
        with translated(self.location), writing(self._engine) as connection:
            yield connection
