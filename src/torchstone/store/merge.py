"""Runs joined from several databases: shards that were measured apart become one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from torchstone.records import Result, Run, UsageError, to_data
from torchstone.store import case_rows, lookup, results, runs
from torchstone.store.case_rows import CaseRow
from torchstone.store.codec import EncodedResult
from torchstone.store.limits import HERE, MAX_NAME

_Record = TypeVar("_Record", Result, Run)


def origin_of(path: Path) -> str:
    """What the records say of where they came from."""
    name = path.name[:MAX_NAME]
    return name if name.isprintable() and name != HERE else "another database"


def marked(record: _Record, origin: str) -> _Record:
    """The record with its origin, where it does not have one from before."""
    return replace(record, origin=origin) if record.origin == HERE else record


def put(
    connection: Connection,
    seq: int,
    run: Run,
    rows: Sequence[CaseRow],
    given: tuple[Result, EncodedResult] | None,
) -> int:
    """Add those of the cases that are not here, and their result if it is not; how many cases."""
    there = runs.positions(connection, seq)
    missing = [row for row in rows if row.position not in there]
    case_rows.check(run, missing)
    if not missing:
        return 0
    stored = None
    if given is not None:
        known = lookup.exact(connection, lookup.RESULT, given[0].id)
        if known is None:
            stored, _ = results.insert(connection, *given)
        else:
            stored = known.seq
            _check_same(connection, stored, given[0])
    result_of = {row.position: stored for row in missing}
    case_rows.insert_cases(connection, seq, run, missing, result_of)
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
