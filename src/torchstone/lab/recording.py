"""Keeping results: the database is looked at before measuring, and written only afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from torchstone.records import (
    Calibration,
    CaseMetrics,
    Conditions,
    DoctorReport,
    Estimate,
    Ledger,
    Profile,
    Result,
    TorchstoneError,
    to_data,
)
from torchstone.store import AlreadyStored, StoreBusyError, check_store, open_store

INTERRUPTED = "interrupted before it was sure to be stored"


@dataclass(frozen=True)
class StorageWarning:
    """Something that could not be kept or looked up, in a sentence, and what to do."""

    message: str
    remedy: str = ""


class Recorder:
    """Where a result will go: a bad database is found before time is spent on measuring."""

    def __init__(self, url: str | None = None, *, saves: bool = True) -> None:
        self.url = url
        self.saves = saves
        """Where False, what is known of the machine is looked up and nothing is written: whether a
        result is kept must not change what it says."""
        self.bytes_kept = 0
        self.ids_kept: list[str] = []
        self.storage_warnings: list[StorageWarning] = []

    @contextmanager
    def collect_errors(self, what: str) -> Iterator[None]:
        """Note a failure instead of raising it: no measurement may be lost to the database.

        `what` is how the sentence begins: "The result was not kept". To be told at the end.
        """
        try:
            yield
        except (TorchstoneError, OSError) as error:
            if not self.saves:  # nobody asked for this database
                return
            text, remedy = f"{error}.", ""
            if isinstance(error, TorchstoneError):
                text, remedy = error.message, error.remedy
            self.storage_warnings.append(StorageWarning(f"{what}: {text}", remedy))

    @property
    def has_kept(self) -> bool:
        """Whether a result was saved; one that came to nothing is not."""
        return self.bytes_kept > 0

    def check(self) -> bool:
        """Whether the database exists; raises `UsageError` if it could not be used."""
        return check_store(self.url)

    def aa_floor(self, machine_id: str, conditions: Conditions) -> float | None:
        """What identical arms have been seen to differ by here, if ever observed."""
        if not self.check():
            return None
        with open_store(self.url, read_only=True) as store:
            return store.aa_floor(machine_id, conditions)

    def remember_aa_floor(
        self, machine_id: str, conditions: Conditions, value: float, evidence: Estimate
    ) -> None:
        """Keep what two identical arms differed by."""
        with open_store(self.url) as store:
            store.remember_aa_floor(machine_id, conditions, value, to_data(evidence))

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest calibration of that device of that machine, if there ever was one."""
        if not self.check():
            return None
        with open_store(self.url, read_only=True) as store:
            return store.calibration(machine_id, device)

    def save_calibration(self, calibration: Calibration) -> None:
        """Keep a calibration, under the kind of its device (`cuda`, not `cuda:1`)."""
        kind = calibration.device.split(":")[0]
        with open_store(self.url) as store:
            store.save_calibration(replace(calibration, device=kind))

    def save_doctor(self, report: DoctorReport) -> None:
        """Keep a report of the doctor's."""
        with open_store(self.url) as store:
            store.save_doctor(report)

    def save_profile(self, profile: Profile, result: str = "") -> int:
        """Keep a profile; the bytes that it takes."""
        with open_store(self.url) as store:
            return store.save_profile(profile, result)

    def save_ledger(self, ledger: Ledger) -> int:
        """Keep a ledger; the bytes that it takes."""
        with open_store(self.url) as store:
            return store.save_ledger(ledger)

    def count(self) -> int:
        """How many results are kept."""
        if not self.check():
            return 0
        with open_store(self.url, read_only=True) as store:
            return store.count()

    def save(self, result: Result) -> None:
        """Keep the result."""
        with open_store(self.url) as store:
            self.bytes_kept = store.save(result)


# Keeping the cases of a run: a database that others hold is waited for, because what was measured
# for minutes is worth minutes of waiting.


PATIENCE_S = 900.0
"""How long a run tries again. Writing a large database again (`db prune --compact`) holds it for
minutes; what holds it for a quarter of an hour hangs."""
PAUSE_S = 1.0
"""Between two tries, each of which waits by itself (`store.engine.BUSY_TIMEOUT_S`)."""
T = TypeVar("T")


class Listener(Protocol):
    """Who is told why a run does not get on."""

    def note(self, text: str) -> None:
        """Something that a reader must know, and that stays."""


def patiently(events: Listener, action: Callable[[], T]) -> T:
    """What the action gives; again and again for some minutes while the database is held."""
    started, told = time.monotonic(), False
    while True:
        try:
            return action()
        except StoreBusyError as error:
            if time.monotonic() - started > PATIENCE_S:
                raise
            if not told:
                minutes = f"{PATIENCE_S / 60:.0f} minutes"
                events.note(f"{error.message} Trying again for {minutes}; nothing is lost yet.")
                told = True
        time.sleep(PAUSE_S)


def keep(
    db: str | None,
    run_id: str,
    result: Result | None,
    figures: Sequence[tuple[int, CaseMetrics]],
    events: Listener,
) -> list[CaseMetrics]:
    """Store the cases; nothing where another process was quicker with them, which is told."""

    def store_them() -> None:
        with open_store(db) as store:
            store.add_cases(run_id, result, figures)

    if not figures:
        return []
    try:
        patiently(events, store_them)
    except AlreadyStored as error:
        positions = dict(figures)
        names = [positions[at].key.name for at in error.positions if at in positions]
        events.note(
            f"Another process has stored {', '.join(names)} meanwhile; what was measured here "
            "is not kept."
        )
        return []
    return [one for _, one in figures]


class PatientRecorder(Recorder):
    """What is known of the machine, asked for and remembered between measuring and storing."""

    def __init__(self, url: str | None, events: Listener) -> None:
        super().__init__(url)
        self._events = events

    @contextmanager
    def collect_errors(self, what: str) -> Iterator[None]:
        """Note a failure instead of raising it, and tell it at once: a run goes on for hours."""
        told = len(self.storage_warnings)
        with super().collect_errors(what):
            yield
        for one in self.storage_warnings[told:]:
            self._events.note(f"{one.message} {one.remedy}".strip())

    def aa_floor(self, machine_id: str, conditions: Conditions) -> float | None:
        """What identical arms have been seen to differ by here, if ever observed."""
        ask = super().aa_floor
        return patiently(self._events, lambda: ask(machine_id, conditions))

    def remember_aa_floor(
        self, machine_id: str, conditions: Conditions, value: float, evidence: Estimate
    ) -> None:
        """Keep what two identical arms differed by."""
        put = super().remember_aa_floor
        patiently(self._events, lambda: put(machine_id, conditions, value, evidence))

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest calibration of that device of that machine, if there ever was one."""
        ask = super().calibration
        return patiently(self._events, lambda: ask(machine_id, device))

    def count(self) -> int:
        """How many results are kept."""
        return patiently(self._events, super().count)

    def save_calibration(self, calibration: Calibration) -> None:
        """Keep a calibration."""
        put = super().save_calibration
        patiently(self._events, lambda: put(calibration))
