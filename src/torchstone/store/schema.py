"""The tables of what was measured, and the version of them all.

`result` and `measurement` hold what was measured, `run` and `run_case` what was planned and what
became of it, `aa_floor`, `calibration` and `doctor` what a machine was like, `evaluation` what
later rules said of a result, `profile` which file holds one, `profile_arm` what it is of, `ledger`
where the time of a step went, `pruned` whose samples were removed; these are only ever added to.
`summary` is derived from them, and so are the tables of facts.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
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
    event,
    inspect,
    select,
    text,
)

from torchstone.records import CASE_KIND, UsageError
from torchstone.store.location import FILE_NAME

# Triggers that make tables append-only, and the one change that they let through.
#
# They are SQLite's; another database gets its own here when it comes.


def append_only(table: Table, same_row: str) -> None:
    """Let SQLite refuse changes, whoever makes them.

    `INSERT OR REPLACE` deletes without firing a delete trigger, so it is caught on insert.
    """
    exists = f"WHEN EXISTS (SELECT 1 FROM {table.name} WHERE {same_row})"
    for name, verb, when in (
        ("no_update", "UPDATE", ""),
        ("no_delete", "DELETE", ""),
        ("no_replace", "INSERT", exists),
    ):
        _after_create(table, _trigger(table, name, verb, when))


def allow_pruning(result: Table, measurement: Table, pruned: Table) -> None:
    """Let exactly one change of a result through: its samples go once `pruned` says so.

    What is left must be smaller, and nothing but it may differ. That it is the right thing is not
    for a trigger to know: `pruned` holds its digest, and a reader compares.
    """
    document = f"""WHEN NOT ({_only_differ(result, "document")}
        AND length(NEW.document) < length(OLD.document)
        AND EXISTS (SELECT 1 FROM {pruned.name} WHERE {pruned.name}.result = OLD.seq
            AND {pruned.name}.document_bytes = length(NEW.document)))"""
    samples = f"""WHEN NOT ({_only_differ(measurement, "samples")}
        AND length(NEW.samples) < length(OLD.samples)
        AND EXISTS (SELECT 1 FROM {pruned.name} WHERE {pruned.name}.result = OLD.result))"""
    for table, when in ((result, document), (measurement, samples)):
        # After `pruned`, because the step from an older version makes that table alone.
        _after_create(pruned, f"DROP TRIGGER {table.name}_no_update")
        _after_create(pruned, _trigger(table, "no_update", "UPDATE", when))


def _only_differ(table: Table, column: str) -> str:
    others = (name for name in table.columns.keys() if name != column)  # noqa: SIM118
    return " AND ".join(f"NEW.{name} IS OLD.{name}" for name in others)


def _trigger(table: Table, name: str, verb: str, when: str) -> str:
    refuse = f"SELECT RAISE(ABORT, 'torchstone: {table.name} is append-only, rows never change');"
    return (
        f"CREATE TRIGGER {table.name}_{name} BEFORE {verb} ON {table.name} {when} "
        f"BEGIN {refuse} END"
    )


def _after_create(table: Table, statement: str) -> None:
    made = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", made.execute_if(dialect="sqlite"))


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

evaluation = Table(
    "evaluation",
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

pruned = Table(
    "pruned",
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
append_only(evaluation, "seq = NEW.seq")
append_only(profile, "seq = NEW.seq OR id = NEW.id")
append_only(profile_arm, "profile = NEW.profile")
append_only(ledger, "seq = NEW.seq OR id = NEW.id")
append_only(pruned, "result = NEW.result")
allow_pruning(result, measurement, pruned)


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
    Column("seq", Integer, primary_key=True),
    Column("machine_id", Text, nullable=False),
    Column("branch", Text, nullable=False),
    UniqueConstraint("machine_id", "branch"),
)
"""Runs that can be lined up: those of one machine and branch."""

run_fact = Table(
    "run_fact",
    metadata,
    Column("run", ForeignKey(run.c.seq), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Float, nullable=False),  # `created_s`; 0 if `created` is not a date
    Column("machine_branch", ForeignKey(machine_branch.c.seq), nullable=False),
    Column("created", Text, nullable=False),
    Column("created_s", Float),
    Column("label", Text, nullable=False),
    Column("revision", Text, nullable=False),  # the commit
    Column("branch", Text, nullable=False),
    Column("dirty", Boolean, nullable=False),
    Column("machine_id", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("torch", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("suites", Text, nullable=False),  # a JSON list
    Column("planned", Integer, nullable=False),
    Column("outcomes", Text, nullable=False),  # a JSON object: outcome to number
    Index("run_fact_at", "at"),
    Index("run_fact_lane", "machine_branch", "at"),
    Index("run_fact_revision", "revision"),
)

_KEY = ("suite", "scale", "mode", "precision", "variant", "device")


def _key_columns() -> list[Column[str] | Column[int]]:
    texts: list[Column[str]] = [Column(name, Text, nullable=False) for name in _KEY]
    allocator = Column("allocator", Text, nullable=False, server_default="default")
    return [*texts, Column("threads", Integer, nullable=False), allocator]


case_group = Table(
    "case_group",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    *_key_columns(),
)
"""Cases that differ in their model alone."""

series = Table(
    "series",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),  # digest of the `CaseKey`
    Column("model", Text, nullable=False),
    *_key_columns(),
)
"""The same case in every run."""

case_detail = Table(
    "case_detail",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("document", Text, nullable=False),  # a JSON object of fields of `CaseMetrics`
)
"""What of a case's figures has no column; it is the same night after night."""

case_fact = Table(
    "case_fact",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("run", ForeignKey(run.c.seq), nullable=False),
    Column("position", Integer, nullable=False),  # in the run's plan
    Column("definition", Integer, nullable=False),
    Column("series", ForeignKey(series.c.seq), nullable=False),
    Column("machine_branch", Integer, nullable=False),  # as in `run_fact`, and so is the next
    Column("at", Float, nullable=False),
    Column("passes", Integer),  # 1 or 0; None where it cannot run here, which is neither
    Column("outcome", Text, nullable=False),
    Column("result_id", Text),
    Column("speedup", Float),
    Column("low", Float),
    Column("high", Float),
    Column("level", Float),
    Column("log_error", Float),
    Column("log_freedom", Float),
    Column("verdict", Text),
    Column("base_ns", Float),
    Column("new_ns", Float),
    Column("compile_cold_ns", BigInteger),
    Column("compile_warm_ns", BigInteger),
    Column("base_tensor_bytes", BigInteger),
    Column("new_tensor_bytes", BigInteger),
    Column("base_peak_bytes", BigInteger),
    Column("new_peak_bytes", BigInteger),
    Column("base_overhead_bytes", BigInteger),
    Column("new_overhead_bytes", BigInteger),
    Column("base_faults", Float),
    Column("new_faults", Float),
    Column("graphs", BigInteger),
    Column("graph_breaks", BigInteger),
    Column("recompiles", BigInteger),
    Column("late_recompiles", BigInteger),
    Column("flops", BigInteger),
    Column("flops_covered", Float),
    Column("agreement", Text),
    Column("error_ratio", Float),
    Column("outputs_checked", BigInteger),
    Column("worst_check", Text),
    Column("replicates", BigInteger),
    Column("elapsed_s", Float),
    Column("detail", Integer),  # of `case_detail`; None: all of it is default
    UniqueConstraint("run", "position", "definition"),
    Index("case_fact_history", "series", "machine_branch", "passes", "at"),
)

MEANS = (
    "compile_cold_ns",
    "compile_warm_ns",
    "memory_ratio",
    "process_memory_ratio",
    "compiler_bytes",
)
"""The means of a `SuiteSummary` that have no interval."""


def _mean_columns() -> list[Column[float] | Column[int]]:
    return [
        column
        for name in MEANS
        for column in (Column(name, Float), Column(f"{name}_n", Integer, nullable=False))
    ]


group_fact = Table(
    "group_fact",
    metadata,
    Column("run", ForeignKey(run.c.seq), primary_key=True),
    Column("case_group", ForeignKey(case_group.c.seq), primary_key=True),
    Column("definition", Integer, primary_key=True),  # of the summary
    Column("figures_definition", Integer, primary_key=True),  # of the cases in it
    Column("position", Integer, nullable=False),  # of its first case in the plan
    Column("at", Float, nullable=False),  # as in `run_fact`
    Column("passed", Integer, nullable=False),
    Column("counted", Integer, nullable=False),
    Column("planned", Integer, nullable=False),
    Column("outcomes", Text, nullable=False),  # a JSON object: outcome to number, 0 left out
    Column("speedup", Float),
    Column("speedup_n", Integer, nullable=False),
    Column("low", Float),
    Column("high", Float),
    Column("level", Float, nullable=False),
    *_mean_columns(),
    Column("verdicts", Text, nullable=False),  # likewise
    Column("no_verdict", Integer, nullable=False),
    Column("false_discovery_rate", Float, nullable=False),
    Index("group_fact_history", "case_group", "at"),
)

FACT_TABLES = (
    pruned,
    machine_branch,
    run_fact,
    case_group,
    series,
    case_detail,
    case_fact,
    group_fact,
)
"""What schema 4 added."""
