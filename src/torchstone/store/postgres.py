"""What is PostgreSQL's own: how it is opened and locked, what its errors mean, its sizes.

Writers queue on one advisory lock, as they do on SQLite's file: what a transaction looks up before
it adds to it is then still true, and rows are numbered in the order in which they can be seen.
Nothing here outlives a transaction, so that a pool in front of the server (PgBouncer) does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, create_engine, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
)

from torchstone.records import TorchstoneError, UsageError
from torchstone.store import schema
from torchstone.store.engine import BUSY_TIMEOUT_S, StoreBusyError, open_engine, refused
from torchstone.store.heartbeat import Heartbeat, Part, has_ended, part_of, told
from torchstone.store.location import Location, cannot_open, redact

IDLE_TIMEOUT_S = 300
"""A writer that says nothing for so long has lost its network: the server ends it, and its lock."""
_CONNECT_TIMEOUT_S = 10
_CONNECTIONS, _MORE_CONNECTIONS = 5, 45
"""Kept open, and opened where more ask at once: pages are made by up to 40 threads."""
_COMMITS_KEY = "commits"

_LOCK = text(
    "SELECT set_config('lock_timeout', :wait, true), "
    "set_config('idle_in_transaction_session_timeout', :idle, true), "
    "pg_advisory_xact_lock(:key, hashtext(coalesce(current_schema(), '')))"
).bindparams(wait=f"{BUSY_TIMEOUT_S:.0f}s", idle=f"{IDLE_TIMEOUT_S}s", key=schema.APPLICATION_ID)
_COUNT = text(f"UPDATE meta SET value = (value::bigint + 1)::text WHERE key = '{_COMMITS_KEY}'")


def make_engine(location: Location, *, ping: bool = True) -> Engine:
    """An engine on the server, which is not asked for anything yet. `ping`: a connection that broke
    while nobody used it is replaced before anything is written over it.

    A reading transaction sees one state of the database, as SQLite's does.
    """
    try:
        url = make_url(location.url)
        given: dict[str, Any] = {
            "application_name": "torchstone",
            "client_encoding": "utf8",
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "keepalives_idle": int(BUSY_TIMEOUT_S),
            "tcp_user_timeout": int(BUSY_TIMEOUT_S * 1000),
            "prepare_threshold": None,  # prepared statements are a session's, a pool's not ours
        }
        return create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=ping,
            pool_size=_CONNECTIONS,
            max_overflow=_MORE_CONNECTIONS,
            use_native_hstore=False,
            connect_args={name: value for name, value in given.items() if name not in url.query},
        )
    except ImportError:
        raise UsageError(
            "A PostgreSQL database needs the package psycopg.",
            'Install it: pip install "torchstone[postgres]".',
        ) from None
    except (ArgumentError, NoSuchModuleError, ValueError):  # they may quote it, password and all
        raise UsageError(
            "The address of the database cannot be read.",
            "Write postgresql+psycopg://USER@HOST:PORT/NAME; in a password, write @ as %40.",
        ) from None


@contextmanager
def writing(engine: Engine, *, counted: bool = True) -> Iterator[Connection]:
    """A transaction that holds the write lock; `counted` where the tables are there already."""
    options = {"isolation_level": "READ COMMITTED"}  # what was committed while we waited is seen
    with engine.execution_options(**options).begin() as connection:
        connection.execute(_LOCK)
        if counted:
            connection.execute(_COUNT)
        yield connection


def begin_counting(connection: Connection) -> None:
    """Of new tables: refuse an encoding that cannot hold every text, and start the counter."""
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise UsageError(
            f"The database has the encoding {encoding}, which cannot hold every text.",
            "Make one with: createdb --encoding UTF8 --template template0 NAME.",
        )
    connection.execute(schema.meta.insert().values(key=_COMMITS_KEY, value="0"))


# Errors, by the codes of the SQL standard (SQLSTATE) where there is one.

_BUSY = ("55P03", "57014", "40P01", "40001", "53300", "53200")
_LOST = ("08", "57P", "25P03")
"""Beginnings: the connection is gone, the server is going down, or it ended an idle transaction."""
_REFUSED = ("authentication", "does not exist", "no password supplied", "pg_hba.conf", "permitted")


def translate(location: Location, error: DBAPIError) -> TorchstoneError:
    """The error to raise for one of the server's."""
    state = getattr(error.orig, "sqlstate", None) or ""
    reason = _reason(location, error)
    lost = isinstance(error, (OperationalError, InterfaceError))  # if it is not one of the codes
    if "append-only" in reason or state.startswith("23") or not (state or lost):
        return refused(location, reason)
    if state in _BUSY:
        return StoreBusyError(
            f"The database {location} is held by another program ({reason}).",
            "Wait for it to end and try again, or name another database with --db.",
        )
    if state.startswith("53"):
        return TorchstoneError(
            f"The database {location} cannot grow: {reason}.",
            "Free some space on the server, or name another database with --db.",
        )
    if state and not state.startswith(_LOST):
        return cannot_open(location, reason)
    if any(word in reason for word in _REFUSED):
        return UsageError(
            f"The database {location} cannot be opened: {reason}.",
            "Check user and database (createdb NAME makes one); a password may stand in "
            "PGPASSWORD or ~/.pgpass.",
        )
    return StoreBusyError(
        f"The database {location} cannot be reached: {reason}.",
        "Check that the server runs and that its address is right.",
    )


def _reason(location: Location, error: DBAPIError) -> str:
    """The first line of what the server said, without the password."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    # Of several addresses that were tried, the last line tells most.
    said = next((line for line in lines if "FATAL" in line), lines[0] if lines else "no reason")
    try:
        password = make_url(location.url).password
    except (ArgumentError, ValueError):
        password = None
    said = redact(said).removesuffix(".")
    return said.replace(password, "***") if password else said


# Heartbeats: a row for each program that measures, beaten by the server's clock, because those of
# machines differ. They wait for no writer, and no writer for them.

BEAT_S = 10.0
ALIVE_S = 60.0
"""A program that was silent for longer is dead, or cannot reach the server and so cannot store."""
_SWEPT_S = 3600.0
_NOW = "extract(epoch FROM clock_timestamp())"
_BEAT = text(
    "INSERT INTO heartbeat (token, run_id, document, seen) "
    f"VALUES (:token, :run, :document, {_NOW}) "
    "ON CONFLICT (token) DO UPDATE SET document = excluded.document, seen = excluded.seen"
)
_SWEEP = text(f"DELETE FROM heartbeat WHERE token = :token OR seen < {_NOW} - {_SWEPT_S}")
_LIVING = text(f"SELECT token, run_id, document FROM heartbeat WHERE seen > {_NOW} - {ALIVE_S}")
_VERSION = text(f"SELECT '', '', value FROM meta WHERE key = '{_COMMITS_KEY}' UNION ALL {_LIVING}")


def living(connection: Connection, besides: str = "") -> Iterator[tuple[str, Part]]:
    """Run and sign of every program that was heard of just now; of this machine's own programs we
    know better."""
    return _living(connection.execute(_LIVING), besides)


def _living(rows: Iterable[Any], besides: str = "") -> Iterator[tuple[str, Part]]:
    for token, run_id, document in rows:
        part = part_of(document)
        if token != besides and not has_ended(part):
            yield run_id, part


def version(connection: Connection) -> str:
    """How many writing transactions were committed, and how far living programs are; in one
    question, because every page asks it first."""
    rows = connection.execute(_VERSION).all()
    commits = [document for token, _, document in rows if not token]
    return repr((commits, told(_living(row for row in rows if row[0]))))


class ServerHeartbeat(Heartbeat):
    """A thread beats for us while a case is measured: seconds pass, and now and then minutes."""

    def __init__(self, location: Location, run_id: str, shard: str = "", node: str = "") -> None:
        super().__init__(run_id, shard, node)
        made = open_engine(location, create=True, read_only=False)  # of a first run: its tables
        self._engine = made.execution_options(isolation_level="AUTOCOMMIT")
        self._document = "{}"
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def _show(self, document: str) -> None:
        self._document = document
        self._do(_BEAT, token=self._token, run=self._run_id, document=document)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._show(self._document)

    def _do(self, statement: TextClause, **values: str) -> None:
        with suppress(DBAPIError), self._engine.connect() as connection:
            connection.execute(statement, values)

    def others(self) -> tuple[Part, ...]:
        """By their rows."""
        with suppress(DBAPIError), self._engine.connect() as connection:
            found = living(connection, besides=self._token)
            return tuple(part for run_id, part in found if run_id == self._run_id)
        return ()

    def end(self) -> None:
        """Take the row away, and those of programs that died long ago."""
        self._ended.set()
        self._beating.join()
        self._do(_SWEEP, token=self._token)
        self._engine.dispose()


# Sizes.


def table_bytes(connection: Connection) -> dict[str, int]:
    """Bytes on disk of each of our tables with its indexes."""
    query = text(
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
    )
    return {str(row[0]): int(row[1]) for row in connection.execute(query)}


def compact(engine: Engine) -> int:
    """Give free space back to the file system; how much. Nobody else can write meanwhile."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        before = sum(table_bytes(connection).values())
        for table in (*schema.metadata.tables, *schema.server_only.tables):
            connection.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {table}")
        return before - sum(table_bytes(connection).values())
