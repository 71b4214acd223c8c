"""Rows of `run_fact`: what a list, an axis or a droplist shows of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from torchstone.records import CaseFigures, GitState, Run, RunHead
from torchstone.store import alive, schema
from torchstone.store.derived import run_fact
from torchstone.store.dimensions import lane_of
from torchstone.store.results import storable

HEAD = tuple(
    run_fact.c[name]
    for name in (
        *("id", "created", "created_s", "label", "revision", "branch", "dirty", "machine_id"),
        *("machine", "torch", "origin", "tier", "suites", "planned", "outcomes"),
    )
)
"""What a head is made from, in the order of `RunHead`."""
_TOLD = tuple(field.name for field in fields(RunHead))[: len(HEAD) - 3]


def put(connection: Connection, seq: int, run: Run | None) -> None:
    """Add the facts of a run whose row is there; None: its plan cannot be read any more."""
    table = schema.run
    columns = (table.c.id, table.c.created, table.c.created_s, table.c.label, table.c.origin)
    row = connection.execute(
        select(*columns, table.c.suites, table.c.planned).where(table.c.seq == seq)
    ).one()
    git = (run.git if run else None) or GitState("")
    texts = {
        "revision": git.commit,
        "branch": git.branch,
        "machine_id": run.machine_id if run else "",
        "machine": run.machine if run else "",
        "torch": run.torch if run else "",
        "tier": run.tier if run else "",
    }
    texts = {name: storable(text) for name, text in texts.items()}
    connection.execute(run_fact.delete().where(run_fact.c.run == seq))
    connection.execute(
        run_fact.insert().values(
            **row._mapping,
            **texts,
            run=seq,
            at=row.created_s or 0.0,
            lane=lane_of(connection, texts["machine_id"], texts["branch"]),
            dirty=git.dirty,
            outcomes="{}",
        )
    )


def count(connection: Connection, seq: int, cases: Iterable[CaseFigures]) -> None:
    """Write down how the run's cases ended so far."""
    counts = Counter(case.outcome.value for case in cases)
    text = json.dumps(counts, separators=(",", ":"), sort_keys=True)
    connection.execute(run_fact.update().where(run_fact.c.run == seq).values(outcomes=text))


def heads_of(rows: Iterable[Sequence[Any]], path: Path) -> list[RunHead]:
    """The runs of rows that begin with `HEAD`; which of them live is asked once, if at all."""
    running: frozenset[str] | None = None
    found = []
    for row in rows:
        head = _head(tuple(row[: len(HEAD)]))
        if head.done < head.planned:
            running = alive.running_ids(path) if running is None else running
            head = replace(head, state="running" if head.id in running else "interrupted")
        found.append(head)
    return found


def _head(row: tuple[Any, ...]) -> RunHead:
    suites, planned, outcomes = row[-3:]
    told = dict(zip(_TOLD, row, strict=False))
    return RunHead(**told, suites=_names(suites), planned=planned, outcomes=json.loads(outcomes))


@lru_cache(maxsize=256)
def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
