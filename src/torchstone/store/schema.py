"""The tables, and the version of them all.

`result` and `measurement` hold what was measured, `run` and `run_case` what was planned and what
became of it, `aa_floor`, `calibration` and `doctor` what a machine was like, `evaluation` what
later rules said of a result, `profile` which file holds one, `profile_arm` what it is of, `ledger`
where the time of a step went, `tuning` and `tuning_part` what tuning a target found, `scaling`
what ranks did, `pruned` whose samples were removed, `token` who may push and `pushed` what was;
these are only ever added to. `summary` is derived from them, and so are the tables of facts.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy.types import TypeEngine

from torchstone.records import CASE_KIND, UsageError
from torchstone.records.metrics import METRICS
from torchstone.store.limits import storable
from torchstone.store.location import FILE_NAME

SCHEMA = 4
"""Version of the tables. A database with a higher one was made by a newer program; one with a
lower one is brought up to date by `engine.STEPS` when it is opened for writing."""

APPLICATION_ID = 0x54535431
"""In the header of the SQLite file ("TST1"), so that it is known before it is opened."""

_VERSION_KEY = "torchstone_schema"
_REVISION_KEY = "figures_revision"

metadata = MetaData()


class _ServerText(TypeDecorator[str]):
    """Text as PostgreSQL takes it: no NUL, nothing that is not Unicode, and sorted as by SQLite."""

    impl = Text(collation="C")
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The value with such characters written out."""
        return None if value is None else storable(value)


class _ServerReal(TypeDecorator[float]):
    """Numbers whose NaN is NULL, as SQLite stores it."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """The value, None for NaN."""
        return None if value is None or value != value else value


SERVER = "postgresql"
TEXT: TypeEngine[str] = Text().with_variant(_ServerText(), SERVER)
REAL: TypeEngine[float] = Float().with_variant(_ServerReal(), SERVER)
INTEGER: TypeEngine[int] = Integer().with_variant(BigInteger(), SERVER)
"""Of 64 bits in both: PostgreSQL's INTEGER has 32."""


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, TEXT, nullable=False) for name in names]


def _numbers(*names: str) -> list[Column[int]]:
    return [Column(name, INTEGER, nullable=False) for name in names]


# Triggers that make tables append-only, and the one change that they let through; for SQLite and,
# where its condition has to be in a function, for PostgreSQL.


def _append_only(name: str, *columns: Any, same_row: str = "") -> Table:
    """A table whose rows are numbered in the order of adding, and which nobody may change.

    `INSERT OR REPLACE` deletes without firing a delete trigger, so it is caught on insert, where
    the number or the id is there already, or `same_row` holds.
    """
    seq = Column("seq", INTEGER, primary_key=True, autoincrement=True)
    table = Table(name, metadata, seq, *columns, sqlite_autoincrement=True)
    same = ["seq = NEW.seq", *(["id = NEW.id"] if "id" in table.c else ()), same_row]
    _refuse_changes(table, " OR ".join(filter(None, same)))
    return table


def _refuse_changes(table: Table, same_row: str) -> None:
    exists = f"WHEN EXISTS (SELECT 1 FROM {table.name} WHERE {same_row})"
    for name, verb, when in (
        ("no_update", "UPDATE", ""),
        ("no_delete", "DELETE", ""),
        ("no_replace", "INSERT", exists),
    ):
        _after_create(table, _trigger(table, name, verb, when))
    for verb in ("UPDATE", "DELETE", "TRUNCATE"):
        _on_server(table, _server_trigger(table, verb, "torchstone_refuse"))


def _allow_pruning() -> None:
    """Let exactly one change of a result through: its samples go once `pruned` says so.

    What is left must be smaller, and nothing but it may differ. That it is the right thing is not
    for a trigger to know: `pruned` holds its digest, and a reader compares.
    """
    document = f"""{_only_differ(result, "document")}
        AND length(NEW.document) < length(OLD.document)
        AND EXISTS (SELECT 1 FROM {pruned.name} WHERE {pruned.name}.result = OLD.seq
            AND {pruned.name}.document_bytes = length(NEW.document))"""
    samples = f"""{_only_differ(measurement, "samples")}
        AND length(NEW.samples) < length(OLD.samples)
        AND EXISTS (SELECT 1 FROM {pruned.name} WHERE {pruned.name}.result = OLD.result)"""
    for table, allowed in ((result, document), (measurement, samples)):
        _after_create(pruned, f"DROP TRIGGER {table.name}_no_update")
        _after_create(pruned, _trigger(table, "no_update", "UPDATE", f"WHEN NOT ({allowed})"))
        _on_server(pruned, f"DROP TRIGGER {table.name}_no_update ON {table.name}")
        function = f"torchstone_prune_{table.name}"
        _on_server(pruned, _function(function, allowed.replace(" IS ", " IS NOT DISTINCT FROM ")))
        _on_server(pruned, _server_trigger(table, "UPDATE", function))


def _only_differ(table: Table, column: str) -> str:
    others = (name for name in table.columns.keys() if name != column)  # noqa: SIM118
    return " AND ".join(f"NEW.{name} IS OLD.{name}" for name in others)


def _trigger(table: Table, name: str, verb: str, when: str) -> str:
    refuse = f"SELECT RAISE(ABORT, 'torchstone: {table.name} is append-only, rows never change');"
    return (
        f"CREATE TRIGGER {table.name}_{name} BEFORE {verb} ON {table.name} {when} "
        f"BEGIN {refuse} END"
    )


def _server_trigger(table: Table, verb: str, function: str) -> str:
    each = "STATEMENT" if verb == "TRUNCATE" else "ROW"
    return (
        f"CREATE TRIGGER {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
        f"FOR EACH {each} EXECUTE FUNCTION {function}()"
    )


def _function(name: str, allowed: str) -> str:
    message = "'torchstone: ' || TG_TABLE_NAME || ' is append-only, rows never change'"
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {allowed} THEN RETURN NEW; END IF; RAISE EXCEPTION USING MESSAGE = {message}; END $$"
    )


def _after_create(table: Table, statement: str, dialect: str = "sqlite") -> None:
    made = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", made.execute_if(dialect=dialect))


_on_server = partial(_after_create, dialect=SERVER)


# What was measured.


def _id() -> Column[str]:
    return Column("id", TEXT, nullable=False, unique=True)


def _seconds() -> Column[float]:
    return Column("created_s", REAL)  # UTC, None if `created` is not a date


def _document() -> Column[bytes]:
    return Column("document", LargeBinary, nullable=False)  # last: a listing stops before it


meta = Table("meta", metadata, Column("key", TEXT, primary_key=True), *_texts("value"))

result = _append_only(
    "result",
    _id(),
    *_texts("created"),
    _seconds(),
    *_texts("kind", "label", "origin"),
    *_numbers("bytes"),
    *_texts("digest"),
    _document(),
)

measurement = _append_only(
    "measurement",
    Column("result", ForeignKey(result.c.seq), nullable=False),
    *_numbers("position"),
    *_texts("arm", "outcome"),
    Column("samples", LargeBinary, nullable=False),
    UniqueConstraint("result", "position"),
    Index("measurement_arm", "arm"),
    same_row="(result = NEW.result AND position = NEW.position)",
)

summary = Table(
    "summary",
    metadata,
    Column("result", ForeignKey(result.c.seq), primary_key=True),
    Column("definition", INTEGER, primary_key=True),
    *_texts("document"),  # JSON, see `summary.headline`
)

aa_floor = _append_only(
    "aa_floor",
    *_texts("machine_id"),
    *_numbers("threads"),
    *_texts("allocator", "step_class"),
    Column("value", REAL, nullable=False),
    *_texts("evidence"),
    Index("aa_floor_key", "machine_id", "threads", "allocator", "step_class", "seq"),
)

run = _append_only(
    "run",
    _id(),
    *_texts("created"),
    _seconds(),
    *_texts("label", "origin", "plan_digest"),
    *_numbers("planned"),
    *_texts("suites"),  # a JSON list
    *_numbers("bytes"),
    *_texts("digest"),
    _document(),
    Index("run_label", "label"),
)

run_case = _append_only(
    "run_case",
    Column("run", ForeignKey(run.c.seq), nullable=False),
    *_numbers("position"),  # in the run's plan
    *_texts("key"),  # digest of the case's key, as in `series`
    Column("result", ForeignKey(result.c.seq)),  # None: it ended before anything was measured
    *_texts("arm", "outcome", "created"),  # the arm: the new one's name in that result
    UniqueConstraint("run", "position"),
    same_row="(run = NEW.run AND position = NEW.position)",
)

calibration = _append_only(
    "calibration",
    _id(),
    *_texts("machine_id", "device", "created", "document"),
    Index("calibration_key", "machine_id", "device", "seq"),
)

doctor = _append_only(
    "doctor",
    _id(),
    *_texts("machine_id", "created", "document"),
    Index("doctor_key", "machine_id", "seq"),
)

evaluation = _append_only(
    "evaluation",
    Column("result", ForeignKey(result.c.seq), nullable=False),
    *_texts("created", "version", "document"),  # the version of the program whose rules spoke
    Index("evaluation_key", "result", "seq"),
)

profile = _append_only(
    "profile",
    _id(),
    *_texts("created", "how", "tool", "label", "machine_id", "result"),  # its id, or empty
    *_numbers("bytes"),
    *_texts("digest"),  # of the file beside the database
    Index("profile_result", "result"),
)

ARM_KEY = ("target", "variant", "mode", "precision", "device")
"""What tables about an arm have a column and an index for."""

profile_arm = Table(
    "profile_arm",
    metadata,
    Column("profile", ForeignKey(profile.c.seq), primary_key=True),
    *_texts(*ARM_KEY, "document"),  # the whole `ArmSpec`
    Index("profile_arm_key", *ARM_KEY, "profile"),
)
"""The arm that a profile is of; a program's profile has none."""

ledger = _append_only(
    "ledger",
    _id(),
    *_texts("created", *ARM_KEY, "machine_id"),
    Column("wall_s", REAL, nullable=False),
    *_numbers("findings", "bytes"),
    _document(),
    Index("ledger_arm", *ARM_KEY, "seq"),
)


tuning = _append_only(
    "tuning",
    _id(),
    *_texts("created", *ARM_KEY, "machine_id", "goal"),
    _document(),  # as it was when it began
    Index("tuning_arm", *ARM_KEY, "seq"),
)

tuning_part = _append_only(
    "tuning_part",
    Column("tuning", ForeignKey(tuning.c.seq), nullable=False),
    *_texts("kind"),  # `experiment`, or `end`: the tuning without its experiments, as it is now
    _document(),
    Index("tuning_part_key", "tuning", "seq"),
)

scaling = _append_only(
    "scaling",
    _id(),
    *_texts("created", "target", "scaling", "machine_id"),
    *_numbers("arms", "failed"),
    _document(),
)


def of_no_run() -> ColumnElement[bool]:
    """Results that are not a run's cases, in the very words of their index."""
    return result.c.kind != text(f"'{CASE_KIND}'")


_some = run_case.c.result.is_not(None)
Index("run_case_result", run_case.c.result, sqlite_where=_some).ddl_if(dialect="sqlite")
Index("result_alone", result.c.seq, sqlite_where=of_no_run()).ddl_if(dialect="sqlite")
# As text, because naming their conditions in PostgreSQL's words would import its dialect.
_on_server(run_case, "CREATE INDEX run_case_result ON run_case (result) WHERE result IS NOT NULL")
_on_server(result, f"CREATE INDEX result_alone ON result (seq) WHERE kind != '{CASE_KIND}'")

pruned = Table(
    "pruned",
    metadata,
    Column("result", ForeignKey(result.c.seq), primary_key=True),
    *_texts("created", "command", "version"),  # the command as a JSON list
    *_numbers("samples", "bytes"),  # how many were removed; how many less the result takes now
    *_numbers("document_bytes"),  # of the document that is left
    *_texts("digest"),  # of what is left; `result.digest` is the whole's
)

_refuse_changes(profile_arm, "profile = NEW.profile")
_refuse_changes(pruned, "result = NEW.result")
_allow_pruning()


# The tables that are derived from what was measured, narrow enough to answer a page at once.
#
# A run is one row of `run_fact`, a suite of a run one row of `group_fact`, a case one row of
# `case_fact`. What cases have in common over the nights is stored once: their keys in `series` and
# `case_group`, their machine and branch in `machine_branch`, their words in `case_detail`. Figures
# carry the version of their definition. All of it can be rebuilt (`maintenance`), but for the
# figures of cases without samples: of those that were imported, never measured, or pruned.


machine_branch = Table(
    "machine_branch",
    metadata,
    Column("seq", INTEGER, primary_key=True),
    *_texts("machine_id", "branch"),
    UniqueConstraint("machine_id", "branch"),
)
"""Runs that can be lined up: those of one machine and branch."""

run_fact = Table(
    "run_fact",
    metadata,
    Column("run", ForeignKey(run.c.seq), primary_key=True),
    _id(),
    Column("at", REAL, nullable=False),  # `created_s`; 0 if `created` is not a date
    Column("machine_branch", ForeignKey(machine_branch.c.seq), nullable=False),
    *_texts("created"),
    _seconds(),
    *_texts("label", "revision", "branch"),  # the revision is the commit
    Column("dirty", Boolean, nullable=False),
    *_texts("machine_id", "machine", "torch", "origin", "tier"),
    *_texts("suites"),  # a JSON list
    *_numbers("planned"),
    *_texts("outcomes"),  # a JSON object: outcome to number
    Index("run_fact_at", "at"),
    Index("run_fact_lane", "machine_branch", "at"),
    Index("run_fact_revision", "revision"),
)

GROUP_KEY = ("suite", "scale", "mode", "precision", "variant", "device", "threads", "allocator")


def _group_key() -> list[Column[Any]]:
    return [
        Column(name, INTEGER if name == "threads" else TEXT, nullable=False) for name in GROUP_KEY
    ]


case_group = Table(
    "case_group",
    metadata,
    Column("seq", INTEGER, primary_key=True),
    Column("key", TEXT, nullable=False, unique=True),
    *_group_key(),
)
"""Cases that differ in their model alone."""

series = Table(
    "series",
    metadata,
    Column("seq", INTEGER, primary_key=True),
    Column("key", TEXT, nullable=False, unique=True),  # digest of the `CaseKey`
    *_texts("model"),
    *_group_key(),
)
"""The same case in every run."""

case_detail = Table(
    "case_detail",
    metadata,
    Column("seq", INTEGER, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    *_texts("document"),  # a JSON object of fields of `CaseMetrics`
)
"""What of a case's figures has no column; it is the same night after night."""

_TYPES: dict[type, Any] = {float: REAL, int: BigInteger, str: TEXT}
IN_COLUMNS = tuple(metric for metric in METRICS if metric.column)
"""The metrics that have a column in `case_fact`, in the order of these."""

case_fact = Table(
    "case_fact",
    metadata,
    Column("seq", INTEGER, primary_key=True),
    Column("run", ForeignKey(run.c.seq), nullable=False),
    *_numbers("position", "definition"),  # in the run's plan; of the figures
    Column("series", ForeignKey(series.c.seq), nullable=False),
    *_numbers("machine_branch"),  # as in `run_fact`, and so is the next
    Column("at", REAL, nullable=False),
    Column("passes", INTEGER),  # 1 or 0; None where it cannot run here, which is neither
    *(
        Column(metric.key, TEXT if issubclass(metric.kind, Enum) else _TYPES[metric.kind])
        for metric in IN_COLUMNS
    ),
    Column("detail", INTEGER),  # of `case_detail`; None: all of it is default
    UniqueConstraint("run", "position", "definition"),
    Index("case_fact_history", "series", "machine_branch", "passes", "at"),
)

SINCE_3 = ("base_ns", "new_ns", "new_tensor_bytes")
MEANS = (
    "compile_cold_ns",
    "compile_warm_ns",
    "memory_ratio",
    "process_memory_ratio",
    "compiler_bytes",
    *SINCE_3,
)
"""The means of a `SuiteSummary` that have no interval."""

group_fact = Table(
    "group_fact",
    metadata,
    Column("run", ForeignKey(run.c.seq), primary_key=True),
    Column("case_group", ForeignKey(case_group.c.seq), primary_key=True),
    Column("definition", INTEGER, primary_key=True),  # of the summary
    Column("figures_definition", INTEGER, primary_key=True),  # of the cases in it
    *_numbers("position"),  # of its first case in the plan
    Column("at", REAL, nullable=False),  # as in `run_fact`
    *_numbers("passed", "counted", "planned"),
    *_texts("outcomes"),  # a JSON object: outcome to number, 0 left out
    Column("speedup", REAL),
    *_numbers("speedup_n"),
    Column("low", REAL),
    Column("high", REAL),
    Column("level", REAL, nullable=False),
    *(Column(name, REAL) for name in MEANS),
    *_numbers(*(f"{name}_n" for name in MEANS)),
    *_texts("verdicts"),  # likewise
    *_numbers("no_verdict"),
    Column("false_discovery_rate", REAL, nullable=False),
    Index("group_fact_history", "case_group", "at"),
)


# Histories that other tools measured, and what people said about changes.
#
# A series is one benchmark under one setting on one machine; a row of `imported_values` holds what
# one import brought of it, packed: a million values are a few thousand rows.

imported_run = _append_only(
    "imported_run",
    *_texts("tool", "project", "machine", "environment", "revision", "branch", "source"),
    Column("at", REAL, nullable=False),  # of the commit, else of the measurement
    Column("digest", LargeBinary, nullable=False, unique=True),  # of the file and its name
    same_row="digest = NEW.digest",
)

SERIES_KEY = (
    *("tool", "suite", "name", "parameters", "metric", "unit", "better"),
    *("machine", "environment", "version"),
)

imported_series = _append_only(
    "imported_series",
    Column("key", LargeBinary, nullable=False, unique=True),  # digest of the `SeriesKey`
    *_texts(*SERIES_KEY),
    Index("imported_series_name", "name"),
    same_row="key = NEW.key",
)

imported_values = _append_only(
    "imported_values",
    Column("series", ForeignKey(imported_series.c.seq), nullable=False),
    Column("runs", LargeBinary, nullable=False),  # 32-bit numbers of `imported_run`
    Column("data", LargeBinary, nullable=False),  # 64-bit floats; NaN: it failed
    Index("imported_values_series", "series", "seq"),
)

change_note = _append_only(
    "change_note",
    *_texts("change", "action", "reason", "created", "until"),  # `until`: a date, or empty
    *_texts("document"),  # which change: series, metric, place, direction
    Index("change_note_change", "change", "seq"),
)
"""What was said of a change: acknowledged, muted, reopened, or what measuring again gave."""

# What SQLite has files beside the database for (`profiles`, `heartbeat`).

server_only = MetaData()

artefact = Table(
    "artefact",
    server_only,
    Column("digest", TEXT, primary_key=True),  # as in `profile`
    Column("data", LargeBinary, nullable=False),
)

heartbeat = Table(
    "heartbeat",
    server_only,
    Column("token", TEXT, primary_key=True),  # of one program
    *_texts("run_id", "document"),  # a `heartbeat.Part` as JSON
    Column("seen", REAL, nullable=False),  # by the server's clock
)

# Who may write over the network, and what they wrote.

token = _append_only(
    "token",
    _id(),  # its public half
    *_texts("name", "scope"),
    *_texts("digest"),  # SHA-256 of its secret half, which is stored nowhere
    *_texts("created"),
    Column("expires_s", REAL, nullable=False),  # UTC
    Column("once", Boolean, nullable=False),  # good for one push
)

token_revoked = Table(
    "token_revoked",
    metadata,
    Column("token", ForeignKey(token.c.seq), primary_key=True),
    *_texts("created"),
)
_refuse_changes(token_revoked, "token = NEW.token")

pushed = _append_only(
    "pushed",
    Column("digest", TEXT, nullable=False, unique=True),  # of the document that was sent
    Column("run", ForeignKey(run.c.seq), nullable=False),
    Column("token", ForeignKey(token.c.seq), nullable=False),
    *_texts("created"),
    *_numbers("cases"),  # that it added
    Index("pushed_token", "token"),
    same_row="digest = NEW.digest",
)

SINCE_4 = (token, token_revoked, pushed, scaling)

SINCE_2 = (imported_run, imported_series, imported_values, change_note, tuning, tuning_part)
"""Tables that the first version lacks; `SINCE_4`, the third."""


# The version of the tables.


def check_version(connection: Connection) -> int:
    """The version of the tables, 0 if there are none; a newer one than ours, or tables of another
    program, are an error."""
    tables, columns = _there(connection)
    if not tables:
        return 0
    if {"key", "value"} <= columns:
        found = connection.scalar(select(meta.c.value).where(meta.c.key == _VERSION_KEY))
        if isinstance(found, str) and found.isascii() and found.isdigit():
            if int(found) > SCHEMA:
                raise newer(_file_of(connection), int(found))
            return int(found)
    raise not_ours(_file_of(connection))


def _there(connection: Connection) -> tuple[set[str], set[str]]:
    """The names of the tables, and of the columns of `meta`."""
    if connection.dialect.name == SERVER:  # the inspector's questions are long to make
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        columns = "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass('meta')"
        found = (connection.scalars(text(one)).all() for one in (tables, columns))
        return set(map(str, next(found))), set(map(str, next(found)))
    names = set(inspect(connection).get_table_names())
    known = inspect(connection).get_columns("meta") if "meta" in names else ()
    return names, {one["name"] for one in known}


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
    if connection.dialect.name == SERVER:
        connection.exec_driver_sql(_function("torchstone_refuse", "FALSE"))
        server_only.create_all(connection, checkfirst=False)
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
        f"Give the path of a Torchstone database, such as {FILE_NAME}, or an empty database.",
    )


def _file_of(connection: Connection) -> str:
    return connection.engine.url.database or "the database"
