"""Jobs take samples in turns, so that a slow moment of the machine falls on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter_ns as _now
from typing import Protocol

from torchstone.machine.best import best_rate
from torchstone.records import Peak

Say = Callable[[str], None]
Timer = Callable[[Callable[[], object]], float]
"""Runs a call and returns the seconds it took, waiting for whatever it queued."""

ROUNDS = 4
"""Each job comes back this often, in different moments of the machine."""
LEAST_SAMPLES = 3
"""In each turn, however slow."""


class Job(Protocol):
    """One roof in the making."""

    name: str
    threads: int
    weight: float

    def sample_for(self, seconds: float) -> None:
        """Take samples for about so long."""

    def peak(self) -> Peak | None:
        """The best of all samples so far."""


class Repeated:
    """A job of one kernel: `sample` runs it once and returns the rate."""

    def __init__(
        self, name: str, sample: Callable[[], float], template: Peak, weight: float = 1.0
    ) -> None:
        self.name = name
        self.threads = template.threads
        self.weight = weight
        self._sample = sample
        self._template = template
        self._rates: list[float] = []

    def sample_for(self, seconds: float) -> None:
        """Samples until the time is over; the first one warms the caches and is not kept."""
        self._sample()
        end = _now() + int(seconds * 1e9)
        taken = 0
        while taken < LEAST_SAMPLES or _now() < end:
            self._rates.append(self._sample())
            taken += 1

    def peak(self) -> Peak | None:
        """The best of all samples so far."""
        return best_rate(self._rates, self._template)


def run_jobs(
    jobs: Iterable[Job], seconds: float, use_threads: Callable[[int], None], say: Say
) -> tuple[list[Job], list[str]]:
    """Give every job its turns; those that are left, and why others are not."""
    alive, notes = list(jobs), []
    share = seconds / ROUNDS / max(1e-9, sum(job.weight for job in alive))
    for number in range(ROUNDS):
        say(f"round {number + 1} of {ROUNDS}: {len(alive)} roofs")
        for job in tuple(alive):
            use_threads(job.threads)
            try:
                job.sample_for(share * job.weight)
            except (RuntimeError, NotImplementedError, MemoryError, TypeError) as error:
                # torch has no kernel for this here, or there is no room for it.
                alive.remove(job)
                notes.append(f"{job.name}: not measured; {first_line(error)}")
    return alive, notes


def first_line(error: BaseException) -> str:
    """What an error says, in one line of bounded length."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def wall_timer(call: Callable[[], object]) -> float:
    """Seconds of a call that is over when it returns."""
    start = _now()
    call()
    return (_now() - start) / 1e9
