"""Keeping results: the database is looked at before measuring, and written only afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torchstone.records import (
    Calibration,
    Conditions,
    DoctorReport,
    Estimate,
    Ledger,
    Profile,
    Result,
    TorchstoneError,
    to_data,
)
from torchstone.store import check_store, open_store

INTERRUPTED = "interrupted before it was sure to be stored"


@dataclass(frozen=True)
class Trouble:
    """Something that could not be kept or looked up, in a sentence, and what to do."""

    message: str
    remedy: str = ""


class Keeper:
    """Where a result will go: a bad database is found before time is spent on measuring."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        self.bytes_kept = 0
        self.ids_kept: list[str] = []
        self.troubles: list[Trouble] = []

    @contextmanager
    def forgiving(self, what: str) -> Iterator[None]:
        """Note a failure instead of raising it: no measurement may be lost to the database.

        `what` is how the sentence begins: "The result was not kept". To be told at the end.
        """
        try:
            yield
        except TorchstoneError as error:
            self.troubles.append(Trouble(f"{what}: {error.message}", error.remedy))
        except OSError as error:
            self.troubles.append(Trouble(f"{what}: {error}."))

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
        with open_store(self.url) as store:
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
        with open_store(self.url) as store:
            return store.count()

    def save(self, result: Result) -> None:
        """Keep the result."""
        with open_store(self.url) as store:
            self.bytes_kept = store.save(result)
