"""Triggers that make tables append-only, and the one change that they let through.

They are SQLite's; another database gets its own here when it comes.
"""

from __future__ import annotations

from sqlalchemy import DDL, Table, event


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


def allow_thinning(result: Table, measurement: Table, thinned: Table) -> None:
    """Let exactly one change of a result through: its samples go once `thinned` says so.

    What is left must be smaller, and nothing but it may differ. That it is the right thing is not
    for a trigger to know: `thinned` holds its digest, and a reader compares.
    """
    document = f"""WHEN NOT ({_only_differ(result, "document")}
        AND length(NEW.document) < length(OLD.document)
        AND EXISTS (SELECT 1 FROM {thinned.name} WHERE {thinned.name}.result = OLD.seq
            AND {thinned.name}.document_bytes = length(NEW.document)))"""
    samples = f"""WHEN NOT ({_only_differ(measurement, "samples")}
        AND length(NEW.samples) < length(OLD.samples)
        AND EXISTS (SELECT 1 FROM {thinned.name} WHERE {thinned.name}.result = OLD.result))"""
    for table, when in ((result, document), (measurement, samples)):
        # After `thinned`, because the step from an older version makes that table alone.
        _after_create(thinned, f"DROP TRIGGER {table.name}_no_update")
        _after_create(thinned, _trigger(table, "no_update", "UPDATE", when))


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
