"""Memory: line by line, over time, and what was alive when most was in use."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from torchstone.machine.folders import own_folder
from torchstone.measure.allocations import (
    Allocation,
    TensorsBefore,
    allocations,
    peak_of,
    timeline,
)
from torchstone.profile import trees
from torchstone.profile.formats.base import FrameTable
from torchstone.profile.probes.base import (
    ProbeFailed,
    ProbeOptions,
    Step,
    line_tables,
    new_profile,
)
from torchstone.profile.probes.pyspy import Outside, as_ours
from torchstone.profile.probes.sample import MOST_DEPTH, outer_calls
from torchstone.records import (
    CallTree,
    Counter,
    Frame,
    LineTable,
    LiveTensor,
    MemoryUse,
    Profile,
    Thread,
)

# Resident memory: now, and over time by a thread that looks.


STATM = "/proc/self/statm"
PERIOD_S = 0.005
MOST_POINTS = 4_000
"""Beyond it every other point is dropped, and looks become half as frequent."""


class ResidentReader:
    """Reads resident bytes quickly: the file stays open."""

    def __init__(self) -> None:
        self._file = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> int:
        """Bytes. The kernel may be behind by some 256 KiB a thread."""
        return int(os.pread(self._file, 128, 0).split()[1]) * self._page

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._file)


def can_read() -> bool:
    """Whether the system tells."""
    return os.access(STATM, os.R_OK)


class Timeline:
    """Resident bytes over time, and what Python and torch do not see: every allocator's."""

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []
        self._period = PERIOD_S
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torchstone memory", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._reader = ResidentReader()
        self.started_ns = time.time_ns()
        self._add()
        self._thread.start()

    def stop(self) -> list[tuple[int, int]]:
        """Nanoseconds from the start, and bytes."""
        self._enough.set()
        self._thread.join()
        self._add()
        self._reader.close()
        return self.points

    def _run(self) -> None:
        while not self._enough.wait(self._period):
            self._add()
            if len(self.points) > MOST_POINTS:
                self.points = self.points[::2]
                self._period *= 2

    def _add(self) -> None:
        self.points.append((time.time_ns() - self.started_ns, self._reader.read()))


# Memory line by line: what was resident after each line of chosen functions, and what it added.


_Trace = Callable[[FrameType, str, Any], Any]


class LineMemory:
    """Watches the lines of the functions that are named, or of all functions of some files."""

    def __init__(self, functions: tuple[str, ...], files: tuple[str, ...]) -> None:
        self._functions = frozenset(functions)
        self._files = frozenset(os.path.abspath(file) for file in files)
        self._chosen: dict[CodeType, bool] = {}
        self._rows: dict[tuple[str, int], list[int]] = {}
        self.seen: set[str] = set()

    def start(self) -> None:
        """Watch this thread and those that it starts."""
        self._reader = ResidentReader()
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def stop(self) -> tuple[LineTable, ...]:
        """By file; only lines that ran."""
        sys.settrace(None)
        threading.settrace(None)
        self._reader.close()
        return tuple(line_tables(self._rows, "hits", "bytes", "increment"))

    def missing(self) -> list[str]:
        """Functions that were named and never ran."""
        return sorted(name for name in self._functions if name not in self.seen)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> _Trace | None:
        code = frame.f_code
        chosen = self._chosen.get(code)
        if chosen is None:
            chosen = self._chosen[code] = self._wanted(code)
        return self._watch(code.co_filename) if chosen and event == "call" else None

    def _watch(self, file: str) -> _Trace:
        """One call of a chosen function: the line that runs, and what was resident before it."""
        line = before = 0

        def trace(frame: FrameType, event: str, argument: Any) -> _Trace:
            nonlocal line, before
            if event in ("line", "return"):
                now = self._reader.read()
                if line:
                    row = self._rows.setdefault((file, line), [0, 0, 0])
                    row[:] = row[0] + 1, max(row[1], now), row[2] + now - before
                line = frame.f_lineno if event == "line" else 0
                before = now
            return trace

        return trace

    def _wanted(self, code: CodeType) -> bool:
        """Lambdas and generator expressions belong to the line that they stand in."""
        if code.co_name.startswith("<") and code.co_name != "<module>":
            return False
        if self._functions:
            names = {code.co_name, getattr(code, "co_qualname", code.co_name)}
            self.seen |= names & self._functions
            return bool(names & self._functions)
        return os.path.abspath(code.co_filename) in self._files


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
        if not can_read():
            return "the resident memory of a process is not to be had on this system"
        if sys.gettrace() is not None:
            return "a debugger or a coverage tool is on in this process (sys.settrace)"
        return ""

    def start(self) -> None:
        self._lines: LineMemory | None = None
        if self._options.functions or self._options.files:
            self._lines = LineMemory(self._options.functions, self._options.files)
        self._timeline = Timeline()
        self._timeline.start()
        self._started = time.perf_counter()
        if self._lines is not None:
            self._lines.start()

    def stop(self) -> Profile:
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
            notes=() if self._lines is None else (_LINES,) if lines else (_NO_LINES,),
        )

    def discard(self) -> None:
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
    # Both on one axis: at each look at resident memory, and at the peak of the allocator.
    peak_ns = max(0, peak.time_ns - started_ns)
    times = sorted({peak_ns, *(at for at, _ in points)})
    heap = [(at - started_ns, held) for at, held in timeline(events)]
    memory = MemoryUse(
        time_ns=tuple(times),
        resident=_stood_at(points, times, points[0][1]),
        heap=_stood_at(heap, times, 0),
        peak_bytes=peak.bytes,
        peak_ns=peak_ns,
        at_peak=at_peak,
        alive=tuple(alive[:MOST_ALIVE]),
        source=_BOTH,
    )
    return replace(profile, frames=frames, memory=memory, counters=counters)


def _stood_at(
    series: Sequence[tuple[int, int]], times: Iterable[int], before: int
) -> tuple[int, ...]:
    """What a series of times and amounts stood at, at each of these times."""
    known = [at for at, _ in series]
    amounts = [before, *(amount for _, amount in series)]
    return tuple(amounts[bisect_right(known, at)] for at in times)


# Every allocation of the process by memray, where it is installed: of Python, of torch, of any
# library. Who held what when most was in use, and memory over time.


MODULE = "memray"
LOOK_MS = 5
"""Between two points of memory over time."""
_SOURCE = "memray: every allocation since it began (heap), and resident set of the process"
_NOTE = "Memory from before is not seen: the heap begins at nothing."


class AllocatorProbe:
    """See the module."""

    name = "memray"
    how = "memory"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self.written_bytes = 0

    def unavailable(self) -> str:
        there = importlib.util.find_spec(MODULE)
        return "" if there else "it is not installed (pip install memray)"

    def start(self) -> None:
        memray: Any = importlib.import_module(MODULE)
        self._outer = outer_calls()
        self._stack = ExitStack()
        folder = self._stack.enter_context(own_folder())
        self._file = folder / "memory.bin"
        try:
            self._tracker = memray.Tracker(self._file, memory_interval_ms=LOOK_MS)
            self._tracker.__enter__()
        except RuntimeError as error:
            self._stack.close()
            raise ProbeFailed(
                f"memray could not begin: {error}.", "Only one of it can run in a process."
            ) from None
        self._started = time.perf_counter()

    def stop(self) -> Profile:
        wall = time.perf_counter() - self._started
        self._tracker.__exit__(None, None, None)
        memray: Any = importlib.import_module(MODULE)
        try:
            self.written_bytes = self._file.stat().st_size
            with memray.FileReader(self._file) as reader:
                points = list(reader.get_memory_snapshots())
                records = list(reader.get_high_watermark_allocation_records(merge_threads=True))
                total = reader.metadata.total_allocations
        finally:
            self._stack.close()
        seen = as_ours(_read(records), Outside(0, self._outer, (__file__,)))
        at_peak = seen.paths.tree("bytes", counted=True)
        return new_profile(
            self.how,
            self.name,
            frames=seen.frames,
            threads=(Thread("all threads", critical=True),),
            memory=_memory(points, at_peak, seen.frames),
            counters=(Counter("allocations", float(total)),),
            wall_s=wall,
            notes=(_NOTE,),
        )

    def discard(self) -> None:
        self._tracker.__exit__(None, None, None)
        self._stack.close()


def _read(records: Iterable[Any]) -> Profile:
    """Bytes and numbers of allocations by stack; theirs have the innermost call first."""
    table, builder = FrameTable(), trees.TreeBuilder()
    for record in records:
        node = -1
        # With a number it gives all frames; without, it leaves out those above its own start,
        # which is not where the work is called from.
        for name, file, line in reversed(record.stack_trace(MOST_DEPTH)):
            node = builder.child(node, table.add(name, file, line), 0)
        if node < 0:
            node = builder.child(-1, table.add("outside of Python", kind="native"), 0)
        builder.own[node] += record.size
        builder.calls[node] += record.n_allocations
    return Profile("", "", "memory", MODULE, table.frames, tree=builder.tree("bytes", counted=True))


def _memory(points: list[Any], at_peak: CallTree, frames: tuple[Frame, ...]) -> MemoryUse:
    """The peak is that of the records, which no interval can miss."""
    times = [point.time for point in points]
    first = times[0] if times else 0
    highest = max(range(len(points)), key=lambda i: points[i].heap, default=-1)
    alive = []
    for node, size in enumerate(at_peak.own):
        if size:
            stack = tuple(trees.path_of(at_peak, node))
            alive.append(
                LiveTensor(frames[stack[-1]].name, at_peak.calls[node], round(size), stack)
            )
    alive.sort(key=lambda one: -one.bytes)
    return MemoryUse(
        time_ns=tuple((at - first) * 1_000_000 for at in times),
        resident=tuple(point.rss for point in points),
        heap=tuple(point.heap for point in points),
        peak_bytes=round(sum(at_peak.own)),
        peak_ns=(times[highest] - first) * 1_000_000 if highest >= 0 else 0,
        at_peak=at_peak,
        alive=tuple(alive[:MOST_ALIVE]),
        source=_SOURCE,
    )
