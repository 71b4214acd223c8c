"""A clock on the parts of a step, in the very process and steps that the ledger divides.

Two processes run the same code at speeds that differ by a fifth on a shared machine: a part that
is timed elsewhere says little about its share here. With this clock a part notes its own time
whenever nobody looks from inside its process. The notes are in a file that is mapped into memory:
the process may end as it likes.
"""

from __future__ import annotations

import gc
import mmap
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

VARIABLE = "TORCHSTONE_LEDGER_CLOCK"
"""Names the file. Without it, parts have no clock."""
MOST_PARTS, MOST_CALLS = 4, 20_000
WARM_UP = 10
"""Calls of a part that are not believed."""
FIELDS = 3
STRETCHES = 8
"""As many as the ledger has rounds: an undisturbed one is found among as many."""
_WORD = 8
_AREA = 1 + FIELDS * MOST_CALLS
"""Words of a part: how many calls are noted, and their notes."""


@dataclass(frozen=True)
class Took:
    """One call, in nanoseconds: on the core, off it but for the wait for one, and collecting."""

    on: int
    off: int
    collecting: int = 0


def clocked(number: int, part: Callable[[], Any]) -> Callable[[], Any]:
    """The part with a clock, where somebody wants to know."""
    path = os.environ.get(VARIABLE)
    return part if path is None else _with_clock(_notes(path), number, part)


def _with_clock(notes: memoryview, number: int, part: Callable[[], Any]) -> Callable[[], Any]:
    from torch._C._autograd import _profiler_enabled

    base, collecting, waited = number * _AREA, Collecting(), waiting()

    def call() -> Any:
        if _profiler_enabled() or _is_profiled() or notes[base] == MOST_CALLS:
            return part()
        wait, collected = waited(), collecting.total
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        out = part()
        cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
        at = base + 1 + FIELDS * notes[base]
        notes[at] = cpu
        notes[at + 1] = max(0, wall - cpu - (waited() - wait))
        notes[at + 2] = collecting.total - collected
        notes[base] += 1
        return out

    return call


def _is_profiled() -> bool:
    """Whether a profile function is set, or cProfile watches as it does since Python 3.12."""
    watching: Any = getattr(sys, "monitoring", None)
    if watching is not None and watching.get_tool(watching.PROFILER_ID) is not None:
        return True
    return sys.getprofile() is not None


def waiting() -> Callable[[], int]:
    """Tells how long this thread has waited for a core so far."""
    file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    return lambda: int(os.pread(file, 64, 0).split()[1])


class Collecting:
    """How long the garbage collector has run."""

    def __init__(self) -> None:
        self.total = self._started = 0
        gc.callbacks.append(self._watch)

    def _watch(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._started = time.thread_time_ns()
        else:
            self.total += time.thread_time_ns() - self._started


def _notes(path: str) -> memoryview:
    size = MOST_PARTS * _AREA * _WORD
    with open(path, "r+b") as file:
        file.truncate(size)
        return memoryview(mmap.mmap(file.fileno(), size)).cast("q")


def noted(path: str) -> list[list[Took]]:
    """The calls of every part that was called with a clock on it, in order."""
    with open(path, "rb") as file:
        notes = memoryview(file.read()).cast("q")
    found = []
    for base in range(0, len(notes), _AREA):  # none in an empty file: no part has a clock
        starts = range(base + 1, base + 1 + FIELDS * notes[base], FIELDS)
        if starts:
            found.append([Took(*notes[at : at + FIELDS]) for at in starts])
    return found


def usual(values: Sequence[float]) -> float:
    """An undisturbed call: in stretches one after the other, the middle half of each; of these the
    lower quartile, because a neighbour only ever adds. The ledger's own figure is made so."""
    size = max(1, len(values) // STRETCHES)
    means = [_middle(values[i : i + size]) for i in range(0, size * STRETCHES, size) if values[i:]]
    return statistics.quantiles(means, n=4, method="inclusive")[0] if len(means) > 1 else means[0]


def _middle(values: Sequence[float]) -> float:
    ordered, quarter = sorted(values), len(values) // 4
    return statistics.fmean(ordered[quarter : len(ordered) - quarter])


def lines_of(lines: str, rows: Sequence[Took]) -> dict[str, float]:
    """A part's time by line. Sleeping and collecting come and go, and are averaged; where they are
    lines of their own they are told apart."""
    rows = rows[WARM_UP:] or rows
    collecting = statistics.fmean(row.collecting for row in rows)
    on = usual([row.on - row.collecting for row in rows])
    off = statistics.fmean(row.off for row in rows)
    words = set(lines.split("+"))
    if "collector" in words:
        return {lines.replace("+collector", ""): on + off, "collector": collecting}
    if "gil" in words:
        return {lines.replace("+gil", ""): on + collecting, "gil": off}
    return {lines: on + collecting + off}
