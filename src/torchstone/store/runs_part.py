"""The store's part on runs: the plan goes in first, then case by case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchstone.records import CaseFigures, Result, Run, RunView
from torchstone.store import (
    bulk,
    case_rows,
    facts,
    figures,
    limits,
    listing,
    lookup,
    merge,
    results,
    runs,
)
from torchstone.store.base import Base
from torchstone.store.bulk import BulkRun
from torchstone.store.dates import now
from torchstone.store.summary import RunSummary


class RunsPart(Base):
    """Runs and their cases."""

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
            found = lookup.resolve_run(connection, wanted)
            return runs.read(connection, found.seq, found.id, plan=plan)

    def add_cases(
        self, run_id: str, result: Result | None, cases: Sequence[tuple[int, CaseFigures]]
    ) -> int:
        """Store a result, if there is one, and the cases it gave, by their place in the plan.

        All in one transaction, and so are the figures of the suites; the bytes that the data take.
        A case that is stored already raises `AlreadyStored`, and then nothing is written. A case
        that was not run is not to be stored: it would never be run.
        """
        self._refuse_reading_only()
        rows = [case_rows.row_of(result, position, one, now()) for position, one in cases]
        parcel = None if result is None else results.parcel_of(result)
        with self._reading() as connection:
            seq = runs.find(connection, run_id)
            run = runs.read(connection, seq, run_id)
        case_rows.check(run, rows)
        with self._writing() as connection:
            case_rows.refuse_present(connection, run_id, seq, rows)
            result_seq, size = None, 0
            if result is not None and parcel is not None:
                results.refuse_known(connection, result.id)
                result_seq, size = results.insert(connection, result, parcel)
            size += case_rows.insert(connection, seq, run, result_seq, rows)
            facts.refresh(connection, seq, run)
        return size

    def done_positions(self, wanted: str) -> set[int]:
        """The places in the run's plan whose cases are stored."""
        with self._reading() as connection:
            return runs.positions(connection, lookup.resolve_run(connection, wanted).seq)

    def run_view(self, wanted: str) -> RunView:
        """The run with the figures of its stored cases; no samples are read.

        Where `wanted` is the label of several runs, a note of the run says so.
        """
        with self._reading() as connection:
            return figures.view(connection, lookup.resolve_run(connection, wanted))

    def list_runs(self, limit: int = 20) -> list[RunSummary]:
        """The newest runs first (in order of storing), without decoding anything."""
        with self._reading() as connection:
            return listing.list_runs(connection, limit)

    def result_ids(self, run: str) -> list[str]:
        """The results that a run's cases came from, in order of saving."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, run)
            return [item.result.id for item in figures.due(connection, row.seq)]

    def import_run(self, run: Run, cases: Sequence[CaseFigures], origin: str) -> Run:
        """Store a run from elsewhere with its figures, marked with its origin; one transaction."""
        limits.check_origin(origin)
        run = replace(run, origin=origin)
        limits.check_run(run)
        place = {planned.key: position for position, planned in enumerate(run.plan)}
        rows = [case_rows.row_of(None, place.get(case.key, -1), case, now()) for case in cases]
        case_rows.check(run, rows)
        with self._writing() as connection:
            runs.refuse_known(connection, run.id)
            seq = runs.begin(connection, run)
            facts.begin(connection, seq, run)
            case_rows.insert(connection, seq, run, None, rows)
            facts.refresh(connection, seq, run)
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
                runs.refuse_known(connection, one.run.id)
                bulk.insert(connection, one)
            added += 1
        return added

    def merge_run(self, other: RunsPart, wanted: str) -> int:
        """Copy the cases of a run, with their results, that are missing here; how many.

        This joins shards that were measured into several databases. Doing it again adds nothing.
        A run of the same id with another plan is a `UsageError`.
        """
        with other._reading() as source:
            found = lookup.resolve_run(source, wanted)
            run = runs.read(source, found.seq, found.id)
            shelves = merge.shelves(source, found.seq, run)
        origin = merge.origin_of(other.path)
        run = merge.marked(run, origin)
        limits.check_run(run)
        with self._writing() as connection:
            seq = runs.begin(connection, run)
            facts.begin(connection, seq, run)
        with self._reading() as connection:
            done = runs.positions(connection, seq)
        added = 0
        try:
            for shelf in shelves:
                if all(row.position in done for row in shelf.rows):
                    continue
                with other._reading() as source:
                    part = merge.part(source, shelf, origin)
                with self._writing() as connection:
                    added += merge.put(connection, seq, run, part)
        finally:  # once, because summing up a run takes longer than adding a case to it
            with self._writing() as connection:
                facts.refresh(connection, seq, run)
        return added
