"""Keeping the cases of a run: a database that others hold is waited for, because what was measured
for minutes is worth minutes of waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from torchstone.lab.keeping import Keeper
from torchstone.records import Calibration, CaseFigures, Conditions, Estimate, Result
from torchstone.store import AlreadyStored, StoreBusyError, open_store

PATIENCE_S = 900.0
"""How long a run tries again. Writing a large database anew (`db thin --compact`) holds it for
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
    figures: Sequence[tuple[int, CaseFigures]],
    events: Listener,
) -> list[CaseFigures]:
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


class PatientKeeper(Keeper):
    """What is known of the machine, asked for and remembered between measuring and storing."""

    def __init__(self, url: str | None, events: Listener) -> None:
        super().__init__(url)
        self._events = events

    @contextmanager
    def forgiving(self, what: str) -> Iterator[None]:
        """Note a failure instead of raising it, and tell it at once: a run goes on for hours."""
        told = len(self.troubles)
        with super().forgiving(what):
            yield
        for one in self.troubles[told:]:
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
