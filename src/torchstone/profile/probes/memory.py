"""Memory: line by line, over time, and what was alive when most was in use."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from torchstone.measure.allocations import (
    Allocation,
    TensorsBefore,
    allocations,
    peak_of,
    timeline,
)
from torchstone.profile import trees
from torchstone.profile.formats.frames import FrameTable
from torchstone.profile.probes.base import ProbeOptions, Step, new_profile
from torchstone.profile.probes.line_memory import LineMemory
from torchstone.profile.probes.resident import Timeline, can_read
from torchstone.records import CallTree, Counter, LiveTensor, MemoryUse, Profile, Thread

MOST_ALIVE = 50
"""Kinds of live memory that are named, by who made it."""
_RESIDENT = "resident set, looked at every few milliseconds; a peak between two looks is missed"
_BOTH = (
    "what the step itself took from torch's allocator, without what was in use before it; beside "
    "it the resident set of the process, which includes what recording the allocations took"
)
_LINES = (
    "Lines show resident memory: what was allocated but never touched is not in it, and the kernel "
    "may be behind by some 256 KiB a thread."
)

_NO_LINES = "No line was looked at: no function of the file itself ran. Name some with --functions."


class MemoryProbe:
    """See the module."""

    name = "memory"
    how = "memory"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()

    def unavailable(self) -> str:
        """Needs what Linux tells, and the place where debuggers sit."""
        if not can_read():
            return "the resident memory of a process is not to be had on this system"
        if sys.gettrace() is not None:
            return "a debugger or a coverage tool is on in this process (sys.settrace)"
        return ""

    def start(self) -> None:
        """Watch resident memory, and lines where some were chosen."""
        self._lines: LineMemory | None = None
        if self._options.functions or self._options.files:
            self._lines = LineMemory(self._options.functions, self._options.files)
        self._timeline = Timeline()
        self._timeline.start()
        self._started = time.perf_counter()
        if self._lines is not None:
            self._lines.start()

    def stop(self) -> Profile:
        """A timeline, and a table of lines."""
        lines = self._lines.stop() if self._lines is not None else ()
        wall = time.perf_counter() - self._started
        points = self._timeline.stop()
        when, most = max(points, key=lambda point: point[1])
        missing = self._lines.missing() if self._lines is not None else []
        return new_profile(
            self.how,
            "memory",
            threads=(Thread("main", critical=True),),
            lines=lines,
            memory=MemoryUse(
                time_ns=tuple(time for time, _ in points),
                resident=tuple(bytes for _, bytes in points),
                peak_bytes=most,
                peak_ns=when,
                source=_RESIDENT,
            ),
            counters=(Counter("resident growth", float(points[-1][1] - points[0][1]), "bytes"),),
            wall_s=wall,
            problems=(f"Never ran: {', '.join(missing)}.",) if missing else (),
            notes=self._notes(bool(lines)),
        )

    def _notes(self, lines: bool) -> tuple[str, ...]:
        if lines:
            return (_LINES,)
        return (_NO_LINES,) if self._lines is not None else ()

    def discard(self) -> None:
        """Watch no more."""
        if self._lines is not None:
            self._lines.stop()
        self._timeline.stop()

    def again(self, profile: Profile, step: Step) -> Profile:
        """With torch: the peak of its allocator, who owned what then, and the timeline of both."""
        if "torch" not in sys.modules:
            return profile
        before = TensorsBefore()
        watching = Timeline()
        watching.start()
        try:
            events, reason = allocations(step)
        finally:
            points = watching.stop()
        if reason or not events:
            said = (reason,) if reason else ()
            return replace(profile, notes=(*profile.notes, *said))
        return _with_allocations(profile, events, before, points, watching.started_ns)


def _with_allocations(
    profile: Profile,
    events: list[Allocation],
    before: TensorsBefore,
    points: list[tuple[int, int]],
    started_ns: int,
) -> Profile:
    table = FrameTable()
    peak = peak_of(events)
    by_stack: dict[tuple[int, ...], list[int]] = {}
    for one in peak.alive:
        stack = tuple(table.add(p.name, p.file, p.line, p.kind) for p in one.stack)
        by_stack.setdefault(stack, []).append(one.bytes)
    frames = table.frames
    alive = [
        LiveTensor(frames[stack[-1]].name if stack else "unknown", len(sizes), sum(sizes), stack)
        for stack, sizes in by_stack.items()
    ]
    alive += [
        LiveTensor(f"from before the step: {kind}", count, size)
        for kind, (count, size) in before.alive_at(peak.time_ns).items()
    ]
    alive.sort(key=lambda one: -one.bytes)
    at_peak = trees.from_stacks(
        ((stack, float(sum(sizes)), 0) for stack, sizes in by_stack.items() if stack), "bytes"
    )
    resident_peak = profile.memory.peak_bytes if profile.memory is not None else 0
    counters = (
        *profile.counters,
        Counter("resident peak", float(resident_peak), "bytes"),
        Counter("tensor allocations of a step", float(sum(1 for e in events if e.bytes > 0))),
    )
    return replace(
        profile,
        frames=frames,
        memory=_merged(
            timeline(events), points, started_ns, peak.bytes, peak.time_ns, alive, at_peak
        ),
        counters=counters,
    )


def _merged(
    heap: list[tuple[int, int]],
    points: list[tuple[int, int]],
    started_ns: int,
    peak: int,
    when_ns: int,
    alive: list[LiveTensor],
    at_peak: CallTree,
) -> MemoryUse:
    """Both on one axis: at each look at resident memory, and at the peak of the allocator."""
    heap = [(time - started_ns, held) for time, held in heap]
    peak_at = max(0, when_ns - started_ns)
    looks = dict(points)
    times = sorted({*looks, peak_at})
    resident, held, last, place, now = [], [], points[0][1], 0, 0
    for at in times:
        last = looks.get(at, last)
        while place < len(heap) and heap[place][0] <= at:
            now = heap[place][1]
            place += 1
        resident.append(last)
        held.append(now)
    return MemoryUse(
        time_ns=tuple(times),
        resident=tuple(resident),
        heap=tuple(held),
        peak_bytes=peak,
        peak_ns=peak_at,
        at_peak=at_peak,
        alive=tuple(alive[:MOST_ALIVE]),
        source=_BOTH,
    )
