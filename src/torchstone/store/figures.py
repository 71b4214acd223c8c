"""The figures of cases: derived from their results, kept so that tables need no samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, select, true

from torchstone.records import (
    FIGURES_DEFINITION,
    CaseFigures,
    PlannedCase,
    RecordError,
    Result,
    Run,
    RunView,
    from_data,
    to_data,
)
from torchstone.store import results, runs, schema
from torchstone.store.errors import CorruptResultError, CorruptRunError
from torchstone.store.lookup import Row, RunRow

Derive = Callable[[Result, PlannedCase, str], CaseFigures]
"""A case's figures from its result, its place in the plan, and the name of its arm."""


@dataclass(frozen=True)
class Due:
    """The cases whose figures come from one result: row, planned case and arm of each."""

    result: Row
    cases: tuple[tuple[int, PlannedCase, str], ...]


def view(connection: Connection, row: RunRow) -> RunView:
    """The run with its figures by the newest definition that there is of each case."""
    run = runs.read(connection, row.seq, row.id)
    found = by_position(connection, row.seq, run)
    if row.note:
        run = replace(run, notes=(*run.notes, row.note))
    return RunView(run, tuple(versions[-1] for versions in found.values()))


def insert(connection: Connection, case: int, figures: CaseFigures) -> int:
    """Add the derived figures of a case, in the place of older ones of the same definition."""
    table = schema.case_figure
    same = and_(table.c.run_case == case, table.c.definition == figures.definition)
    connection.execute(table.delete().where(same))
    document = runs.to_json(to_data(figures))
    from_data(CaseFigures, json.loads(document))  # what could not be read back is not written
    row = {"run_case": case, "definition": figures.definition, "document": document}
    connection.execute(table.insert().values(**row))
    return len(document)


def by_position(connection: Connection, seq: int, run: Run) -> Mapping[int, list[CaseFigures]]:
    """By position, the figures of each stored case by every definition known here, oldest first."""
    cases, table = schema.run_case, schema.case_figure
    rows = connection.execute(
        select(cases.c.position, table.c.definition, table.c.document)
        .select_from(cases.outerjoin(table, table.c.run_case == cases.c.seq))
        .where(cases.c.run == seq)
        .order_by(cases.c.position, table.c.definition)
    )
    found: dict[int, list[CaseFigures]] = {}
    newest = 0
    for position, definition, document in rows:
        of_case = found.setdefault(position, [])
        newest = max(newest, definition or 0)
        if definition is not None and definition <= FIGURES_DEFINITION:
            of_case.append(_figures(run, position, document))
    for position, of_case in found.items():
        if not of_case and newest > FIGURES_DEFINITION:
            raise runs.newer(run.id, f"figures of definition {newest}", FIGURES_DEFINITION)
        if not of_case:
            raise CorruptRunError(run.id, f"case {position} has no figures")
    return found


def _figures(run: Run, position: int, document: str) -> CaseFigures:
    try:
        figures = from_data(CaseFigures, json.loads(document))
        if figures.key != run.plan[position].key:
            raise RecordError(f"they speak of {figures.key.name[:200]}")
    except (IndexError, RecordError, RecursionError, TypeError, ValueError) as error:
        raise CorruptRunError(run.id, f"figures of case {position}: {error}") from None
    return figures


def command_of(connection: Connection, case: int) -> tuple[str, ...]:
    """The command that re-runs a case, which is known only when it is measured."""
    table = schema.case_figure
    query = select(table.c.document).where(table.c.run_case == case)
    document = connection.scalar(query.order_by(table.c.definition.desc()).limit(1))
    return from_data(CaseFigures, json.loads(document)).command if document else ()


def due_of_result(connection: Connection, seq: int) -> list[Due]:
    """What one result says of cases."""
    return _due(connection, schema.run_case.c.result == seq)


def due(connection: Connection, run: int | None) -> list[Due]:
    """What can be derived anew, in one run or in all."""
    return _due(connection, true() if run is None else schema.run_case.c.run == run)


def _due(connection: Connection, which: ColumnElement[bool]) -> list[Due]:
    cases, table = schema.run_case, schema.result
    query = (
        select(cases.c.seq, cases.c.run, cases.c.position, cases.c.arm, table.c.seq, table.c.id)
        .join(table, cases.c.result == table.c.seq)
        .where(which)
        .order_by(cases.c.seq)
    )
    plans: dict[int, tuple[PlannedCase, ...]] = {}
    found: dict[Row, list[tuple[int, PlannedCase, str]]] = {}
    for case, of_run, position, arm, seq, result_id in connection.execute(query).all():
        if of_run not in plans:
            plans[of_run] = _plan(connection, of_run)
        entry = (case, plans[of_run][position], arm)
        found.setdefault(Row(seq, result_id), []).append(entry)
    return [Due(result, tuple(entries)) for result, entries in found.items()]


def _plan(connection: Connection, run: int) -> tuple[PlannedCase, ...]:
    table = schema.run
    run_id = connection.execute(select(table.c.id).where(table.c.seq == run)).scalar_one()
    return runs.read(connection, run, run_id).plan


def derived(connection: Connection, item: Due, derive: Derive) -> list[tuple[int, CaseFigures]]:
    """New figures of each case, by its row; none where the result is damaged."""
    try:
        result = results.read(connection, *item.result)
    except CorruptResultError:
        return []
    found = [(case, derive(result, planned, arm)) for case, planned, arm in item.cases]
    for (_, new), (_, planned, _) in zip(found, item.cases, strict=True):
        if new.key != planned.key:
            raise ValueError(f"the figures of {planned.key.name} speak of {new.key.name}")
    return found
