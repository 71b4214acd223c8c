"""The store: all its parts on one database."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import func, select

from torchstone.records import (
    ArmSpec,
    Calibration,
    CaseMetrics,
    Conditions,
    DoctorReport,
    Evaluation,
    Ledger,
    Profile,
    Result,
    Run,
    RunView,
    UsageError,
)
from torchstone.store import (
    case_facts,
    case_rows,
    facts,
    ledgers,
    limits,
    lookup,
    machines,
    merge,
    metrics,
    profiles,
    results,
    runs,
    schema,
)
from torchstone.store.case_rows import BulkRun
from torchstone.store.engine import Base, open_engine
from torchstone.store.history import HistoryPart
from torchstone.store.ledgers import LedgerSummary
from torchstone.store.limits import now
from torchstone.store.location import locate
from torchstone.store.machines import FloorSummary, MachineSummary, NoisePoint
from torchstone.store.maintenance import MaintenancePart
from torchstone.store.metrics import Derive
from torchstone.store.profiles import ProfileSummary
from torchstone.store.summary import RunSummary, Summary

# The store's part on results: they go in whole, and come out as they went in.


class ResultsPart(Base):
    """Results, with every sample, and what rules said of them later."""

    def save(self, result: Result) -> int:
        """Store the result in one transaction; the bytes that its data take.

        The figure is that of the rows' content; SQLite rounds what it takes up to pages.
        """
        encoded = results.encode_result(result)
        with self._writing() as connection:
            results.refuse_known(connection, result.id)
            return results.insert(connection, result, encoded)[1]

    def load(self, id_or_prefix: str) -> Result:
        """The result of that id, of the only id that begins so, or the newest one (`last`).

        Where its samples were removed meanwhile, its `pruned` says so.
        """
        with self._reading() as connection:
            return results.read(connection, *lookup.resolve(connection, id_or_prefix))

    def find(self, wanted: str) -> Result | RunView:
        """The result or the run of that id, beginning of an id, or (a run) label.

        `last` is what was stored last; a case's result stands for its run.
        """
        with self._reading() as connection:
            found = lookup.resolve_any(connection, wanted)
            if isinstance(found, lookup.RunRow):
                return metrics.view(connection, found)
            return results.read(connection, *found)

    def add_evaluation(self, result: Result, evaluation: Evaluation, derive: Derive) -> None:
        """Add what rules say of a stored result now; what is derived from it follows."""
        with self._writing() as connection:
            seq = results.find(connection, result.id)
            if seq is None:
                raise UsageError(f"There is no result {result.id}.", "See `torchstone list`.")
            if results.read(connection, seq, result.id).pruned:
                raise UsageError(
                    f"The samples of {result.id} were removed, so it cannot be evaluated again.",
                    "What was said of it while it had them stands.",
                )
            schema.revise(connection)
            results.insert_evaluation(connection, seq, evaluation)
            evaluated = results.read(connection, seq, result.id)
            results.insert_summary(connection, seq, evaluated)
            for item in metrics.due_of_result(connection, seq):
                for case, new in metrics.derived(connection, item, derive):
                    kept = replace(new, command=metrics.command_of(connection, case))
                    place = case_facts.place_of(connection, case.run)
                    case_facts.put(connection, place, [(case.position, kept)])
                for run in {case.run for case in item.cases}:
                    run_id = runs.id_of(connection, run)
                    facts.refresh(connection, run, runs.read(connection, run, run_id))

    def list(
        self, limit: int = 20, arm: str | None = None, since: datetime | str | None = None
    ) -> builtins.list[Summary]:
        """The newest results first (in order of saving), without decoding any samples.

        `arm` keeps those with an arm of that name, `since` those created at or after that time
        (ISO 8601; without a zone, UTC).
        """
        with self._reading() as connection:
            return lookup.list_results(connection, limit, arm, since)

    def count(self) -> int:
        """How many results there are."""
        with self._reading() as connection:
            found = connection.execute(select(func.count()).select_from(schema.result))
            return int(found.scalar_one())


# The store's part on runs: the plan goes in first, then case by case.


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
            seq = runs.find(connection, run_id)
            run = runs.read(connection, seq, run_id)
        case_rows.check(run, rows)
        with self._writing() as connection:
            case_rows.refuse_present(connection, run_id, seq, rows)
            result_seq, size = None, 0
            if result is not None and encoded is not None:
                results.refuse_known(connection, result.id)
                result_seq, size = results.insert(connection, result, encoded)
            size += case_rows.insert_cases(connection, seq, run, result_seq, rows)
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
            return metrics.view(connection, lookup.resolve_run(connection, wanted))

    def list_runs(self, limit: int = 20) -> list[RunSummary]:
        """The newest runs first (in order of storing), without decoding anything."""
        with self._reading() as connection:
            return lookup.list_runs(connection, limit)

    def result_ids(self, run: str) -> list[str]:
        """The results that a run's cases came from, in order of saving."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, run)
            return [item.result.id for item in metrics.due(connection, row.seq)]

    def import_run(self, run: Run, cases: Sequence[CaseMetrics], origin: str) -> Run:
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
            case_rows.insert_cases(connection, seq, run, None, rows)
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
                case_rows.insert_bulk(connection, one)
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
            for result_cases in shelves:
                if all(row.position in done for row in result_cases.rows):
                    continue
                with other._reading() as source:
                    part = merge.part(source, result_cases, origin)
                with self._writing() as connection:
                    added += merge.put(connection, seq, run, part)
        finally:  # once, because summing up a run takes longer than adding a case to it
            with self._writing() as connection:
                facts.refresh(connection, seq, run)
        return added


# The store's part on profiles.


class ProfilesPart(Base):
    """Profiles: a row each, and a file beside the database."""

    def save_profile(self, profile: Profile, result: str = "") -> int:
        """Keep a profile, by itself or beside a result; the bytes that its file takes."""
        self._refuse_reading_only()
        packed = profiles.pack(profile)
        digest = profiles.put(profiles.folder_of(self.path), packed)
        with self._writing() as connection:
            profiles.insert(connection, profile, digest, len(packed), result)
        return len(packed)

    def profile_id(self, wanted: str) -> str:
        """The whole id of the profile that `load_profile` would give."""
        with self._reading() as connection:
            return lookup.resolve_profile(connection, wanted).id

    def load_profile(self, wanted: str) -> Profile:
        """The profile of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            return profiles.load(connection, profiles.folder_of(self.path), wanted)

    def list_profiles(self, limit: int = 20, result: str | None = None) -> list[ProfileSummary]:
        """The newest first; those of one result where it is given."""
        with self._reading() as connection:
            return profiles.summaries(connection, limit, result)

    def profiles_of(
        self, result: str, arms: Sequence[tuple[ArmSpec, str]], limit: int = 20
    ) -> list[ProfileSummary]:
        """Profiles of a result, and of the same work as one of these arms, each with its machine;
        the newest first."""
        with self._reading() as connection:
            return profiles.of_arms(connection, limit, result, arms)


# The store's part on ledgers.


class LedgersPart(Base):
    """Ledgers: a row each."""

    def save_ledger(self, ledger: Ledger) -> int:
        """Keep a ledger; the bytes that it takes."""
        self._refuse_reading_only()
        with self._writing() as connection:
            return ledgers.insert(connection, ledger)

    def load_ledger(self, wanted: str) -> Ledger:
        """The ledger of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            return ledgers.load(connection, wanted)

    def ledger_of(self, arm: ArmSpec, machine_id: str) -> Ledger | None:
        """The newest ledger of the same work on the same machine."""
        with self._reading() as connection:
            return ledgers.newest_of(connection, arm, machine_id)

    def list_ledgers(self, limit: int = 20) -> list[LedgerSummary]:
        """The newest first."""
        with self._reading() as connection:
            return ledgers.summaries(connection, limit)


# The store's part on machines: what they can do, and how noisy they were.


class MachinesPart(Base):
    """Calibrations, the doctor's reports, A/A floors."""

    def remember_aa_floor(
        self, machine_id: str, conditions: Conditions, value: float, evidence: Any
    ) -> None:
        """Add what two identical arms differed by (relative); `evidence` is JSON-ready data."""
        with self._writing() as connection:
            machines.remember(connection, machine_id, conditions, value, evidence)
            schema.revise(connection)

    def aa_floor(self, machine_id: str, conditions: Conditions) -> float | None:
        """The difference that identical arms seldom exceed here; None if never observed."""
        with self._reading() as connection:
            return machines.floor(connection, machine_id, conditions)

    def aa_floors(self, machine_id: str) -> list[FloorSummary]:
        """Every A/A floor of a machine, by threads, allocator and step length."""
        with self._reading() as connection:
            return machines.of_machine(connection, machine_id)

    def save_calibration(self, calibration: Calibration) -> None:
        """Add a calibration."""
        with self._writing() as connection:
            machines.save_calibration(connection, calibration)

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest one of that device of that machine; None if there is none."""
        with self._reading() as connection:
            return machines.newest_calibration(connection, machine_id, device)

    def calibrations(self, machine_id: str | None = None, limit: int = 20) -> list[Calibration]:
        """The newest first."""
        with self._reading() as connection:
            return machines.calibrations(connection, machine_id, limit)

    def save_doctor(self, report: DoctorReport) -> None:
        """Add a report of the doctor's."""
        with self._writing() as connection:
            machines.save_doctor(connection, report)

    def doctor_reports(self, machine_id: str | None = None, limit: int = 20) -> list[DoctorReport]:
        """The newest first."""
        with self._reading() as connection:
            return machines.doctor_reports(connection, machine_id, limit)

    def machines(self, limit: int = 200) -> list[MachineSummary]:
        """Every machine that a run, a calibration or the doctor speaks of; last seen first."""
        with self._reading() as connection:
            return machines.summaries(connection, limit)

    def noise_history(self, machine_id: str, limit: int = 200) -> list[NoisePoint]:
        """What the doctor found the machine to be able to show, the oldest first."""
        with self._reading() as connection:
            return machines.noise_history(connection, machine_id, limit)


class Store(
    ResultsPart, RunsPart, HistoryPart, MachinesPart, ProfilesPart, LedgersPart, MaintenancePart
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


def open_sqlite(url: str | None, *, create: bool, read_only: bool) -> Store:
    """The store at `url`; see `torchstone.store.open_store`."""
    location = locate(url)
    engine = open_engine(location, create=create, read_only=read_only)
    return Store(engine, location.path, read_only=read_only)
