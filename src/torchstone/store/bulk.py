"""Whole runs at once: the way in for a history that is made or moved rather than measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection

from torchstone.records import CaseFigures, Result, Run
from torchstone.store import case_facts, case_rows, facts, results, run_facts, runs, schema
from torchstone.store.document import Parcel


@dataclass(frozen=True)
class BulkResult:
    """A result as it will be stored, and the places in the plan of the cases it gave."""

    result: Result
    parcel: Parcel
    positions: tuple[int, ...]


@dataclass(frozen=True)
class BulkRun:
    """A run with the figures of its cases by their place in the plan."""

    run: Run
    cases: tuple[tuple[int, CaseFigures], ...]
    results: tuple[BulkResult, ...] = field(default=())


def insert(connection: Connection, made: BulkRun) -> None:
    """Add the run, its results, its cases and its facts."""
    run = made.run
    rows = [case_rows.row_of(None, place, one, run.created) for place, one in made.cases]
    case_rows.check(run, rows)
    seq = runs.begin(connection, run)
    result_of: dict[int, tuple[int, Result]] = {}
    for item in made.results:
        stored, _ = results.insert(connection, item.result, item.parcel)
        result_of |= dict.fromkeys(item.positions, (stored, item.result))
    connection.execute(
        schema.run_case.insert(),
        [
            {
                "run": seq,
                "position": place,
                "key": runs.key_digest(one.key),
                "result": result_of[place][0] if place in result_of else None,
                "arm": case_rows.arm_of(result_of[place][1], one.key) if place in result_of else "",
                "outcome": one.outcome.value,
                "created": run.created,
            }
            for place, one in made.cases
        ],
    )
    run_facts.put(connection, seq, run)
    case_facts.put(connection, case_facts.place_of(connection, seq), made.cases)
    facts.sum_up(connection, seq, run, dict(made.cases))
