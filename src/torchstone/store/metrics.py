"""The figures of cases: derived from their results, kept so that tables need no samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, select, true

from torchstone.records import (
    METRICS_DEFINITION,
    CaseMetrics,
    PlannedCase,
    RecordError,
    Result,
    Run,
    RunView,
)
from torchstone.store import case_facts, results, runs, schema
from torchstone.store.case_facts import DETAIL, SELECTED, metrics_of
from torchstone.store.engine import CorruptResultError, CorruptRunError
from torchstone.store.lookup import Row, RunRow
from torchstone.store.schema import case_detail, case_fact, series

Derive = Callable[[Result, PlannedCase, str], CaseMetrics]
"""A case's figures from its result, its place in the plan, and the name of its arm."""

_Versions = dict[int, list[tuple[int, CaseMetrics | str]]]


@dataclass(frozen=True)
class DueCase:
    """Where the case is, and what its figures are derived from beside its result."""

    run: int
    position: int
    planned: PlannedCase
    arm: str


@dataclass(frozen=True)
class Due:
    """The cases whose figures come from one result."""

    result: Row
    cases: tuple[DueCase, ...]


def view(connection: Connection, row: RunRow) -> RunView:
    """The run with its figures by the newest definition that there is of each case."""
    run = runs.read(connection, row.seq, row.id)
    found = by_position(connection, row.seq, run)
    if row.note:
        run = replace(run, notes=(*run.notes, row.note))
    return RunView(run, tuple(versions[-1] for versions in found.values()))


def by_position(connection: Connection, seq: int, run: Run) -> Mapping[int, list[CaseMetrics]]:
    """By position, the figures of each stored case by every definition known here, oldest first."""
    stored = sorted(runs.positions(connection, seq))
    known = _versions(connection, seq)
    newest = max((d for versions in known.values() for d, _ in versions), default=0)
    found: dict[int, list[CaseMetrics]] = {}
    for position in stored:
        usable = [one for d, one in known.get(position, ()) if d <= METRICS_DEFINITION]
        found[position] = [_checked(run, position, one) for one in usable]
        if not usable and newest > METRICS_DEFINITION:
            raise runs.newer(run.id, f"figures of definition {newest}", METRICS_DEFINITION)
        if not usable:
            raise CorruptRunError(run.id, f"case {position} has no figures")
    return found


def _versions(connection: Connection, seq: int) -> _Versions:
    """By position, the definitions and figures of each case; a text says what is wrong with one."""
    rows = connection.execute(
        select(case_fact.c.position, case_fact.c.definition, *SELECTED, DETAIL)
        .join(series, series.c.seq == case_fact.c.series)
        .outerjoin(case_detail, case_detail.c.seq == case_fact.c.detail)
        .where(case_fact.c.run == seq)
        .order_by(case_fact.c.position, case_fact.c.definition)
    )
    found: _Versions = {}
    for position, definition, *row in rows:
        try:
            one: CaseMetrics | str = metrics_of(row)
        except RecordError as error:
            one = str(error)
        found.setdefault(position, []).append((definition, one))
    return found


def _checked(run: Run, position: int, figures: CaseMetrics | str) -> CaseMetrics:
    if isinstance(figures, str):
        raise CorruptRunError(run.id, f"figures of case {position}: {figures}")
    if not 0 <= position < len(run.plan) or figures.key != run.plan[position].key:
        told = f"they speak of {figures.key.name[:200]}"
        raise CorruptRunError(run.id, f"figures of case {position}: {told}")
    return figures


def command_of(connection: Connection, case: DueCase) -> tuple[str, ...]:
    """The command that re-runs a case, which is known only when it is measured."""
    query = case_facts.query_of().where(
        case_fact.c.run == case.run, case_fact.c.position == case.position
    )
    found = connection.execute(query.order_by(case_fact.c.definition.desc()).limit(1)).first()
    return case_facts.decoded("", tuple(found)).command if found else ()


def due_of_result(connection: Connection, seq: int) -> list[Due]:
    """What one result says of cases."""
    return _due(connection, schema.run_case.c.result == seq)


def due(connection: Connection, run: int | None, *, stale: bool = False) -> list[Due]:
    """What can be derived again, in one run or in all; where `stale`, only what has to be."""
    cases = schema.run_case
    which = true() if run is None else cases.c.run == run
    if stale:
        current = select(case_fact.c.seq).where(
            case_fact.c.run == cases.c.run,
            case_fact.c.position == cases.c.position,
            case_fact.c.definition == METRICS_DEFINITION,
        )
        which = and_(which, ~current.exists())
    return _due(connection, which)


def _due(connection: Connection, which: ColumnElement[bool]) -> list[Due]:
    cases, table = schema.run_case, schema.result
    query = (
        select(cases.c.run, cases.c.position, cases.c.arm, table.c.seq, table.c.id)
        .join(table, cases.c.result == table.c.seq)
        .where(which)
        .order_by(cases.c.seq)
    )
    plans: dict[int, tuple[PlannedCase, ...]] = {}
    found: dict[Row, list[DueCase]] = {}
    for run, position, arm, seq, result_id in connection.execute(query).all():
        if run not in plans:
            plans[run] = runs.read(connection, run, runs.id_of(connection, run)).plan
        entry = DueCase(run, position, plans[run][position], arm)
        found.setdefault(Row(seq, result_id), []).append(entry)
    return [Due(result, tuple(entries)) for result, entries in found.items()]


def derived(connection: Connection, item: Due, derive: Derive) -> list[tuple[DueCase, CaseMetrics]]:
    """New figures of each case; none where the result is damaged, or its samples were removed."""
    try:
        result = results.read(connection, *item.result)
    except CorruptResultError:
        return []
    if result.pruned is not None:
        return []
    found = [(case, derive(result, case.planned, case.arm)) for case in item.cases]
    for case, new in found:
        if new.key != case.planned.key:
            raise ValueError(f"the figures of {case.planned.key.name} speak of {new.key.name}")
    return found
