"""The cases of a run as rows: added as they end, each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from torchstone.records import CaseKey, CaseMetrics, Result, Run
from torchstone.store import case_facts, facts, results, runs, schema
from torchstone.store.codec import EncodedResult
from torchstone.store.engine import AlreadyStored
from torchstone.store.results import storable
from torchstone.store.runs import key_digest, positions


@dataclass(frozen=True)
class CaseRow:
    """One case as it is stored; `figures` by each definition that there is."""

    position: int
    arm: str
    outcome: str
    created: str
    figures: tuple[CaseMetrics, ...]


def row_of(result: Result | None, position: int, case: CaseMetrics, created: str) -> CaseRow:
    """A case that has just ended; its arm is the one of that variant in the result.

    A case that says of no result, because it could not run, has none, also where others of its
    group were measured.
    """
    arm = "" if result is None or not case.result_id else arm_of(result, case.key)
    return CaseRow(position, arm, case.outcome.value, created, (case,))


def arm_of(result: Result, key: CaseKey) -> str:
    """The name of the arm in the result that a case is about."""
    others = [arm.arm for arm in result.arms[1:]]
    fitting = [arm.name for arm in others if arm.variant == key.variant]
    if len(fitting) == 1:
        return fitting[0]
    if len(others) == 1:
        return others[0].name
    raise ValueError(f"no single arm of the result {result.id} is that of {key.name}")


def check(run: Run, rows: Iterable[CaseRow]) -> None:
    """Refuse, before anything is written, what does not fit the plan."""
    seen: set[int] = set()
    for row in rows:
        if not 0 <= row.position < len(run.plan) or row.position in seen:
            raise ValueError(f"case {row.position} is given twice or is not in the plan")
        seen.add(row.position)
        planned = run.plan[row.position].key
        for one in row.figures:
            if one.key != planned:
                raise ValueError(
                    f"case {row.position} of the plan is {planned.name}, not {one.key.name}"
                )


def refuse_present(connection: Connection, run_id: str, seq: int, rows: Sequence[CaseRow]) -> None:
    """A case is stored once, whoever comes second."""
    there = sorted({row.position for row in rows} & positions(connection, seq))
    if there:
        raise AlreadyStored(run_id, there)


def insert_cases(
    connection: Connection, run: int, of: Run, result: int | None, rows: Sequence[CaseRow]
) -> int:
    """Add cases with their figures; the bytes that they take. The run is to be summed up after."""
    made = [
        {
            "key": key_digest(of.plan[row.position].key),
            "arm": storable(row.arm),
            "outcome": row.outcome,
            "created": storable(row.created),
        }
        for row in rows
    ]
    if not made:
        return 0
    places = [
        {"run": run, "position": row.position, "result": result if row.arm else None}
        for row in rows
    ]
    connection.execute(
        schema.run_case.insert(),
        [{**columns, **place} for columns, place in zip(made, places, strict=True)],
    )
    size = sum(len(text.encode()) for columns in made for text in columns.values())
    figures = [(row.position, one) for row in rows for one in row.figures]
    return size + case_facts.put(connection, case_facts.place_of(connection, run), figures)


# Whole runs at once: the way in for a history that is made or moved rather than measured.


@dataclass(frozen=True)
class BulkResult:
    """A result as it will be stored, and the places in the plan of the cases it gave."""

    result: Result
    encoded: EncodedResult
    positions: tuple[int, ...]


@dataclass(frozen=True)
class BulkRun:
    """A run with the figures of its cases by their place in the plan."""

    run: Run
    cases: tuple[tuple[int, CaseMetrics], ...]
    results: tuple[BulkResult, ...] = field(default=())


def insert_bulk(connection: Connection, made: BulkRun) -> None:
    """Add the run, its results, its cases and its facts."""
    run = made.run
    rows = [row_of(None, place, one, run.created) for place, one in made.cases]
    check(run, rows)
    seq = runs.begin(connection, run)
    result_of: dict[int, tuple[int, Result]] = {}
    for item in made.results:
        stored, _ = results.insert(connection, item.result, item.encoded)
        result_of |= dict.fromkeys(item.positions, (stored, item.result))
    connection.execute(
        schema.run_case.insert(),
        [
            {
                "run": seq,
                "position": place,
                "key": runs.key_digest(one.key),
                "result": result_of[place][0] if place in result_of else None,
                "arm": arm_of(result_of[place][1], one.key) if place in result_of else "",
                "outcome": one.outcome.value,
                "created": run.created,
            }
            for place, one in made.cases
        ],
    )
    facts.put_run(connection, seq, run)
    case_facts.put(connection, case_facts.place_of(connection, seq), made.cases)
    facts.sum_up(connection, seq, run, dict(made.cases))
