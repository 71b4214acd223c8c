"""Stored runs over time: the questions that pages, reports and gates ask.

Every one is answered from the tables of `derived` by an index; `tests/store/test_store_plans.py`
asks SQLite how it goes about each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    ScalarSelect,
    Select,
    func,
    literal,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from torchstone.records import (
    METRICS_DEFINITION,
    CaseKey,
    CaseMetrics,
    CasePoint,
    CaseRow,
    Choices,
    FailureSpan,
    GroupPoint,
    RunHead,
    Selection,
    SeriesRun,
    SuiteSummary,
    UsageError,
)
from torchstone.store import case_facts, facts, lookup, runs, schema
from torchstone.store.engine import Base
from torchstone.store.facts import HEAD, heads_of
from torchstone.store.limits import checked_limit, in_parts
from torchstone.store.lookup import RUN
from torchstone.store.schema import (
    GROUP_KEY,
    case_fact,
    case_group,
    group_fact,
    machine_branch,
    run_fact,
    series,
)

MOST = 100_000
"""Rows of one answer, whatever is asked for."""
_BEFORE_ALL = -1.0
"""Before the time of any run (`run_fact.at`)."""
_MONDAY_S = 3 * 86_400.0
"""Time is counted from a Thursday: with so much more, weeks begin on Mondays."""
"""Characters of a commit that are enough to look for it."""


EVERYTHING = Selection()


class HistoryPart(Base):
    """Questions over many runs. Each answer is bounded by its `limit`."""

    def run_heads(
        self, selection: Selection = EVERYTHING, limit: int = 200, before: str = ""
    ) -> list[RunHead]:
        """The newest runs first, by when they were made; with `before`, those older than that run.

        A selection of a suite, mode or the like leaves the runs that planned such cases; one of a
        model, those in which such a case has ended.
        """
        with self._reading() as connection:
            query = select(*HEAD).where(*case_facts.selecting_of_run(selection))
            query = case_facts.having_cases(connection, query, selection)
            if before:
                at, run = _place_of(connection, before)
                later = (run_fact.c.at == at) & (run_fact.c.run < run)
                query = query.where((run_fact.c.at <= at) & ((run_fact.c.at < at) | later))
            return self._newest_heads(connection, query, limit)

    def run_head(self, wanted: str) -> RunHead:
        """The run of that id or label, of the only id that begins so, or the newest (`last`)."""
        with self._reading() as connection:
            return self._head(connection, lookup.resolve(connection, wanted, RUN).seq)

    def _head(self, connection: Connection, seq: int) -> RunHead:
        query = select(*HEAD).where(run_fact.c.run == seq)
        return heads_of(connection.execute(query).all(), partial(self._running, connection))[0]

    def _newest_heads(
        self, connection: Connection, query: Select[Any], limit: int
    ) -> list[RunHead]:
        query = query.order_by(run_fact.c.at.desc(), run_fact.c.run.desc())
        rows = connection.execute(query.limit(bounded(limit))).all()
        return heads_of(rows, partial(self._running, connection))

    def revision(self) -> int:
        """Another number whenever stored figures, samples or thresholds are no longer the same."""
        with self._reading() as connection:
            return schema.revision(connection)

    def newest(self) -> tuple[int, int]:
        """Another pair whenever a run, or a kind of case, is added: two seeks."""
        last_run, last_kind = func.max(run_fact.c.run), func.max(case_group.c.seq)
        with self._reading() as connection:
            return (
                connection.scalar(select(last_run)) or 0,
                connection.scalar(select(last_kind)) or 0,
            )

    def state_until(self, until_s: float) -> tuple[int, int]:
        """Another pair whenever a run made until then is added, a case of one ends, or stored
        figures are no longer the same."""
        query = select(run_fact.c.run, run_fact.c.outcomes).where(run_fact.c.at <= until_s)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(run_fact.c.run))
            return schema.revision(connection), hash(tuple(map(tuple, rows)))

    def choices(self) -> Choices:
        """Every value that occurs in stored runs; sorted, and those of runs the newest first."""
        columns = (run_fact.c.branch, run_fact.c.torch, run_fact.c.machine_id, run_fact.c.machine)
        known = select(*columns).group_by(*columns).order_by(func.max(run_fact.c.at).desc())
        with self._reading() as connection:
            groups = connection.execute(select(*(case_group.c[n] for n in GROUP_KEY))).all()
            of_runs = connection.execute(known).all()
        machines: dict[str, str] = {}  # of each what its newest run says
        for row in of_runs:
            if row.machine_id:
                machines.setdefault(row.machine_id, row.machine)
        names = ("suites", "scales", "modes", "precisions", "variants", "devices", "threads")
        values = {
            name: tuple(sorted({row[i] for row in groups}))
            for i, name in enumerate((*names, "allocators"))
        }
        return Choices(
            **values,
            branches=tuple(dict.fromkeys(row.branch for row in of_runs if row.branch)),
            torches=tuple(dict.fromkeys(row.torch for row in of_runs if row.torch)),
            machines=machines,
        )

    def group_points(
        self,
        selection: Selection,
        limit: int = 5000,
        every_s: float = 0.0,
        without: Collection[str] = (),
    ) -> list[GroupPoint]:
        """Suites over time, the oldest first; of more than `limit` the newest.

        With `every_s`, only the newest run with such a suite of each machine and branch in every
        so many seconds; weeks begin on Mondays. `without`: not of the runs of these ids.

        Each is summed up by the newest definitions that it was summed up by and that this program
        knows; a model in the selection does not matter, because a suite has many.
        """
        selection = replace(selection, model="")
        groups = select(case_group.c.seq).where(*case_facts.of_key(selection, case_group))
        order = (group_fact.c.at, group_fact.c.run)
        of_runs = case_facts.selecting_of_run(selection)
        if without:
            of_runs = [*of_runs, run_fact.c.id.not_in(without)]
        query = (
            facts.query_of(group_fact.c.run, group_fact.c.position, *HEAD)
            .join(run_fact, run_fact.c.run == group_fact.c.run)
            .where(group_fact.c.case_group.in_(groups))
            .where(*of_runs, *case_facts.in_time(selection, group_fact))
            .order_by(*(column.desc() for column in order))
            .order_by(group_fact.c.definition.desc(), group_fact.c.figures_definition.desc())
            .limit(bounded(limit))
        )
        with self._reading() as connection:
            if every_s > 0:
                ranked = case_facts.having_cases(connection, _ranked(every_s, of_runs), selection)
                query = query.where(group_fact.c.run.in_(_first(ranked)))
            rows = connection.execute(query).all()
        by_run = _heads_by_run(rows, 2, self.running_ids)
        newest: dict[tuple[Any, ...], GroupPoint] = {}
        for row in rows:
            place = (by_run[row[0]].created_s or 0.0, row[0], row[1])
            if place not in newest:
                newest[place] = GroupPoint(by_run[row[0]], facts.summary_of(row[2 + len(HEAD) :]))
        return [newest[place] for place in sorted(newest)]

    def run_groups(self, wanted: str, selection: Selection = EVERYTHING) -> list[SuiteSummary]:
        """The suites of one run, in the plan's order."""
        with self._reading() as connection:
            row = lookup.resolve(connection, wanted, RUN)
            return facts.of_run(connection, row.seq, case_facts.of_key(selection, case_group))

    def case_points(
        self,
        key: CaseKey,
        selection: Selection = EVERYTHING,
        limit: int = 5000,
        every_s: float = 0.0,
    ) -> list[CasePoint]:
        """A case over time, the oldest first; of more than `limit` the newest.

        With `every_s`, only the newest run with it of each machine and branch in every so many
        seconds.
        """
        wanted = select(series.c.seq).where(series.c.key == runs.key_digest(key)).scalar_subquery()
        of_runs = case_facts.selecting_of_run(selection)
        query = (
            case_facts.query_of(case_fact.c.run, *HEAD)
            .join(run_fact, run_fact.c.run == case_fact.c.run)
            .where(case_fact.c.series == wanted)
            .where(*of_runs, *case_facts.in_time(selection, case_fact))
            .order_by(case_fact.c.at.desc(), case_fact.c.run.desc(), case_fact.c.definition.desc())
            .limit(bounded(limit))
        )
        asked = {"machine_id": selection.machine_id, "branch": selection.branch}
        asked = {name: value for name, value in asked.items() if value}
        if asked:
            same = select(machine_branch.c.seq).filter_by(**asked)
            query = query.where(case_fact.c.machine_branch.in_(same))
        with self._reading() as connection:
            if every_s > 0:
                mine = connection.scalars(select(wanted)).all()
                ranked = _ranked(every_s, of_runs).where(case_facts.ended_in(mine))
                query = query.where(case_fact.c.run.in_(_first(ranked)))
            rows = connection.execute(query).all()
        by_run = _heads_by_run(rows, 1, self.running_ids)
        newest: dict[int, CasePoint] = {}
        for row in rows:
            if row[0] not in newest:
                made = by_run[row[0]]
                newest[row[0]] = CasePoint(made, case_facts.decoded(made.id, tuple(row)))
        return list(reversed(newest.values()))

    def cases(self, run_id: str, selection: Selection = EVERYTHING) -> tuple[CaseMetrics, ...]:
        """The stored cases of a run, in the plan's order, by the newest definition known here."""
        with self._reading() as connection:
            row = lookup.resolve(connection, run_id, RUN)
            found = case_facts.of_run(connection, row.seq, row.id, selection)
            return tuple(found.values())

    def planned_keys(self, run_id: str) -> tuple[CaseKey, ...]:
        """The cases of a run's plan in its order; a plan never changes."""
        with self._reading() as connection:
            row = lookup.resolve(connection, run_id, RUN)
            return tuple(runs.read_keys(connection, row.seq, row.id))

    def planned_cases(
        self,
        run_id: str,
        selection: Selection = EVERYTHING,
        keys: Callable[[], Sequence[CaseKey]] | None = None,
    ) -> tuple[CaseMetrics, ...]:
        """The same with one entry for every planned case; those that never ran as `not_run`.

        `keys` gives the run's `planned_keys` to whoever has kept them.
        """
        with self._reading() as connection:
            row = lookup.resolve(connection, run_id, RUN)
            found = case_facts.of_run(connection, row.seq, row.id, selection)
            this = self._head(connection, row.seq)
            if this.done >= this.planned:
                return tuple(found.values())
            plan = keys() if keys else runs.read_keys(connection, row.seq, row.id)
        return facts.completed(plan, found, case_facts.matcher(selection))

    def failures(
        self, run_id: str, selection: Selection = EVERYTHING, limit: int = 5000
    ) -> list[FailureSpan]:
        """What fails in a run, in the plan's order, and since when.

        Only runs of the same machine and branch are lined up, by when they were made.
        """
        last_good, first_bad, number = _spans()
        query = (
            case_facts.query_of(case_fact.c.position, last_good, first_bad, number)
            .where(case_fact.c.passes == 0, *case_facts.of_key(selection, series))
            .order_by(case_fact.c.position, case_fact.c.definition)
            .limit(bounded(limit))
        )
        told: dict[int, RunHead] = {}
        with self._reading() as connection:
            this = lookup.resolve(connection, run_id, RUN)
            query = query.where(case_fact.c.run == this.seq)
            rows = {row[0]: tuple(row) for row in connection.execute(query)}.values()
            wanted = {run for row in rows for run in row[1:3] if run is not None}
            for part in in_parts(sorted(wanted)):
                of_part = select(run_fact.c.run, *HEAD).where(run_fact.c.run.in_(part))
                found = connection.execute(of_part).all()
                told |= _heads_by_run(found, 1, partial(self._running, connection))
        return [
            FailureSpan(
                figures=case_facts.decoded(this.id, row),
                first_bad=told.get(row[2]),
                last_good=told.get(row[1]),
                runs_failing=row[3],
            )
            for row in rows
        ]


def _place_of(connection: Connection, run_id: str) -> tuple[float, int]:
    query = select(run_fact.c.at, run_fact.c.run).where(run_fact.c.id == run_id)
    found = connection.execute(query).first()
    if found is None:
        raise UsageError(f"There is no run {run_id[:60]!r}.", "See `torchstone list runs`.")
    return found[0], found[1]


def stretch_start(moment_s: float, every_s: float) -> float:
    """When the stretch of so many seconds begins that a moment lies in; weeks begin on Mondays."""
    return math.floor((moment_s + _MONDAY_S) / every_s) * every_s - _MONDAY_S


class _Whole(FunctionElement[int]):
    """The whole part of a number that is not negative."""

    type = BigInteger()
    inherit_cache = True


@compiles(_Whole)
def _cut(element: _Whole, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS BIGINT)"


@compiles(_Whole, "postgresql")  # where a cast rounds
def _floor(element: _Whole, compiler: SQLCompiler, **options: Any) -> str:
    return f"FLOOR({compiler.process(element.clauses, **options)})"


def _ranked(every_s: float, of_runs: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """Runs with their `place`, from the newest, among those of their machine and branch in each
    stretch of so many seconds."""
    stretch = _Whole((run_fact.c.at + _MONDAY_S) / every_s)
    place = func.row_number().over(
        partition_by=(run_fact.c.machine_branch, stretch),
        order_by=(run_fact.c.at.desc(), run_fact.c.run.desc()),
    )
    return select(run_fact.c.run, place.label("place")).where(*of_runs)


def _first(ranked: Select[Any]) -> Select[Any]:
    """The first of each stretch, of those that are left."""
    found = ranked.subquery()
    return select(found.c.run).where(found.c.place == 1)


def _heads_by_run(
    rows: Sequence[Any], at: int, running_ids: Callable[[], frozenset[str]]
) -> dict[int, RunHead]:
    """One head for each run, by its row, which is the first column; the head begins at `at`."""
    first = {row[0]: row for row in rows}
    found = heads_of((row[at:] for row in first.values()), running_ids)
    return dict(zip(first, found, strict=True))


@cache  # an alias of a table with forty columns takes as long to make as to ask
def _spans() -> tuple[ScalarSelect[Any], ScalarSelect[Any], ScalarSelect[Any]]:
    """Of a failing row: the last run before in which it passed, the first failing one after that,
    and how many there are since. Each is a seek in the index of the series' history."""
    now, good, bad = case_fact, case_fact.alias("good"), case_fact.alias("bad")

    def passing(column: ColumnElement[Any]) -> ScalarSelect[Any]:
        found = select(column).where(
            good.c.series == now.c.series, good.c.machine_branch == now.c.machine_branch
        )
        found = found.where(good.c.passes == 1, good.c.at < now.c.at).order_by(good.c.at.desc())
        return found.limit(1).correlate(now).scalar_subquery()

    since = func.coalesce(passing(good.c.at), literal(_BEFORE_ALL, Float))
    failing = (
        *(
            bad.c.series == now.c.series,
            bad.c.machine_branch == now.c.machine_branch,
            bad.c.passes == 0,
        ),
        *(bad.c.at <= now.c.at, bad.c.at > since),
    )
    first = select(bad.c.run).where(*failing).order_by(bad.c.at).limit(1).correlate(now)
    # By time, which is in the index and the same for all rows of a run.
    number = select(func.count(bad.c.at.distinct())).where(*failing).correlate(now)
    return passing(good.c.run), first.scalar_subquery(), number.scalar_subquery()


def bounded(limit: int) -> int:
    """A limit that can be answered."""
    return min(checked_limit(limit), MOST)


# The stored figures of cases as series: one query for all of them.


class CaseSeries(NamedTuple):
    """All rows by series, lane and time, and what the numbers stand for."""

    rows: list[CaseRow]
    keys: dict[int, CaseKey]
    lanes: dict[int, tuple[str, str]]
    """Machine and branch."""
    runs: dict[int, SeriesRun]


class SeriesPart(Base):
    """Questions over all cases and all runs at once."""

    def case_series(self, selection: Selection, metrics: Sequence[str]) -> CaseSeries:
        """The metrics of every stored case over time, by the newest definition of each series."""
        columns = [case_fact.c[name] for name in metrics]
        asked = case_facts.of_key(selection, series)
        of_runs = case_facts.selecting_of_run(selection)
        head = ("series", "machine_branch", "run", "passes", "definition")
        query = (
            select(*(case_fact.c[name] for name in head), *columns)
            .join(series, series.c.seq == case_fact.c.series)
            .join(run_fact, run_fact.c.run == case_fact.c.run)
            .where(*asked, *of_runs, case_fact.c.definition.between(1, METRICS_DEFINITION))
            .order_by(case_fact.c.series, case_fact.c.machine_branch, case_fact.c.at)
            .order_by(case_fact.c.run, case_fact.c.definition)
        )
        names = ("run", "id", "at", "revision", "torch", "machine", "branch")
        with self._reading() as connection:
            rows = connection.execute(query).all()
            keys = connection.execute(
                select(series.c.seq, *(series.c[name] for name in case_facts.KEY)).where(*asked)
            )
            lanes = connection.execute(select(machine_branch)).all()
            runs = connection.execute(select(*(run_fact.c[name] for name in names))).all()
            known = {row[0]: CaseKey(*row[1:]) for row in keys}
        newest: dict[int, int] = {}
        for row in rows:
            newest[row[0]] = max(newest.get(row[0], 0), row[4])
        found = [
            CaseRow(row[0], row[1], row[2], row[3], tuple(row[5:]))
            for row in rows
            if row[4] == newest[row[0]]
        ]
        return CaseSeries(
            found,
            known,
            {row.seq: (row.machine_id, row.branch) for row in lanes},
            {row[0]: SeriesRun(*row[1:]) for row in runs},
        )
