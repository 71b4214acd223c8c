"""Older databases brought up to date: one step for each version, all in one transaction.

A step only ever adds; an index that nothing asks for any more may go. A program of the older
version that has the file open meanwhile goes on working, and no step can lose what is stored. The
seventh makes tables of derived figures anew, and asks an older program to be upgraded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from sqlalchemy import Connection, inspect, select, text

from torchstone.records import UsageError
from torchstone.store import derived, facts, old_figures, runs, schema


def bring_up_to_date(connection: Connection) -> None:
    """Make the tables, or add what an older version lacks; the caller holds the write lock.

    The version is asked for under the lock, because another program may have been quicker.
    """
    version = schema.check_version(connection)
    if not version:
        schema.create(connection)
        return
    for step in range(version + 1, schema.SCHEMA + 1):
        _STEPS[step](connection)
        schema.set_version(connection, step)


def _add_runs(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=schema.RUN_TABLES, checkfirst=False)


def _add_judging(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=schema.JUDGING_TABLES, checkfirst=False)


def _add_facts(connection: Connection) -> None:
    schema.metadata.create_all(connection, tables=derived.FACT_TABLES, checkfirst=False)
    connection.execute(text("DROP INDEX IF EXISTS run_case_key"))
    for index in schema.NEW_INDEXES:
        index.create(connection, checkfirst=True)
    for seq, run_id in connection.execute(select(schema.run.c.seq, schema.run.c.id)).all():
        try:
            facts.make_anew(connection, seq, runs.read(connection, seq, run_id))
        except UsageError:  # damaged, or of a newer program
            facts.make_anew(connection, seq, None)
    old_figures.take_in(connection)


def _add_ledgers(connection: Connection) -> None:
    schema.ledger.create(connection, checkfirst=False)


def _add_profile_arms(connection: Connection) -> None:
    schema.profile_arm.create(connection, checkfirst=False)


def _add_allocators(connection: Connection) -> None:
    """What is stored was measured with the system's own, which is the columns' default."""
    for table in (schema.aa_floor, derived.series, derived.case_group):
        known = {column["name"] for column in inspect(connection).get_columns(table.name)}
        if "allocator" not in known:  # a table that a step before this one made has it
            kind = "TEXT DEFAULT 'default' NOT NULL"
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN allocator {kind}"))
    connection.execute(text("DROP INDEX IF EXISTS aa_floor_key"))
    for index in schema.aa_floor.indexes:
        index.create(connection, checkfirst=False)


def _tell_tensors(connection: Connection) -> None:
    """Cases are copied into a table that has today's columns; sums are made anew from them."""
    table = derived.case_fact
    have = {column["name"] for column in inspect(connection).get_columns(table.name)}
    kept = ", ".join(column.name for column in table.columns if column.name in have)
    connection.execute(text(f"CREATE TABLE case_fact_6 AS SELECT {kept} FROM case_fact"))
    for one in (table, derived.group_fact):
        one.drop(connection)
        one.create(connection)
    connection.execute(text(f"INSERT INTO case_fact ({kept}) SELECT {kept} FROM case_fact_6"))
    connection.execute(text("DROP TABLE case_fact_6"))
    for seq, run_id in connection.execute(select(schema.run.c.seq, schema.run.c.id)).all():
        with contextlib.suppress(UsageError):  # damaged, or of a newer program
            facts.refresh(connection, seq, runs.read(connection, seq, run_id))


_STEPS: Mapping[int, Callable[[Connection], None]] = {
    2: _add_runs,
    3: _add_judging,
    4: _add_facts,
    5: _add_ledgers,
    6: _add_profile_arms,
    7: _add_allocators,
    8: _tell_tensors,
}
"""By the version that a step leads to. A table changed later needs its older form kept here."""
