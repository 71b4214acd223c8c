"""The store itself: results and runs go in whole, and come out as they went in."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from torchstone.records import (
    Calibration,
    CaseFigures,
    DoctorReport,
    Judgement,
    Profile,
    RecordError,
    Result,
    Run,
    RunView,
    UsageError,
    from_data,
)
from torchstone.store import (
    artefacts,
    case_rows,
    figures,
    floors,
    judgements,
    limits,
    listing,
    lookup,
    machines,
    merge,
    profiles,
    results,
    runs,
    schema,
)
from torchstone.store.dates import now
from torchstone.store.engine import open_engine, writing
from torchstone.store.errors import CorruptResultError, translated
from torchstone.store.figures import Derive
from torchstone.store.location import locate
from torchstone.store.profiles import ProfileSummary
from torchstone.store.summary import RunSummary, Summary


class Store:
    """Results and runs on disk, append-only. Made by `open_store`; a context manager."""

    def __init__(self, engine: Engine, path: Path, *, read_only: bool) -> None:
        self._engine = engine
        self._read_only = read_only
        self.path = path

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back. The last program to close it also folds its log into it."""
        self._engine.dispose()

    def save(self, result: Result) -> int:
        """Store the result in one transaction; the bytes that its data take.

        The figure is that of the rows' content; SQLite rounds what it takes up to pages.
        """
        parcel = results.parcel_of(result)
        with self._writing() as connection:
            results.refuse_known(connection, result.id)
            return results.insert(connection, result, parcel)[1]

    def load(self, id_or_prefix: str) -> Result:
        """The result of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            return results.read(connection, *lookup.resolve(connection, id_or_prefix))

    def find(self, wanted: str) -> Result | RunView:
        """The result or the run of that id, beginning of an id, or (a run) label.

        `last` is what was stored last; a case's result stands for its run.
        """
        with self._reading() as connection:
            found = lookup.resolve_any(connection, wanted)
            if isinstance(found, lookup.RunRow):
                return figures.view(connection, found)
            return results.read(connection, *found)

    def import_document(self, data: dict[str, Any], origin: str) -> Result:
        """Store a result from elsewhere, marked with its origin so that it is not run unasked."""
        limits.check_origin(origin)
        if not isinstance(data, dict):
            raise UsageError("The document is not a JSON object.", "Give an exported result.")
        limits.check_bounds(data)
        limits.check_schema(data)
        try:
            result = from_data(Result, data)
        except RecordError as error:
            raise UsageError(
                f"The document is not a usable result: {error}.",
                "Give a document that `torchstone export` made.",
            ) from None
        result = replace(result, origin=origin)
        limits.check_sense(result)
        self.save(result)
        return result

    def rebuild_summaries(self) -> int:
        """Derive all summaries anew from the results; how many. Damaged results keep theirs."""
        rebuilt = 0
        with self._writing() as connection:
            rows = connection.execute(select(schema.result.c.seq, schema.result.c.id)).all()
            for seq, result_id in rows:
                try:
                    result = results.read(connection, seq, result_id)
                except CorruptResultError:
                    continue
                connection.execute(schema.summary.delete().where(schema.summary.c.result == seq))
                results.insert_summary(connection, seq, result)
                rebuilt += 1
        return rebuilt

    def begin_run(self, run: Run) -> None:
        """Store what is planned. The same id and plan again is fine: shards and resumed runs join.

        The same id with another plan is a `UsageError`.
        """
        limits.check_run(run)
        with self._writing() as connection:
            runs.begin(connection, run)

    def load_run(self, wanted: str) -> Run:
        """The run of that id or label, of the only id that begins so, or the newest one (`last`).

        Of several runs with one label it is the newest.
        """
        with self._reading() as connection:
            found = lookup.resolve_run(connection, wanted)
            return runs.read(connection, found.seq, found.id)

    def add_cases(
        self, run_id: str, result: Result | None, cases: Sequence[tuple[int, CaseFigures]]
    ) -> int:
        """Store a result, if there is one, and the cases it gave, by their place in the plan.

        All in one transaction; the bytes that the data take. A case that is stored already raises
        `AlreadyStored`, and then nothing is written. A case that was not run is not to be stored:
        it would never be run.
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
            return size + case_rows.insert(connection, seq, run.plan, result_seq, rows)

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

    def list_runs(self, limit: int = 20) -> builtins.list[RunSummary]:
        """The newest runs first (in order of storing), without decoding anything."""
        with self._reading() as connection:
            return listing.list_runs(connection, limit)

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
            case_rows.insert(connection, runs.begin(connection, run), run.plan, None, rows)
        return run

    def merge_run(self, other: Store, wanted: str) -> int:
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
        with self._reading() as connection:
            done = runs.positions(connection, seq)
        added = 0
        for shelf in shelves:
            if all(row.position in done for row in shelf.rows):
                continue
            result = None
            if shelf.result is not None:
                with other._reading() as source:
                    result = merge.marked(results.read(source, *shelf.result), origin)
            parcel = None if result is None else results.parcel_of(result)
            with self._writing() as connection:
                added += merge.put(connection, seq, run, result, parcel, shelf.rows)
        return added

    def rebuild_figures(self, derive: Derive, wanted: str | None = None) -> int:
        """Derive the figures of all cases (or of one run's) anew from their results; how many.

        For a new definition. Cases without a result, or with a damaged one, keep theirs. A kill
        on the way leaves some cases with the old figures; doing it again mends that.
        """
        self._refuse_reading_only()
        with self._reading() as connection:
            found = None if wanted is None else lookup.resolve_run(connection, wanted).seq
            due = figures.due(connection, found)
        rebuilt = 0
        for item in due:
            with self._reading() as connection:
                derived = figures.derived(connection, item, derive)
            with self._writing() as connection:  # not held while the figures are worked out
                for case, new in derived:
                    figures.insert(connection, case, new)
            rebuilt += len(derived)
        return rebuilt

    def remember_aa_floor(
        self, machine_id: str, threads: int, step_class: str, value: float, evidence: Any
    ) -> None:
        """Add what two identical arms differed by (relative); `evidence` is JSON-ready data."""
        with self._writing() as connection:
            floors.remember(connection, machine_id, threads, step_class, value, evidence)

    def aa_floor(self, machine_id: str, threads: int, step_class: str) -> float | None:
        """The difference that identical arms seldom exceed here; None if never observed."""
        with self._reading() as connection:
            return floors.floor(connection, machine_id, threads, step_class)

    def save_calibration(self, calibration: Calibration) -> None:
        """Add a calibration."""
        with self._writing() as connection:
            machines.save_calibration(connection, calibration)

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest one of that device of that machine; None if there is none."""
        with self._reading() as connection:
            return machines.newest_calibration(connection, machine_id, device)

    def calibrations(
        self, machine_id: str | None = None, limit: int = 20
    ) -> builtins.list[Calibration]:
        """The newest first."""
        with self._reading() as connection:
            return machines.calibrations(connection, machine_id, limit)

    def save_doctor(self, report: DoctorReport) -> None:
        """Add a report of the doctor's."""
        with self._writing() as connection:
            machines.save_doctor(connection, report)

    def doctor_reports(
        self, machine_id: str | None = None, limit: int = 20
    ) -> builtins.list[DoctorReport]:
        """The newest first."""
        with self._reading() as connection:
            return machines.doctor_reports(connection, machine_id, limit)

    def add_judgement(self, result: Result, judgement: Judgement, derive: Derive) -> None:
        """Add what rules say of a stored result now; what is derived from it follows."""
        with self._writing() as connection:
            seq = results.find(connection, result.id)
            if seq is None:
                raise UsageError(f"There is no result {result.id}.", "See `torchstone list`.")
            judgements.insert(connection, seq, judgement)
            judged = results.read(connection, seq, result.id)
            results.insert_summary(connection, seq, judged)
            for item in figures.due_of_result(connection, seq):
                for case, new in figures.derived(connection, item, derive):
                    kept = figures.command_of(connection, case)
                    figures.insert(connection, case, replace(new, command=kept))

    def result_ids(self, run: str) -> builtins.list[str]:
        """The results that a run's cases came from, in order of saving."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, run)
            return [item.result.id for item in figures.due(connection, row.seq)]

    def save_profile(self, profile: Profile, result: str = "") -> int:
        """Keep a profile, by itself or beside a result; the bytes that its file takes."""
        self._refuse_reading_only()
        packed = profiles.pack(profile)
        digest = artefacts.put(artefacts.folder_of(self.path), packed)
        with self._writing() as connection:
            profiles.insert(connection, profile, digest, len(packed), result)
        return len(packed)

    def load_profile(self, wanted: str) -> Profile:
        """The profile of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            return profiles.load(connection, artefacts.folder_of(self.path), wanted)

    def list_profiles(
        self, limit: int = 20, result: str | None = None
    ) -> builtins.list[ProfileSummary]:
        """The newest first; those of one result where it is given."""
        with self._reading() as connection:
            return profiles.summaries(connection, limit, result)

    def list(
        self, limit: int = 20, arm: str | None = None, since: datetime | str | None = None
    ) -> builtins.list[Summary]:
        """The newest results first (in order of saving), without decoding any samples.

        `arm` keeps those with an arm of that name, `since` those created at or after that time
        (ISO 8601; without a zone, UTC).
        """
        with self._reading() as connection:
            return listing.list_results(connection, limit, arm, since)

    def count(self) -> int:
        """How many results there are."""
        with self._reading() as connection:
            found = connection.execute(select(func.count()).select_from(schema.result))
            return int(found.scalar_one())

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with translated(self.path), self._engine.connect() as connection:
            yield connection

    def _refuse_reading_only(self) -> None:
        if self._read_only:
            raise UsageError(
                f"The database {self.path} was opened for reading only.",
                "Open it for writing, or name another database with --db.",
            )

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._refuse_reading_only()
        with translated(self.path), writing(self._engine) as connection:
            yield connection


def open_sqlite(url: str | None, *, create: bool, read_only: bool) -> Store:
    """The store at `url`; see `torchstone.store.open_store`."""
    location = locate(url)
    engine = open_engine(location, create=create, read_only=read_only)
    return Store(engine, location.path, read_only=read_only)
