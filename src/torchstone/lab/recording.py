"""Keeping results: the database is looked at before measuring, and written only afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.machine.software import machine_id
from torchstone.records import (
    Calibration,
    CaseMetrics,
    Conditions,
    Estimate,
    Profile,
    Result,
    TorchstoneError,
    to_data,
)
from torchstone.store import AlreadyStored, StoreBusyError, check_store, open_store

if TYPE_CHECKING:
    from torchstone.store import Store

INTERRUPTED = "interrupted before it was sure to be stored"
PATIENCE_S = 900.0
"""How long a run tries again. Writing a large database again (`db prune --compact`) holds it for
minutes; what holds it for a quarter of an hour hangs."""
PAUSE_S = 1.0
"""Between two tries, each of which waits by itself (`store.engine.BUSY_TIMEOUT_S`)."""
T = TypeVar("T")


def this_machine() -> str:
    """The id under which the database knows this machine."""
    return machine_id(describe_cpu(), cache_sizes(), memory_bytes())


@dataclass(frozen=True)
class StorageWarning:
    """Something that could not be kept or looked up, in a sentence, and what to do."""

    message: str
    remedy: str = ""


class Listener(Protocol):
    """Who is told why a run does not get on."""

    def note(self, text: str) -> None:
        """Something that a reader must know, and that stays."""


class Recorder:
    """Where a result will go: a bad database is found before time is spent on measuring.

    Where `saves` is False, what is known of the machine is looked up and nothing is written:
    whether a result is kept must not change what it says. A run gives its `events`: then a database
    that others hold is waited for, because what was measured for minutes is worth minutes of
    waiting, and failures are told at once, because a run goes on for hours.
    """

    def __init__(
        self, url: str | None = None, *, saves: bool = True, events: Listener | None = None
    ) -> None:
        self.url = url
        self.saves = saves
        self.bytes_kept = 0
        self.ids_kept: list[str] = []
        self.storage_warnings: list[StorageWarning] = []
        self._events = events

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
            if self._events is not None:
                self._events.note(f"{what}: {text} {remedy}".strip())

    @property
    def has_kept(self) -> bool:
        """Whether a result was saved; one that came to nothing is not."""
        return self.bytes_kept > 0

    def check(self) -> bool:
        """Whether there is a database with tables; raises `UsageError` if it could not be used."""
        return check_store(self.url)

    def read(self, ask: Callable[[Store], T]) -> T | None:
        """What the database says; None where there is none yet."""

        def asked() -> T | None:
            if not self.check():
                return None
            with open_store(self.url, read_only=True) as store:
                return ask(store)

        return self._patiently(asked)

    def write(self, put: Callable[[Store], T]) -> T:
        """What the store gives back for what it is given."""

        def written() -> T:
            with open_store(self.url) as store:
                return put(store)

        return self._patiently(written)

    def _patiently(self, action: Callable[[], T]) -> T:
        """What the action gives; of a run again and again while the database is held."""
        started, told = time.monotonic(), False
        while True:
            try:
                return action()
            except StoreBusyError as error:
                if self._events is None or time.monotonic() - started > PATIENCE_S:
                    raise
                if not told:
                    minutes = f"{PATIENCE_S / 60:.0f} minutes"
                    self._events.note(
                        f"{error.message} Trying again for {minutes}; nothing is lost yet."
                    )
                    told = True
            time.sleep(PAUSE_S)

    def aa_floor(self, machine_id: str, conditions: Conditions) -> float | None:
        """What identical arms have been seen to differ by here, if ever observed."""
        return self.read(lambda store: store.aa_floor(machine_id, conditions))

    def remember_aa_floor(
        self, machine_id: str, conditions: Conditions, value: float, evidence: Estimate
    ) -> None:
        """Keep what two identical arms differed by."""
        data = to_data(evidence)
        self.write(lambda store: store.remember_aa_floor(machine_id, conditions, value, data))

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest calibration of that device of that machine, if there ever was one."""
        return self.read(lambda store: store.calibration(machine_id, device))

    def save_calibration(self, calibration: Calibration) -> None:
        """Keep a calibration, under the kind of its device (`cuda`, not `cuda:1`)."""
        kind = calibration.device.split(":")[0]
        self.write(lambda store: store.save_calibration(replace(calibration, device=kind)))

    def save_profile(self, profile: Profile, result: str = "") -> int:
        """Keep a profile; the bytes that it takes."""
        return self.write(lambda store: store.save_profile(profile, result))

    def save(self, result: Result) -> None:
        """Keep the result."""
        self.bytes_kept = self.write(lambda store: store.save(result))

    def add_cases(
        self, run_id: str, result: Result | None, cases: Sequence[tuple[int, CaseMetrics]]
    ) -> list[CaseMetrics]:
        """Keep cases of a run; none where another process was quicker with them, which is told."""
        if not cases:
            return []
        try:
            self.write(lambda store: store.add_cases(run_id, result, cases))
        except AlreadyStored as error:
            if error.same:
                return [case for _, case in cases]
            names = [case.key.name for position, case in cases if position in error.positions]
            if self._events is not None:
                self._events.note(
                    f"Another process has stored {', '.join(names)} meanwhile; what was measured "
                    "here is not kept."
                )
            return []
        return [case for _, case in cases]
