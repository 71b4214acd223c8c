"""Lists of what is stored; no document and no samples are read for them."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime

from sqlalchemy import Connection, select

from torchstone.records import UsageError
from torchstone.store import schema
from torchstone.store.dates import seconds_of
from torchstone.store.derived import run_fact
from torchstone.store.summary import RunSummary, Summary

_PART = 500  # a query may have only so many parameters


def list_results(
    connection: Connection, limit: int, arm: str | None, since: datetime | str | None
) -> list[Summary]:
    """The newest results first; those that are a run's cases are in their run."""
    _check_limit(limit, "results")
    table, arms = schema.result, schema.measurement
    columns = (table.c.seq, table.c.id, table.c.created, table.c.kind, table.c.label)
    query = select(*columns, table.c.origin, table.c.bytes).order_by(table.c.seq.desc())
    query = query.where(schema.of_no_run())
    if arm is not None:
        query = query.where(table.c.seq.in_(select(arms.c.result).where(arms.c.arm == arm)))
    if since is not None:
        query = query.where(table.c.created_s >= _since(since))
    rows = connection.execute(query.limit(limit)).all()
    arms_of, line_of = _details(connection, [row.seq for row in rows])
    return [
        Summary(
            id=row.id,
            created=row.created,
            kind=row.kind,
            label=row.label,
            origin=row.origin,
            arms=tuple(name for name, _ in arms_of[row.seq]),
            outcomes=tuple(outcome for _, outcome in arms_of[row.seq]),
            headline=line_of.get(row.seq, ""),
            bytes=row.bytes,
        )
        for row in rows
    ]


def list_runs(connection: Connection, limit: int) -> list[RunSummary]:
    """The newest runs first."""
    _check_limit(limit, "runs")
    table = schema.run
    columns = (table.c.seq, table.c.id, table.c.created, table.c.label, table.c.origin)
    query = select(*columns, table.c.planned, table.c.suites).order_by(table.c.seq.desc())
    rows = connection.execute(query.limit(limit)).all()
    outcomes = _outcomes(connection, [row.seq for row in rows])
    return [
        RunSummary(
            id=row.id,
            created=row.created,
            label=row.label,
            origin=row.origin,
            planned=row.planned,
            done=sum(outcomes[row.seq].values()),
            outcomes=outcomes[row.seq],
            suites=tuple(json.loads(row.suites)),
        )
        for row in rows
    ]


def _outcomes(connection: Connection, shown: list[int]) -> dict[int, dict[str, int]]:
    """How many cases of each run ended in each way."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    query = select(run_fact.c.run, run_fact.c.outcomes)
    for start in range(0, len(shown), _PART):
        part = shown[start : start + _PART]
        for run, outcomes in connection.execute(query.where(run_fact.c.run.in_(part))):
            found[run] = json.loads(outcomes)
    return found


def _check_limit(limit: int, what: str) -> None:
    if limit < 0:
        raise UsageError(f"A list of {limit} {what} cannot be made.", "Give 1 or more.")


def _details(
    connection: Connection, shown: list[int]
) -> tuple[dict[int, list[tuple[str, str]]], dict[int, str]]:
    """Arms with their outcomes, and the headline, of each result shown."""
    arms, sums = schema.measurement, schema.summary
    arms_of: dict[int, list[tuple[str, str]]] = defaultdict(list)
    line_of: dict[int, str] = {}
    named = select(arms.c.result, arms.c.arm, arms.c.outcome).order_by(arms.c.position)
    told = select(sums.c.result, sums.c.headline).order_by(sums.c.definition)
    for start in range(0, len(shown), _PART):
        part = shown[start : start + _PART]
        for seq, name, outcome in connection.execute(named.where(arms.c.result.in_(part))):
            arms_of[seq].append((name, outcome))
        for seq, line in connection.execute(told.where(sums.c.result.in_(part))):
            line_of[seq] = line  # the newest definition is read last and stays
    return arms_of, line_of


def _since(since: datetime | str) -> float:
    seconds = seconds_of(since)
    if seconds is None:
        raise UsageError(
            f"{str(since)[:40]!r} is not a date.", "Write it as 2026-01-31 or 2026-01-31T12:00."
        )
    return seconds
