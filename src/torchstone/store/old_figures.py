"""Figures as documents, the form of schema 2 and 3: read, and turned into columns.

A database that is open for reading only stays as it is, so these are read there still; and a
program of that version that had the file open while it was brought up to date goes on writing them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection, select

from torchstone.records import CaseFigures, RecordError, Run, UsageError, from_data
from torchstone.store import case_facts, facts, runs, schema
from torchstone.store.derived import case_fact

_GONE = ("base_step_peak_bytes", "new_step_peak_bytes", "allocator_share")
"""Figures of definition 1 that 2 no longer has."""


def of_run(connection: Connection, seq: int) -> dict[int, list[tuple[int, CaseFigures | str]]]:
    """By position, the definitions and figures of each case; a text says what is wrong with one."""
    cases, table = schema.run_case, schema.case_figure
    rows = connection.execute(
        select(cases.c.position, table.c.definition, table.c.document)
        .join(table, table.c.run_case == cases.c.seq)
        .where(cases.c.run == seq)
        .order_by(cases.c.position, table.c.definition)
    )
    found: dict[int, list[tuple[int, CaseFigures | str]]] = {}
    for position, definition, document in rows:
        found.setdefault(position, []).append((definition, _decoded(document)))
    return found


def _decoded(document: str) -> CaseFigures | str:
    try:
        data = json.loads(document)
        return from_data(CaseFigures, {name: data[name] for name in data if name not in _GONE})
    except (AttributeError, RecordError, RecursionError, TypeError, ValueError) as error:
        return str(error)


def take_in(connection: Connection) -> None:
    """Copy into columns what is there as documents only. Documents are left as they are."""
    cases, table = schema.run_case, schema.case_figure
    known = select(case_fact.c.seq).where(
        case_fact.c.run == cases.c.run,
        case_fact.c.position == cases.c.position,
        case_fact.c.definition == table.c.definition,
    )
    left = (
        select(cases.c.run)
        .distinct()
        .join(table, table.c.run_case == cases.c.seq)
        .where(~known.exists())
    )
    for seq in connection.scalars(left).all():
        _take_in_run(connection, seq)


def _take_in_run(connection: Connection, seq: int) -> None:
    run_id = runs.id_of(connection, seq)
    try:
        run: Run | None = runs.read(connection, seq, run_id)
    except UsageError:  # damaged, or of a newer program
        run = None
    facts.make_anew(connection, seq, run)
    place = case_facts.place_of(connection, seq)
    found = of_run(connection, seq)
    case_facts.put(connection, place, list(_fitting(run, found)))
    facts.make_anew(connection, seq, run)


def _fitting(
    run: Run | None, found: dict[int, list[tuple[int, CaseFigures | str]]]
) -> Iterable[tuple[int, CaseFigures]]:
    """What can be read and speaks of the case at its place; the rest stays a document."""
    keys = [planned.key for planned in run.plan] if run else []
    for position, versions in found.items():
        for _, one in versions:
            if isinstance(one, CaseFigures) and (
                not run or keys[position : position + 1] == [one.key]
            ):
                yield position, one


def forget(connection: Connection) -> int:
    """Remove the documents whose figures are in columns; how many."""
    cases, table = schema.run_case, schema.case_figure
    known = (
        select(cases.c.seq)
        .join(
            case_fact,
            (case_fact.c.run == cases.c.run) & (case_fact.c.position == cases.c.position),
        )
        .where(cases.c.seq == table.c.run_case, case_fact.c.definition == table.c.definition)
    )
    return connection.execute(table.delete().where(known.exists())).rowcount
