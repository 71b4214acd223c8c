"""Runs joined from several databases: shards that were measured apart become one run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, select

from torchstone.records import Outcome, Result, Run, UsageError, to_data
from torchstone.store import case_rows, metrics, results, runs, schema
from torchstone.store.case_rows import CaseRow
from torchstone.store.codec import EncodedResult
from torchstone.store.engine import CorruptRunError
from torchstone.store.limits import HERE, MAX_NAME
from torchstone.store.lookup import Row

_Record = TypeVar("_Record", Result, Run)


@dataclass(frozen=True)
class ResultCases:
    """The cases that one result gave, in the database that they are copied from."""

    result: Row | None
    rows: tuple[CaseRow, ...]


def shelves(connection: Connection, seq: int, run: Run) -> list[ResultCases]:
    """All stored cases of a run, by result; cases without one each stand alone."""
    cases, table = schema.run_case, schema.result
    known = metrics.by_position(connection, seq, run)
    columns = (cases.c.position, cases.c.arm, cases.c.outcome, cases.c.created)
    rows = connection.execute(
        select(*columns, table.c.seq, table.c.id)
        .select_from(cases.outerjoin(table, cases.c.result == table.c.seq))
        .where(cases.c.run == seq)
        .order_by(cases.c.position)
    ).all()
    found: dict[Row | int, list[CaseRow]] = {}
    for position, arm, outcome, created, result, result_id in rows:
        if outcome not in tuple(Outcome):
            raise CorruptRunError(run.id, f"case {position} ended as {str(outcome)[:40]!r}")
        row = CaseRow(position, arm, outcome, created, tuple(known[position]))
        found.setdefault(position if result is None else Row(result, result_id), []).append(row)
    return [
        ResultCases(key if isinstance(key, Row) else None, tuple(of)) for key, of in found.items()
    ]


def origin_of(path: Path) -> str:
    """What the records say of where they came from."""
    name = path.name[:MAX_NAME]
    return name if name.isprintable() and name != HERE else "another database"


def marked(record: _Record, origin: str) -> _Record:
    """The record with its origin, where it does not have one from before."""
    return replace(record, origin=origin) if record.origin == HERE else record


@dataclass(frozen=True)
class Part:
    """Cases with their result, ready to be written."""

    result: Result | None
    encoded: EncodedResult | None
    rows: tuple[CaseRow, ...]


def part(source: Connection, result_cases: ResultCases, origin: str) -> Part:
    """A shelf with its result read, packed and marked."""
    if result_cases.result is None:
        return Part(None, None, result_cases.rows)
    result = marked(results.read(source, *result_cases.result), origin)
    return Part(result, results.encode_result(result), result_cases.rows)


def put(connection: Connection, seq: int, run: Run, given: Part) -> int:
    """Add those of the cases that are not here, and their result if it is not; how many cases."""
    there = runs.positions(connection, seq)
    missing = [row for row in given.rows if row.position not in there]
    case_rows.check(run, missing)
    if not missing:
        return 0
    result_seq = None
    if given.result is not None and given.encoded is not None:
        result_seq = results.find(connection, given.result.id)
        if result_seq is None:
            result_seq, _ = results.insert(connection, given.result, given.encoded)
        else:
            _check_same(connection, result_seq, given.result)
    case_rows.insert_cases(connection, seq, run, result_seq, missing)
    return len(missing)


def _check_same(connection: Connection, seq: int, result: Result) -> None:
    here = results.read(connection, seq, result.id)
    if here.pruned or result.pruned:
        here, result = results.bare(here), results.bare(result)
    # As data, because NaN is not equal to itself.
    if to_data(replace(here, origin="")) != to_data(replace(result, origin="")):
        raise UsageError(
            f"Another result with the id {result.id} is already stored here.",
            "Join the databases into a new one.",
        )
