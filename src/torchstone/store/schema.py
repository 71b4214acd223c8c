"""The tables, and the triggers that make them append-only.

`result` and `measurement` hold what was measured, `run` and `run_case` what was planned and what
became of it, `aa_floor`, `calibration` and `doctor` what a machine was like, `judgement` what later
rules said of a result, `profile` which file holds one; these are only ever added to. `summary` and
`case_figure` are derived from them and may be rebuilt at any time.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    event,
    inspect,
    select,
)

from torchstone.records import UsageError
from torchstone.store.location import FILE_NAME

SCHEMA = 3
"""Version of the tables. A database with a higher one was made by a newer program; one with a
lower one is brought up to date by `migrations` when it is opened for writing."""

APPLICATION_ID = 0x54535431
"""In the header of the SQLite file ("TST1"), so that it is known before it is opened."""

_VERSION_KEY = "torchstone_schema"

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

result = Table(
    "result",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("created_s", Float),  # UTC seconds, None if `created` is not a date
    Column("kind", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),  # last: a listing stops reading before it
    sqlite_autoincrement=True,
)

measurement = Table(
    "measurement",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("result", ForeignKey(result.c.seq), nullable=False),
    Column("position", Integer, nullable=False),
    Column("arm", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("samples", LargeBinary, nullable=False),
    UniqueConstraint("result", "position"),
    Index("measurement_arm", "arm"),
    sqlite_autoincrement=True,
)

summary = Table(
    "summary",
    metadata,
    Column("result", ForeignKey(result.c.seq), primary_key=True),
    Column("definition", Integer, primary_key=True),
    Column("headline", Text, nullable=False),
    Column("verdicts", Text, nullable=False),  # a JSON list, one per comparison
)

aa_floor = Table(
    "aa_floor",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("machine_id", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("step_class", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("evidence", Text, nullable=False),
    Index("aa_floor_key", "machine_id", "threads", "step_class", "seq"),
    sqlite_autoincrement=True,
)

run = Table(
    "run",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("created_s", Float),  # UTC seconds, None if `created` is not a date
    Column("label", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("plan_digest", Text, nullable=False),
    Column("planned", Integer, nullable=False),
    Column("suites", Text, nullable=False),  # a JSON list
    Column("bytes", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),  # last: a listing stops reading before it
    Index("run_label", "label"),
    sqlite_autoincrement=True,
)

run_case = Table(
    "run_case",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("run", ForeignKey(run.c.seq), nullable=False),
    Column("position", Integer, nullable=False),  # in the run's plan
    Column("key", Text, nullable=False),  # digest of the case's key: the same case in other runs
    Column("result", ForeignKey(result.c.seq)),  # None: it ended before anything was measured
    Column("arm", Text, nullable=False),  # the new arm's name in that result
    Column("outcome", Text, nullable=False),
    Column("created", Text, nullable=False),
    UniqueConstraint("run", "position"),
    Index("run_case_key", "key"),
    sqlite_autoincrement=True,
)

case_figure = Table(
    "case_figure",
    metadata,
    Column("run_case", ForeignKey(run_case.c.seq), primary_key=True),
    Column("definition", Integer, primary_key=True),
    Column("document", Text, nullable=False),
)

RUN_TABLES = (run, run_case, case_figure)

calibration = Table(
    "calibration",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("machine_id", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("document", Text, nullable=False),
    Index("calibration_key", "machine_id", "device", "seq"),
    sqlite_autoincrement=True,
)

doctor = Table(
    "doctor",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("machine_id", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("document", Text, nullable=False),
    Index("doctor_key", "machine_id", "seq"),
    sqlite_autoincrement=True,
)

judgement = Table(
    "judgement",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("result", ForeignKey(result.c.seq), nullable=False),
    Column("created", Text, nullable=False),
    Column("version", Text, nullable=False),  # of the program whose rules spoke
    Column("document", Text, nullable=False),
    Index("judgement_key", "result", "seq"),
    sqlite_autoincrement=True,
)

profile = Table(
    "profile",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("how", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("machine_id", Text, nullable=False),
    Column("result", Text, nullable=False),  # an id, or empty
    Column("bytes", Integer, nullable=False),
    Column("digest", Text, nullable=False),  # of the file beside the database
    Index("profile_result", "result"),
    sqlite_autoincrement=True,
)

JUDGING_TABLES = (calibration, doctor, judgement, profile)


def _append_only(table: Table, same_row: str) -> None:
    """Let SQLite refuse changes, whoever makes them.

    `INSERT OR REPLACE` deletes without firing a delete trigger, so it is caught on insert.
    """
    refuse = f"SELECT RAISE(ABORT, 'torchstone: {table.name} is append-only, rows never change');"
    exists = f"WHEN EXISTS (SELECT 1 FROM {table.name} WHERE {same_row})"
    for name, verb, when in (
        ("no_update", "UPDATE", ""),
        ("no_delete", "DELETE", ""),
        ("no_replace", "INSERT", exists),
    ):
        trigger = DDL(  # type: ignore[no-untyped-call]
            f"CREATE TRIGGER {table.name}_{name} BEFORE {verb} ON {table.name} {when} "
            f"BEGIN {refuse} END"
        )
        event.listen(table, "after_create", trigger.execute_if(dialect="sqlite"))


_append_only(result, "seq = NEW.seq OR id = NEW.id")
_append_only(measurement, "seq = NEW.seq OR (result = NEW.result AND position = NEW.position)")
_append_only(aa_floor, "seq = NEW.seq")
_append_only(run, "seq = NEW.seq OR id = NEW.id")
_append_only(run_case, "seq = NEW.seq OR (run = NEW.run AND position = NEW.position)")
_append_only(calibration, "seq = NEW.seq OR id = NEW.id")
_append_only(doctor, "seq = NEW.seq OR id = NEW.id")
_append_only(judgement, "seq = NEW.seq")
_append_only(profile, "seq = NEW.seq OR id = NEW.id")


def stored_version(connection: Connection) -> int | None:
    """The database's schema version; None for an empty one. Another program's is an error."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if "meta" in tables:
        columns = {c["name"] for c in inspect(connection).get_columns("meta")}
        if {"key", "value"} <= columns:
            found = connection.scalar(select(meta.c.value).where(meta.c.key == _VERSION_KEY))
            if isinstance(found, str) and found.isascii() and found.isdigit():
                return int(found)
    raise not_ours(_file_of(connection))


def check_version(connection: Connection) -> int:
    """The version of the tables, 0 if there are none; a newer one than ours is an error."""
    version = stored_version(connection) or 0
    if version > SCHEMA:
        raise newer(_file_of(connection), version)
    return version


def has_runs(connection: Connection) -> bool:
    """False for a database of version 1, which is opened as it is for reading only."""
    return inspect(connection).has_table(run.name)


def has_judging(connection: Connection) -> bool:
    """False for a database of version 2 or less that is open for reading only."""
    return inspect(connection).has_table(judgement.name)


def create(connection: Connection) -> None:
    """Make the tables in an empty database; the caller holds the write lock."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(meta.insert().values(key=_VERSION_KEY, value=str(SCHEMA)))
    set_version(connection, SCHEMA)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def set_version(connection: Connection, version: int) -> None:
    """Write the version where every program looks for it; part of the transaction."""
    values = {meta.c.value: str(version)}
    connection.execute(meta.update().where(meta.c.key == _VERSION_KEY).values(values))
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA user_version = {version}")


def newer(name: str, version: int) -> UsageError:
    """The error for a database made by a newer program."""
    return UsageError(
        f"The database {name} was made by a newer Torchstone (schema {version}; this program "
        f"knows {SCHEMA}).",
        "Upgrade: pip install --upgrade torchstone.",
    )


def not_ours(name: str) -> UsageError:
    """The error for a sound database with other tables in it."""
    return UsageError(
        f"{name} is a database, but not one of Torchstone's.",
        f"Give the path of a Torchstone database, such as {FILE_NAME}.",
    )


def _file_of(connection: Connection) -> str:
    return connection.engine.url.database or "the database"
