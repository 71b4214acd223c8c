"""The cases of a run as rows: added as they end, each of them once; their figures made again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, and_, func, select, true

from torchstone.records import (
    METRICS_DEFINITION,
    CaseKey,
    CaseMetrics,
    Outcome,
    PlannedCase,
    RecordError,
    Result,
    Run,
    RunView,
    SuiteSummary,
    UsageError,
    to_data,
)
from torchstone.store import case_facts, facts, lookup, results, runs, schema
from torchstone.store.codec import EncodedResult
from torchstone.store.engine import AlreadyStored, CorruptResultError, CorruptRunError
from torchstone.store.limits import HERE, MAX_NAME, in_parts, storable
from torchstone.store.lookup import Row
from torchstone.store.schema import case_fact


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


def refuse_present(
    connection: Connection, run_id: str, seq: int, rows: Sequence[CaseRow], attempt: str
) -> None:
    """A case is stored once, whoever comes second; `attempt` is the id of its result, if any."""
    there = sorted({row.position for row in rows} & runs.positions(connection, seq))
    if there:
        cases, table = schema.run_case, schema.result
        query = select(cases.c.position, cases.c.outcome, func.coalesce(table.c.id, ""))
        query = query.outerjoin(table, table.c.seq == cases.c.result).where(cases.c.run == seq)
        ours = {(row.position, row.outcome, attempt if row.arm else "") for row in rows}
        raise AlreadyStored(run_id, there, same=ours <= set(map(tuple, connection.execute(query))))


def insert_cases(
    connection: Connection,
    seq: int,
    run: Run,
    rows: Sequence[CaseRow],
    result_of: Mapping[int, int | None],
) -> int:
    """Add cases with their figures; the bytes that they take. The run is to be summed up after.

    `result_of` has the row of the result by the place in the plan.
    """
    if not rows:
        return 0
    size, made = 0, []
    for row in rows:
        texts = {
            "key": runs.key_digest(run.plan[row.position].key),
            "arm": storable(row.arm),
            "outcome": row.outcome,
            "created": storable(row.created),
        }
        size += sum(len(text.encode()) for text in texts.values())
        result = result_of.get(row.position) if row.arm else None
        made.append({**texts, "run": seq, "position": row.position, "result": result})
    connection.execute(schema.run_case.insert(), made)
    figures = [(row.position, one) for row in rows for one in row.figures]
    return size + case_facts.put(connection, case_facts.place_of(connection, seq), figures)


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


def insert_bulk(connection: Connection, made: BulkRun, created: str = "") -> None:
    """Add the run, its results, its cases, which ended when the run was made or at `created`, and
    its facts."""
    run, created = made.run, created or made.run.created
    of = {place: item.result for item in made.results for place in item.positions}
    rows = [row_of(of.get(place), place, one, created) for place, one in made.cases]
    check(run, rows)
    seq = runs.begin(connection, run)
    result_of: dict[int, int | None] = {}
    for item in made.results:
        stored, _ = results.insert(connection, item.result, item.encoded)
        result_of |= dict.fromkeys(item.positions, stored)
    facts.put_run(connection, seq, run)
    insert_cases(connection, seq, run, rows, result_of)
    facts.sum_up(connection, seq, run, dict(made.cases))


# The figures of stored cases.


Load = Callable[[int, Run, Sequence[int]], list[CaseMetrics]]
"""`whole`, with a connection of its own."""


def view(connection: Connection, row: Row) -> RunView:
    """The run with its figures by the newest definition that there is of each case."""
    run = _noted(runs.read(connection, row.seq, row.id), row)
    found = by_position(connection, row.seq, run)
    return RunView(run, tuple(versions[-1] for versions in found.values()))


def _noted(run: Run, row: Row) -> Run:
    return replace(run, notes=(*run.notes, row.note)) if row.note else run


@dataclass(frozen=True)
class BriefRunView(RunView):
    """A large run: of each case only what a report chooses and sums up by, until `whole` is asked.

    Of cases that pass without a warning that is the outcome, the verdict and what verdicts are made
    from; the others have their reasons and checks too. `summaries` are the store's.
    """

    summaries: tuple[SuiteSummary, ...] = ()
    load: Callable[[Sequence[int]], list[CaseMetrics]] = field(default=lambda _: [], repr=False)

    def whole(self, positions: Sequence[int]) -> list[CaseMetrics]:
        """Read from the store."""
        return self.load(positions)


def brief_view(connection: Connection, row: Row, load: Load) -> BriefRunView | None:
    """The same of a large run, for a report. None where only `view` can tell: its figures are
    damaged, or its sums are not those of its cases."""
    run = _noted(runs.read(connection, row.seq, row.id), row)
    found: dict[int, CaseMetrics] = {}
    try:
        for position, *figures in case_facts.brief_rows(connection, row.seq):
            found[position] = case_facts.brief_of(run.plan[position].key, figures)
    except (IndexError, RecordError):
        return None
    stored = connection.scalar(select(func.count()).where(schema.run_case.c.run == row.seq))
    if stored != len(found) or min(found, default=0) < 0:
        return None
    summaries = tuple(facts.of_run(connection, row.seq, ()))
    made = BriefRunView(run, tuple(found.values()), summaries, partial(load, row.seq, run))
    return made if facts.is_sum(summaries, made.complete) else None


def whole(
    connection: Connection, seq: int, run: Run, positions: Sequence[int]
) -> list[CaseMetrics]:
    """The cases at these places, with every figure, by the newest definition known here."""
    found: dict[int, CaseMetrics] = {}
    for part in in_parts(positions):
        query = case_facts.query_of(case_fact.c.position).where(
            case_fact.c.run == seq, case_fact.c.position.in_(part)
        )
        for row in connection.execute(query.order_by(case_fact.c.definition)):
            found[row[0]] = _checked(run, row[0], case_facts.decoded(run.id, tuple(row)))
    return [found[position] for position in positions]


def by_position(connection: Connection, seq: int, run: Run) -> dict[int, list[CaseMetrics]]:
    """By position, the figures of each stored case by every definition known here, oldest first."""
    found: dict[int, list[CaseMetrics]] = {
        position: [] for position in sorted(runs.positions(connection, seq))
    }
    newest = 0
    for position, definition, one in case_facts.versions(connection, seq):
        newest = max(newest, definition)
        if position in found and definition <= METRICS_DEFINITION:
            found[position].append(_checked(run, position, one))
    for position, usable in found.items():
        if not usable and newest > METRICS_DEFINITION:
            raise runs.newer(run.id, f"figures of definition {newest}", METRICS_DEFINITION)
        if not usable:
            raise CorruptRunError(run.id, f"case {position} has no figures")
    return found


def _checked(run: Run, position: int, figures: CaseMetrics | RecordError) -> CaseMetrics:
    if isinstance(figures, RecordError):
        raise CorruptRunError(run.id, f"figures of case {position}: {figures}")
    if not 0 <= position < len(run.plan) or figures.key != run.plan[position].key:
        told = f"they speak of {figures.key.name[:200]}"
        raise CorruptRunError(run.id, f"figures of case {position}: {told}")
    return figures


def by_result(connection: Connection, seq: int, run: Run) -> list[tuple[Row | None, list[CaseRow]]]:
    """All stored cases of a run by the result that they came from; each without one by itself."""
    cases, table = schema.run_case, schema.result
    known = by_position(connection, seq, run)
    columns = (cases.c.position, cases.c.arm, cases.c.outcome, cases.c.created)
    rows = connection.execute(
        select(*columns, table.c.seq, table.c.id)
        .select_from(cases.outerjoin(table, cases.c.result == table.c.seq))
        .where(cases.c.run == seq)
        .order_by(cases.c.position)
    ).all()
    found: dict[Row | int, tuple[Row | None, list[CaseRow]]] = {}
    for position, arm, outcome, created, result, result_id in rows:
        if outcome not in tuple(Outcome):
            raise CorruptRunError(run.id, f"case {position} ended as {str(outcome)[:40]!r}")
        source = None if result is None else Row(result, result_id)
        _, of_result = found.setdefault(source or position, (source, []))
        of_result.append(CaseRow(position, arm, outcome, created, tuple(known[position])))
    return list(found.values())


# Runs joined from several databases: shards that were measured apart become one run.


_Record = TypeVar("_Record", Result, Run)


def origin_of(database: str) -> str:
    """What the records say of where they came from."""
    name = database[:MAX_NAME]
    return name if name.isprintable() and name != HERE else "another database"


def marked(record: _Record, origin: str) -> _Record:
    """The record with its origin, where it does not have one from before."""
    return replace(record, origin=origin) if record.origin == HERE else record


def put_missing(
    connection: Connection,
    seq: int,
    run: Run,
    rows: Sequence[CaseRow],
    given: tuple[Result, EncodedResult] | None,
) -> int:
    """Add those of the cases that are not here, and their result if it is not; how many cases."""
    there = runs.positions(connection, seq)
    missing = [row for row in rows if row.position not in there]
    check(run, missing)
    if not missing:
        return 0
    stored = None
    if given is not None:
        known = lookup.exact(connection, lookup.RESULT, given[0].id)
        if known is None:
            stored, _ = results.insert(connection, *given)
        else:
            stored = known.seq
            check_same(connection, stored, given[0])
    result_of = {row.position: stored for row in missing}
    insert_cases(connection, seq, run, missing, result_of)
    return len(missing)


def check_same(connection: Connection, seq: int, result: Result) -> None:
    """Refuse a result whose id is here with another content."""
    here = results.read(connection, seq, result.id)
    if here.pruned or result.pruned:
        here, result = results.bare(here), results.bare(result)
    # As data, because NaN is not equal to itself.
    if to_data(replace(here, origin="")) != to_data(replace(result, origin="")):
        raise UsageError(
            f"Another result with the id {result.id} is already stored here.",
            "Join the databases into a new one.",
        )


# Figures derived again from the results of their cases.


Derive = Callable[[Result, PlannedCase, str], CaseMetrics]
"""A case's figures from its result, its place in the plan, and the name of its arm."""


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


def due(
    connection: Connection,
    *,
    run: int | None = None,
    result: int | None = None,
    stale: bool = False,
) -> list[Due]:
    """What can be derived again, of one run or result or of all; where `stale`, only what has to
    be."""
    cases, table = schema.run_case, schema.result
    which: ColumnElement[bool] = true() if run is None else cases.c.run == run
    if result is not None:
        which = and_(which, cases.c.result == result)
    if stale:
        current = select(case_fact.c.seq).where(
            case_fact.c.run == cases.c.run,
            case_fact.c.position == cases.c.position,
            case_fact.c.definition == METRICS_DEFINITION,
        )
        which = and_(which, ~current.exists())
    query = (
        select(cases.c.run, cases.c.position, cases.c.arm, table.c.seq, table.c.id)
        .join(table, cases.c.result == table.c.seq)
        .where(which)
        .order_by(cases.c.seq)
    )
    plans: dict[int, tuple[PlannedCase, ...]] = {}
    found: dict[Row, list[DueCase]] = {}
    for of_run, position, arm, seq, result_id in connection.execute(query).all():
        if of_run not in plans:
            plans[of_run] = runs.read(connection, of_run).plan
        entry = DueCase(of_run, position, plans[of_run][position], arm)
        found.setdefault(Row(seq, result_id), []).append(entry)
    return [Due(row, tuple(entries)) for row, entries in found.items()]


def derived(connection: Connection, item: Due, derive: Derive) -> list[tuple[DueCase, CaseMetrics]]:
    """New figures of each case, with the command that they had; none where the result is damaged,
    or its samples were removed."""
    try:
        result = results.read(connection, item.result.seq, item.result.id)
    except CorruptResultError:
        return []
    if result.pruned is not None:
        return []
    found = []
    for case in item.cases:
        new = derive(result, case.planned, case.arm)
        if new.key != case.planned.key:
            raise ValueError(f"the figures of {case.planned.key.name} speak of {new.key.name}")
        found.append((case, replace(new, command=new.command or _command_of(connection, case))))
    return found


def _command_of(connection: Connection, case: DueCase) -> tuple[str, ...]:
    """The command that re-runs a case, which is known only when it is measured."""
    query = case_facts.query_of().where(
        case_fact.c.run == case.run, case_fact.c.position == case.position
    )
    found = connection.execute(query.order_by(case_fact.c.definition.desc()).limit(1)).first()
    return case_facts.decoded("", tuple(found)).command if found else ()


def put_derived(connection: Connection, found: Iterable[tuple[DueCase, CaseMetrics]]) -> set[int]:
    """Write figures that were derived again; the runs whose cases they are of."""
    touched = set()
    for case, new in found:
        place = case_facts.place_of(connection, case.run)
        case_facts.put(connection, place, [(case.position, new)])
        touched.add(case.run)
    return touched
