"""The tables of what was measured, and the version of them all.

`result` and `measurement` hold what was measured, `run` and `run_case` what was planned and what
became of it, `aa_floor`, `calibration` and `doctor` what a machine was like, `judgement` what later
rules said of a result, `profile` which file holds one, `profile_arm` what it is of, `ledger` where
the time of a step went, `thinned` whose samples were removed; these are only ever added to
(`guards`). `summary` is derived from them, and so are the tables of `derived`.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    ColumnElement,
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
    inspect,
    select,
    text,
)

from torchstone.records import CASE_KIND, UsageError
from torchstone.store.guards import allow_thinning, append_only
from torchstone.store.location import FILE_NAME

SCHEMA = 1
"""Version of the tables. A database with a higher one was made by a newer program; one with a
lower one is brought up to date by `migrations` when it is opened for writing."""

APPLICATION_ID = 0x54535431
"""In the header of the SQLite file ("TST1"), so that it is known before it is opened."""

_VERSION_KEY = "torchstone_schema"
_REVISION_KEY = "figures_revision"

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
    Column("allocator", Text, nullable=False, server_default="default"),
    Column("step_class", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("evidence", Text, nullable=False),
    Index("aa_floor_key", "machine_id", "threads", "allocator", "step_class", "seq"),
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
    Column("key", Text, nullable=False),  # digest of the case's key, as in `derived.series`
    Column("result", ForeignKey(result.c.seq)),  # None: it ended before anything was measured
    Column("arm", Text, nullable=False),  # the new arm's name in that result
    Column("outcome", Text, nullable=False),
    Column("created", Text, nullable=False),
    UniqueConstraint("run", "position"),
    sqlite_autoincrement=True,
)

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

profile_arm = Table(
    "profile_arm",
    metadata,
    Column("profile", ForeignKey(profile.c.seq), primary_key=True),
    Column("target", Text, nullable=False),
    Column("variant", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("precision", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("document", Text, nullable=False),  # the whole `ArmSpec`
    Index("profile_arm_key", "target", "variant", "mode", "precision", "device", "profile"),
)
"""The arm that a profile is of; a program's profile has none."""

ledger = Table(
    "ledger",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("variant", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("precision", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("machine_id", Text, nullable=False),
    Column("wall_s", Float, nullable=False),
    Column("findings", Integer, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("document", LargeBinary, nullable=False),  # last: a listing stops reading before it
    Index("ledger_arm", "target", "variant", "mode", "precision", "device", "seq"),
    sqlite_autoincrement=True,
)


def of_no_run() -> ColumnElement[bool]:
    """Results that are not a run's cases, in the very words of their index."""
    return result.c.kind != text(f"'{CASE_KIND}'")


Index("run_case_result", run_case.c.result, sqlite_where=run_case.c.result.is_not(None))
Index("result_alone", result.c.seq, sqlite_where=of_no_run())
# Their conditions in another system's words belong to its own module: naming them here would
# import it.

thinned = Table(
    "thinned",
    metadata,
    Column("result", ForeignKey(result.c.seq), primary_key=True),
    Column("created", Text, nullable=False),
    Column("command", Text, nullable=False),  # a JSON list
    Column("version", Text, nullable=False),  # of the program that did it
    Column("samples", Integer, nullable=False),  # how many were removed
    Column("bytes", Integer, nullable=False),  # how many less the result takes now
    Column("document_bytes", Integer, nullable=False),  # of the document that is left
    Column("digest", Text, nullable=False),  # of what is left; `result.digest` is the whole's
)


append_only(result, "seq = NEW.seq OR id = NEW.id")
append_only(measurement, "seq = NEW.seq OR (result = NEW.result AND position = NEW.position)")
append_only(aa_floor, "seq = NEW.seq")
append_only(run, "seq = NEW.seq OR id = NEW.id")
append_only(run_case, "seq = NEW.seq OR (run = NEW.run AND position = NEW.position)")
append_only(calibration, "seq = NEW.seq OR id = NEW.id")
append_only(doctor, "seq = NEW.seq OR id = NEW.id")
append_only(judgement, "seq = NEW.seq")
append_only(profile, "seq = NEW.seq OR id = NEW.id")
append_only(profile_arm, "profile = NEW.profile")
append_only(ledger, "seq = NEW.seq OR id = NEW.id")
append_only(thinned, "result = NEW.result")
allow_thinning(result, measurement, thinned)


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


def revise(connection: Connection) -> None:
    """What was stored before is another now, figures or samples: whoever keeps what is made of it
    is told by `revision`."""
    found = {meta.c.value: str(revision(connection) + 1)}
    changed = connection.execute(meta.update().where(meta.c.key == _REVISION_KEY).values(found))
    if not changed.rowcount:
        connection.execute(meta.insert().values(key=_REVISION_KEY, value="1"))


def revision(connection: Connection) -> int:
    """How often that has happened."""
    return int(connection.scalar(select(meta.c.value).where(meta.c.key == _REVISION_KEY)) or 0)


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
