"""A whole database copied into an empty one, of the same kind or of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select

from torchstone.records import TorchstoneError, UsageError
from torchstone.store import schema
from torchstone.store.database import Store
from torchstone.store.maintenance import Tell

AT_ONCE = 500
"""Rows read and written together."""


@dataclass(frozen=True)
class CopyReport:
    """What was copied."""

    tables: dict[str, int]
    """Rows by table."""
    files: int
    """Profiles' files."""
    missing_files: tuple[str, ...]
    """Digests of those that are not there any more, or are damaged."""


def copy(source: Store, target: Store, tell: Tell) -> CopyReport:
    """Copy everything, in one transaction: whole or absent. The target must be empty."""
    tables = [one for one in schema.metadata.sorted_tables if one is not schema.meta]
    with source.snapshot():
        with target._reading() as writer:
            _refuse_full(target, writer, tables)
        files, missing = _copy_files(source, target)
        with source._reading() as reader, target._writing() as writer:
            _refuse_full(target, writer, tables)
            rows = {}
            for done, table in enumerate(tables, 1):
                rows[table.name] = _copy_table(table, reader, writer)
                tell("tables", done, len(tables))
            schema.revise(writer)  # whoever has pages of the empty one makes them again
            _renumber(writer, tables)
    return CopyReport(rows, files, missing)


def _refuse_full(target: Store, connection: Connection, tables: list[Table]) -> None:
    for table in tables:
        if connection.execute(select(*table.primary_key).limit(1)).first() is not None:
            raise UsageError(
                f"The database {target.location} is not empty.",
                "Copy into a new one; to join runs of several, use `torchstone import db`.",
            )


def _copy_table(table: Table, reader: Connection, writer: Connection) -> int:
    """Row by row in the order of adding; how many."""
    query = select(table).order_by(*table.primary_key)
    found = reader.execution_options(yield_per=AT_ONCE).execute(query).mappings()
    copied = 0
    for part in _parts(found):
        writer.execute(insert(table), part)
        copied += len(part)
    there = writer.scalar(select(func.count()).select_from(table))
    if there != copied:
        raise TorchstoneError(f"Of {table.name} {copied} rows were copied, but {there} arrived.")
    return copied


def _parts(rows: Any) -> Iterator[list[dict[str, Any]]]:
    while part := [dict(row) for row in islice(rows, AT_ONCE)]:
        yield part


def _renumber(connection: Connection, tables: list[Table]) -> None:
    """Let the server's own numbers go on after those that were copied."""
    if connection.dialect.name != schema.SERVER:
        return
    for table in (one for one in tables if "seq" in one.c):
        highest = connection.scalar(select(func.max(table.c.seq)))
        if highest is not None:
            sequence = func.pg_get_serial_sequence(table.name, "seq")
            connection.execute(select(func.setval(sequence, highest)))
    for table in tables:
        connection.exec_driver_sql(f"ANALYZE {table.name}")


def _copy_files(source: Store, target: Store) -> tuple[int, tuple[str, ...]]:
    with source._reading() as reader:
        digests = reader.scalars(select(schema.profile.c.digest).distinct()).all()
    missing = []
    for digest in digests:
        try:
            packed = source.artefact(digest)
        except TorchstoneError:
            missing.append(digest)
            continue
        target.put_artefact(packed)
    return len(digests) - len(missing), tuple(missing)
