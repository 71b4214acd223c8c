"""Every allocation of the process by memray, where it is installed: of Python, of torch, of any
library. Who held what when most was in use, and memory over time."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchstone.profile import trees
from torchstone.profile.formats.frames import FrameTable
from torchstone.profile.formats.speedscope_write import path_of
from torchstone.profile.probes.base import ProbeFailed, ProbeOptions, new_profile
from torchstone.profile.probes.memory import MOST_ALIVE
from torchstone.profile.probes.spied import Outside, as_ours
from torchstone.profile.probes.stacks import MOST_DEPTH, outer_calls
from torchstone.records import CallTree, Counter, Frame, LiveTensor, MemoryUse, Profile, Thread

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
        """Not installed."""
        return (
            "" if importlib.util.find_spec(MODULE) else "it is not installed (pip install memray)"
        )

    def start(self) -> None:
        """Record from now on."""
        memray: Any = importlib.import_module(MODULE)
        self._outer = outer_calls()
        self._folder = tempfile.TemporaryDirectory(prefix="torchstone-")
        self._file = Path(self._folder.name) / "memory.bin"
        try:
            self._tracker = memray.Tracker(self._file, memory_interval_ms=LOOK_MS)
            self._tracker.__enter__()
        except RuntimeError as error:
            self._folder.cleanup()
            raise ProbeFailed(
                f"memray could not begin: {error}.", "Only one of it can run in a process."
            ) from None
        self._started = time.perf_counter()

    def stop(self) -> Profile:
        """What it wrote, read by its own reader."""
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
            self._folder.cleanup()
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
        """Record no more."""
        self._tracker.__exit__(None, None, None)
        self._folder.cleanup()


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
            stack = tuple(path_of(at_peak, node))
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
