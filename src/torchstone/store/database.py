"""The store: results and runs in one database, with what the other modules add to it."""

from __future__ import annotations

import builtins
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType

from sqlalchemy import Connection, func, select

from torchstone.records import CaseMetrics, Evaluation, Result, Run, RunView, UsageError
from torchstone.store import case_rows, facts, limits, lookup, results, runs, schema
from torchstone.store.case_rows import BulkRun, Derive
from torchstone.store.engine import open_engine
from torchstone.store.history import HistoryPart, SeriesPart
from torchstone.store.imported import ImportedPart
from torchstone.store.limits import RunSummary, Summary, checked_limit, in_parts, now, seconds_of
from torchstone.store.location import locate
from torchstone.store.lookup import RESULT, RUN
from torchstone.store.machines import MachinesPart
from torchstone.store.maintenance import MaintenancePart
from torchstone.store.profiles import LedgersPart, ProfilesPart
from torchstone.store.results import sentence
from torchstone.store.schema import run_fact
from torchstone.store.tokens import TokensPart
from torchstone.store.tunings import TuningsPart


class Store(
    HistoryPart,
    MachinesPart,
    ProfilesPart,
    LedgersPart,
    ImportedPart,
    SeriesPart,
    TuningsPart,
    TokensPart,
    MaintenancePart,
):
    """Results and runs on disk, append-only. Made by `open_store`; a context manager."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Results: they go in whole, and come out as they went in.

    def save(self, result: Result) -> int:
        """Store the result in one transaction; the bytes that its data take.

        The figure is that of the rows' content; SQLite rounds what it takes up to pages.
        """
        encoded = results.encode_result(result)
        with self._writing() as connection:
            lookup.refuse_known(connection, RESULT, result.id)
            return results.insert(connection, result, encoded)[1]

    def load(self, id_or_prefix: str) -> Result:
        """The result of that id, of the only id that begins so, or the newest one (`last`).

        Where its samples were removed meanwhile, its `pruned` says so.
        """
        with self._reading() as connection:
            found = lookup.resolve(connection, id_or_prefix)
            return results.read(connection, found.seq, found.id)

    def find(self, wanted: str, brief_beyond: int | None = None) -> Result | RunView:
        """The result or the run of that id, beginning of an id, or (a run) label.

        `last` is what was stored last; a case's result stands for its run. A run of more cases than
        `brief_beyond` is a `BriefRunView`, which reads from this store until it is closed.
        """
        with self._reading() as connection:
            found = lookup.resolve_any(connection, wanted)
            if found.kind is RUN:
                brief = None
                if brief_beyond is not None and self._planned(connection, found.seq) > brief_beyond:
                    brief = case_rows.brief_view(connection, found, self._whole)
                return brief or case_rows.view(connection, found)
            return results.read(connection, found.seq, found.id)

    def _whole(self, seq: int, run: Run, positions: Sequence[int]) -> builtins.list[CaseMetrics]:
        with self._reading() as connection:
            return case_rows.whole(connection, seq, run, positions)

    def _planned(self, connection: Connection, seq: int) -> int:
        table = schema.run
        return connection.scalar(select(table.c.planned).where(table.c.seq == seq)) or 0

    def add_evaluation(self, result: Result, evaluation: Evaluation, derive: Derive) -> None:
        """Add what rules say of a stored result now; what is derived from it follows."""
        with self._writing() as connection:
            row = lookup.exact(connection, RESULT, result.id)
            if row is None:
                raise UsageError(f"There is no result {result.id}.", "See `torchstone list`.")
            if results.read(connection, row.seq, row.id).pruned:
                raise UsageError(
                    f"The samples of {result.id} were removed, so it cannot be evaluated again.",
                    "What was said of it while it had them stands.",
                )
            schema.revise(connection)
            results.insert_evaluation(connection, row.seq, evaluation)
            results.insert_summary(connection, row.seq, results.read(connection, row.seq, row.id))
            for item in case_rows.due(connection, result=row.seq):
                made = case_rows.derived(connection, item, derive)
                for run in case_rows.put_derived(connection, made):
                    facts.refresh(connection, run, runs.read(connection, run))

    def list(
        self,
        limit: int = 20,
        arm: str | None = None,
        since: datetime | str | None = None,
        label: str | None = None,
    ) -> builtins.list[Summary]:
        """The newest results first (in order of saving), without decoding any samples.

        `arm` keeps those with an arm of that name, `since` those created at or after that time
        (ISO 8601; without a zone, UTC), `label` those of exactly that label.
        """
        table, arms = schema.result, schema.measurement
        names = ("id", "created", "kind", "label", "origin", "bytes")
        query = select(table.c.seq, *(table.c[name] for name in names))
        query = (
            query.where(schema.of_no_run()).order_by(table.c.seq.desc()).limit(checked_limit(limit))
        )
        if arm is not None:
            query = query.where(table.c.seq.in_(select(arms.c.result).where(arms.c.arm == arm)))
        if since is not None:
            query = query.where(table.c.created_s >= _since(since))
        if label is not None:
            query = query.where(table.c.label == label)
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all()
            arms_of, line_of = _details(connection, [row["seq"] for row in rows])
        return [
            Summary(
                **{name: row[name] for name in names},
                arms=tuple(name for name, _ in arms_of[row["seq"]]),
                outcomes=tuple(outcome for _, outcome in arms_of[row["seq"]]),
                headline=line_of.get(row["seq"], ""),
            )
            for row in rows
        ]

    def count(self) -> int:
        """How many results there are."""
        with self._reading() as connection:
            return connection.scalar(select(func.count()).select_from(schema.result)) or 0

    # Runs: the plan goes in first, then case by case.

    def begin_run(self, run: Run) -> None:
        """Store what is planned. The same id and plan again is fine: shards and resumed runs join.

        The same id with another plan is a `UsageError`.
        """
        limits.check_run(run)
        with self._writing() as connection:
            facts.begin(connection, runs.begin(connection, run), run)

    def load_run(self, wanted: str, *, plan: bool = True) -> Run:
        """The run of that id or label, of the only id that begins so, or the newest one (`last`).

        Of several runs with one label it is the newest. Without its `plan` it is there at once.
        """
        with self._reading() as connection:
            found = lookup.resolve(connection, wanted, RUN)
            return runs.read(connection, found.seq, found.id, plan=plan)

    def add_cases(
        self, run_id: str, result: Result | None, cases: Sequence[tuple[int, CaseMetrics]]
    ) -> int:
        """Store a result, if there is one, and the cases it gave, by their place in the plan.

        All in one transaction, and so are the figures of the suites; the bytes that the data take.
        A case that is stored already raises `AlreadyStored`, and then nothing is written. A case
        that was not run is not to be stored: it would never be run.
        """
        self._refuse_reading_only()
        rows = [case_rows.row_of(result, position, one, now()) for position, one in cases]
        encoded = None if result is None else results.encode_result(result)
        with self._reading() as connection:
            found = lookup.exact(connection, RUN, run_id)
            if found is None:
                raise UsageError(f"There is no run {run_id[:60]!r}.", "Begin it before its cases.")
            run = runs.read(connection, found.seq, run_id)
        case_rows.check(run, rows)
        with self._writing() as connection:
            attempt = "" if result is None else result.id
            case_rows.refuse_present(connection, run_id, found.seq, rows, attempt)
            stored, size = None, 0
            if result is not None and encoded is not None:
                lookup.refuse_known(connection, RESULT, result.id)
                stored, size = results.insert(connection, result, encoded)
            result_of = {row.position: stored for row in rows}
            size += case_rows.insert_cases(connection, found.seq, run, rows, result_of)
            facts.refresh(connection, found.seq, run)
        return size

    def done_positions(self, wanted: str) -> set[int]:
        """The places in the run's plan whose cases are stored."""
        with self._reading() as connection:
            return runs.positions(connection, lookup.resolve(connection, wanted, RUN).seq)

    def run_view(self, wanted: str) -> RunView:
        """The run with the figures of its stored cases; no samples are read.

        Where `wanted` is the label of several runs, a note of the run says so.
        """
        with self._reading() as connection:
            return case_rows.view(connection, lookup.resolve(connection, wanted, RUN))

    def list_runs(self, limit: int = 20) -> builtins.list[RunSummary]:
        """The newest runs first (in order of storing), without decoding anything."""
        names = ("id", "created", "label", "origin", "planned", "suites", "outcomes")
        query = select(*(run_fact.c[name] for name in names)).order_by(run_fact.c.run.desc())
        with self._reading() as connection:
            rows = connection.execute(query.limit(checked_limit(limit))).all()
        found = []
        for row in rows:
            outcomes, suites = json.loads(row.outcomes), tuple(json.loads(row.suites))
            plain = (row.id, row.created, row.label, row.origin, row.planned)
            found.append(RunSummary(*plain, sum(outcomes.values()), outcomes, suites))
        return found

    def result_ids(self, run: str) -> builtins.list[str]:
        """The results that a run's cases came from, in order of saving."""
        cases, table = schema.run_case, schema.result
        with self._reading() as connection:
            row = lookup.resolve(connection, run, RUN)
            query = select(table.c.id).join(cases).where(cases.c.run == row.seq)
            return builtins.list(dict.fromkeys(connection.scalars(query.order_by(cases.c.seq))))

    def import_run(self, run: Run, cases: Sequence[CaseMetrics], origin: str) -> Run:
        """Store a run from elsewhere with its figures, marked with its origin; one transaction."""
        limits.check_origin(origin)
        run = replace(run, origin=origin)
        limits.check_run(run)
        place = {planned.key: position for position, planned in enumerate(run.plan)}
        made = BulkRun(run, tuple((place.get(case.key, -1), case) for case in cases))
        with self._writing() as connection:
            lookup.refuse_known(connection, RUN, run.id)
            case_rows.insert_bulk(connection, made, created=now())
        return run

    def add_runs_in_bulk(self, made: Iterable[BulkRun]) -> int:
        """Store whole runs that are not there yet, one transaction each; how many.

        For a history that is made or moved rather than measured: each run comes with all of its
        cases, so that it is summed up once and not after every case.
        """
        self._refuse_reading_only()
        added = 0
        for one in made:
            limits.check_run(one.run)
            with self._writing() as connection:
                lookup.refuse_known(connection, RUN, one.run.id)
                case_rows.insert_bulk(connection, one)
            added += 1
        return added

    def merge_run(self, other: Store, wanted: str) -> int:
        """Copy the cases of a run, with their results, that are missing here; how many.

        This joins shards that were measured into several databases. Doing it again adds nothing.
        A run of the same id with another plan is a `UsageError`.
        """
        with other._reading() as source:
            found = lookup.resolve(source, wanted, RUN)
            run = runs.read(source, found.seq, found.id)
            groups = case_rows.by_result(source, found.seq, run)
        origin = case_rows.origin_of(other.location.name)
        run = case_rows.marked(run, origin)
        self.begin_run(run)
        added = 0
        with self._reading() as connection:
            seq = lookup.resolve(connection, run.id, RUN).seq
            done = runs.positions(connection, seq)
        try:
            for row, cases in groups:
                if all(case.position in done for case in cases):
                    continue
                given = None
                if row is not None:
                    with other._reading() as source:
                        result = case_rows.marked(results.read(source, row.seq, row.id), origin)
                    given = result, results.encode_result(result)
                with self._writing() as connection:
                    added += case_rows.put_missing(connection, seq, run, cases, given)
        finally:  # once, because summing up a run takes longer than adding a case to it
            with self._writing() as connection:
                facts.refresh(connection, seq, run)
        return added


def _details(
    connection: Connection, shown: list[int]
) -> tuple[dict[int, list[tuple[str, str]]], dict[int, str]]:
    """Arms with their outcomes, and the headline, of each result shown."""
    arms, sums = schema.measurement, schema.summary
    arms_of: dict[int, list[tuple[str, str]]] = defaultdict(list)
    line_of: dict[int, str] = {}
    named = select(arms.c.result, arms.c.arm, arms.c.outcome).order_by(arms.c.position)
    told = select(sums.c.result, sums.c.document).order_by(sums.c.definition)
    for part in in_parts(shown):
        for seq, name, outcome in connection.execute(named.where(arms.c.result.in_(part))):
            arms_of[seq].append((name, outcome))
        for seq, document in connection.execute(told.where(sums.c.result.in_(part))):
            line_of[seq] = sentence(document)  # the newest definition is read last and stays
    return arms_of, line_of


def _since(since: datetime | str) -> float:
    seconds = seconds_of(since)
    if seconds is None:
        raise UsageError(
            f"{str(since)[:40]!r} is not a date.", "Write it as 2026-01-31 or 2026-01-31T12:00."
        )
    return seconds


def open_database(url: str | None, *, create: bool, read_only: bool) -> Store:
    """The store at `url`; see `torchstone.store.open_store`."""
    location = locate(url)
    engine = open_engine(location, create=create, read_only=read_only)
    return Store(engine, location, read_only=read_only)
