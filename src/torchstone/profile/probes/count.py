"""Counting: every call by `cProfile`, and what the system counted meanwhile.

Counters of the processor, by the kernel's `perf_event_open`, where machine and system let us.
"""

from __future__ import annotations

import contextlib
import cProfile
import ctypes
import errno
import gc
import itertools
import os
import platform
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from torchstone.machine.processes import list_numbers, read_field, read_text, read_word
from torchstone.profile import trees
from torchstone.profile.formats.base import FrameTable
from torchstone.profile.formats.pstats_file import REST, Key, frame_of
from torchstone.profile.probes.base import ProbeOptions, Step, hottest, line_tables, new_profile
from torchstone.profile.probes.sample import STARTERS
from torchstone.records import Calls, CallTree, Counter, FunctionCalls, LineTable, Profile, Thread

_CALLS = {"x86_64": 298, "aarch64": 241}
"""Numbers of the system call, from the kernel's tables."""
_ATTRIBUTE_BYTES = 128
_HARDWARE = 0
_DISABLED, _INHERIT, _NO_KERNEL, _NO_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_TIME_ENABLED, _TIME_RUNNING = 1 << 0, 1 << 1
_ENABLE, _DISABLE = 0x2400, 0x2401
"""ioctls; all of these are from <linux/perf_event.h>."""
EVENTS = {"cycles": 0, "instructions": 1, "cache misses": 3, "branch misses": 5}
_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_MOST_THREADS = 64
"""Each takes a descriptor for every event, and a process may usually have 1024 of them."""
_READING = struct.Struct("=QQQ")


@dataclass(frozen=True)
class Reading:
    """What one counter has counted, and how long: the processor has few, and takes turns where more
    are asked for."""

    value: int
    enabled: int
    """Nanoseconds in which it should have counted: its thread ran."""
    running: int
    """Nanoseconds of them in which it did."""


class HardwareCounters:
    """One counter a thread and event, between `start` and `stop`."""

    def __init__(self) -> None:
        self._open: dict[str, list[int]] = {}
        self.reason = ""
        found = sorted(list_numbers("/proc/self/task")) or [0]  # the oldest first
        self._threads, self._all = found[:_MOST_THREADS], len(found)
        for name, event in EVENTS.items():
            descriptors = self._open_all(event)
            if not descriptors:
                break
            self._open[name] = descriptors

    def start(self) -> None:
        """Begin to count."""
        self._each(_ENABLE)

    def stop(self) -> tuple[Counter, ...]:
        """End; what was counted, or why nothing could be."""
        self._each(_DISABLE)
        found = []
        for name in EVENTS:
            if name in self._open:
                readings = list(map(_read, self._open[name]))
                found.append(counter_of(name, readings, len(self._threads), self._all))
            else:
                found.append(Counter(name, None, "", f"not measurable here: {self.reason}"))
        self.close()
        return tuple(found)

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in itertools.chain(*self._open.values()):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._open.clear()

    def _open_all(self, event: int) -> list[int]:
        found: list[int] = []
        for thread in self._threads:
            descriptor = _open_event(event, thread)
            if descriptor < 0:
                if -descriptor == errno.ESRCH:
                    continue  # the thread has ended since
                self.reason = _why(-descriptor)
                for one in found:
                    os.close(one)
                return []
            found.append(descriptor)
        return found

    def _each(self, request: int) -> None:
        for descriptor in itertools.chain(*self._open.values()):
            import fcntl  # Windows has none, and nothing open

            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, request, 0)


def _open_event(event: int, thread: int) -> int:
    """A descriptor, or an error number below zero."""
    number = _CALLS.get(platform.machine())
    if number is None or not sys.platform.startswith("linux"):
        return -errno.ENODEV
    attribute = bytearray(_ATTRIBUTE_BYTES)
    flags = _DISABLED | _INHERIT | _NO_KERNEL | _NO_HYPERVISOR
    times = _TIME_ENABLED | _TIME_RUNNING
    head = (_HARDWARE, _ATTRIBUTE_BYTES, event, 0, 0, times, flags)
    struct.pack_into("=IIQQQQQ", attribute, 0, *head)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attribute)
    none = ctypes.c_int(-1)
    thread_ = ctypes.c_int(thread)
    made = libc.syscall(ctypes.c_long(number), buffer, thread_, none, none, ctypes.c_ulong(0))
    return int(made) if made >= 0 else -ctypes.get_errno()


def _why(number: int) -> str:
    if number in _FORBIDDEN:
        level = read_word("/proc/sys/kernel/perf_event_paranoid") or "?"
        return f"the system forbids it (kernel.perf_event_paranoid is {level})"
    if number in _ABSENT:
        return "this machine shows no counters of the processor (usual for virtual machines)"
    return os.strerror(number)


def counter_of(
    name: str, readings: Sequence[Reading | None], counted: int, threads: int
) -> Counter:
    """The readings of all threads (None: it could not be read) as one figure. A counter that ran
    for a part of its time is taken to have gone on like that, and the note says that it is so."""
    lost = sum(one is None for one in readings)
    known = [one for one in readings if one is not None]
    silent = [one for one in known if one.enabled and not one.running]
    heard = [one for one in known if one.running]
    if (lost or silent) and not heard:
        why = "it could not be read" if lost else "others held the processor's counters"
        return Counter(name, None, "", f"not measurable here: {why}")
    enabled, running = (sum(getattr(one, key) for one in known) for key in ("enabled", "running"))
    value = sum(one.value * max(1.0, one.enabled / one.running) for one in heard)
    whose = "all threads" if counted >= threads else f"the first {counted} of {threads} threads"
    notes = [f"in user code, of {whose}"]
    if running < enabled:
        notes.append(f"an estimate: it counted {running / enabled * 100:.0f} % of the time")
    if silent:
        notes.append(f"too low: it never counted on {len(silent)} of them")
    if lost:
        notes.append(f"too low: it could not be read on {lost} of them")
    return Counter(name, float(value), "", "; ".join(notes))


def _read(descriptor: int) -> Reading | None:
    try:
        data = os.read(descriptor, _READING.size)
    except OSError:
        return None
    return Reading(*_READING.unpack(data)) if len(data) == _READING.size else None


# Counts that the system and the interpreter keep anyway: read before and after, at no cost.


_NO_PROC = "not measurable here: the system does not tell"
_NET_NOTE = "of all processes of this network namespace, without the loopback"
_USAGE = {
    "page faults, minor": "ru_minflt",
    "page faults, major": "ru_majflt",
    "context switches, voluntary": "ru_nvcsw",
    "context switches, involuntary": "ru_nivcsw",
}
_FILES = {
    "read by system calls": "rchar",
    "written by system calls": "wchar",
    "read from disk": "read_bytes",
    "written to disk": "write_bytes",
}


class Readings:
    """All counts at one moment; `counters` gives what they have grown by since."""

    def __init__(self) -> None:
        self._before = list(_counts())

    def counters(self) -> tuple[Counter, ...]:
        """What was counted since this was made."""
        return tuple(
            replace(now, value=None, note=_NO_PROC)
            if before.value is None or now.value is None
            else replace(now, value=now.value - before.value)
            for before, now in zip(self._before, _counts(), strict=True)
        )


def _counts() -> Iterator[Counter]:
    """What has been counted so far."""
    try:
        import resource

        used: Any = resource.getrusage(resource.RUSAGE_SELF)
    except ImportError:  # Windows
        used = None
    cpu = None if used is None else used.ru_utime + used.ru_stime
    yield Counter("CPU time of all threads", cpu, "seconds")
    for name, key in _USAGE.items():
        yield Counter(name, None if used is None else float(getattr(used, key)))
    for name, key in _FILES.items():
        yield Counter(name, read_field("/proc/self/io", key), "bytes")
    yield Counter("received by network", _network(0), "bytes", _NET_NOTE)
    yield Counter("sent by network", _network(8), "bytes", _NET_NOTE)
    collections = sum(generation["collections"] for generation in gc.get_stats())
    yield Counter("garbage collections", float(collections))
    blocks = float(sys.getallocatedblocks())
    yield Counter("Python blocks kept", blocks, "blocks", "allocated and not freed")


def _network(column: int) -> float | None:
    """Bytes received (column 0) or sent (column 8) by all devices but the loopback."""
    text = read_text("/proc/self/net/dev")
    if text is None:
        return None
    total = 0
    for line in text.splitlines()[2:]:
        device, _, figures = line.partition(":")
        if device.strip() != "lo":
            total += int(figures.split()[column])
    return float(total)


# Counts that take a pass of their own: ops by kind, allocations.


MOST_OPS = 20
"""Kinds of ops that are named; the rest is counted together."""
_COMPILED = "not seen: the ops of compiled code run inside its kernels; --how trace shows those"

_ONCE = "not measured: it takes a pass of its own, and only the step of a target can be repeated"


def repeated_counts(step: Step, eager: bool) -> tuple[Counter, ...]:
    """Counts of one step, which is run a few times more."""
    counters = list(_python_memory(step))
    if "torch" not in sys.modules:
        return tuple(counters)
    counters += _tensor_memory(step)
    counters += _ops(step) if eager else [Counter("ops", None, "", _COMPILED)]
    return tuple(counters)


def not_repeated(profile: Profile) -> Profile:
    """The same with a word on each count that takes a pass of its own: work that runs only once
    leaves none."""
    names: tuple[str, ...] = ()
    if profile.how == "count":
        names = ("Python memory",)
        names += ("tensor allocations", "ops by kind") if "torch" in sys.modules else ()
    elif profile.how == "memory" and "torch" in sys.modules:
        names = ("tensors alive at the peak",)
    missing = tuple(Counter(name, None, "", _ONCE) for name in names)
    return replace(profile, counters=(*profile.counters, *missing))


def _python_memory(step: Step) -> list[Counter]:
    """What one step adds to Python's own memory at the most; torch's tensors are not in it."""
    if tracemalloc.is_tracing():
        return [Counter("Python memory of a step", None, "bytes", "tracemalloc is in use already")]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return [Counter("Python memory of a step", float(peak - before), "bytes", "at its peak")]


def _tensor_memory(step: Step) -> list[Counter]:
    from torchstone.measure.allocations import allocations

    events, reason = allocations(step)
    made = [event for event in events if event.bytes > 0]
    if reason:
        return [Counter("tensor allocations of a step", None, "", reason)]
    return [
        Counter("tensor allocations of a step", float(len(made))),
        Counter("tensor bytes of a step", float(sum(event.bytes for event in made)), "bytes"),
    ]


def _ops(step: Step) -> list[Counter]:
    from torchstone.measure.flops import Tally, tally_ops

    tally = Tally({})
    try:
        tally_ops(step, tally)
    except Exception as error:  # a step that refuses to be watched must not cost the profile
        kind = type(error).__name__
        return [Counter("ops of a step", None, "", f"not counted: the step raised {kind}")]
    named = tally.calls.most_common(MOST_OPS)
    rest = sum(tally.calls.values()) - sum(count for _, count in named)
    counters = [Counter("ops of a step", float(sum(tally.calls.values())))]
    counters += [Counter(f"op {name}", float(count)) for name, count in named]
    return counters + ([Counter("other ops", float(rest))] if rest else [])


SHARED = sys.version_info >= (3, 12)
"""`cProfile` listens to all threads at once, but keeps one stack for all of them."""
_MOST_FILES = 4

_EARLIER = "Threads that were there before are not counted: cProfile begins with a thread."
_MIXED = (
    "Several threads ran: from Python 3.12 on, cProfile keeps one stack for all of them, so times "
    "and callers are mixed up. Calls are right."
)

_SHARED_NAMES = (
    "{count} functions have the name and place of another. cProfile would keep one of each; here "
    "they are added up."
)

_WHOLE = (
    "Beside lines stand calls and own time of whole functions, at the line where each begins: "
    "cProfile does not look at single lines."
)

_Stats = Mapping[Key, tuple[int, int, float, float, Mapping[Key, Any]]]


class CountProbe:
    """See the module. Threads that are started while it runs are counted too."""

    name = "cprofile"
    how = "count"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()
        self._threads: list[tuple[tuple[str, int], cProfile.Profile]] = []
        self._others = 0
        self._earlier = False

    def unavailable(self) -> str:
        if sys.getprofile() is not None:
            return "another profiler is on in this process (sys.setprofile)"
        return ""

    def start(self) -> None:
        """Count calls of this thread and of those that it will start."""
        self._earlier = threading.active_count() > 1
        self._hardware = HardwareCounters()
        self._readings = Readings()
        self._main = cProfile.Profile()
        threading.setprofile(self._in_new_thread)
        self._hardware.start()
        self._started = time.perf_counter()
        self._main.enable()

    def stop(self) -> Profile:
        """Exact figures by function, an estimated tree, counters."""
        wall = self._end()
        counters = (*self._readings.counters(), *self._hardware.stop())
        table = FrameTable()
        here = Thread(threading.current_thread().name, threading.get_native_id(), critical=True)
        stacks = [(here, self._main), *((Thread(*who), one) for who, one in self._threads)]
        stats = [_stats(profiler) for _, profiler in stacks]
        doubled = sum(count for _, count in stats)
        by_thread = [_functions(table, of_thread) for of_thread, _ in stats]
        functions = _summed(by_thread)
        weights = {one.of.frame: one.of.own_s for one in functions}
        codes = _codes(table, [profiler for _, profiler in stacks])
        starters = {i for i, frame in enumerate(table.frames) if frame.file in STARTERS}
        tree = _joined(by_thread, table.add(REST, kind="root"), starters)
        return new_profile(
            self.how,
            "cProfile",
            frames=table.frames,
            threads=tuple(thread for thread, _ in stacks),
            tree=tree,
            functions=functions,
            lines=_lines(table, functions),
            bytecode=hottest(weights, codes),
            counters=counters,
            wall_s=wall,
            estimated=True,
            problems=(_MIXED,) if SHARED and self._others else (),
            notes=(
                _WHOLE,
                *((_EARLIER,) if self._earlier and not SHARED else ()),
                *((_SHARED_NAMES.format(count=doubled),) if doubled else ()),
            ),
        )

    def discard(self) -> None:
        self._end()
        self._hardware.close()

    def again(self, profile: Profile, step: Step) -> Profile:
        """Ops by kind and allocations, each in a pass of its own: they cost too much otherwise."""
        more = repeated_counts(step, self._options.eager)
        return replace(profile, counters=(*profile.counters, *more))

    def _end(self) -> float:
        self._main.disable()
        wall = time.perf_counter() - self._started
        threading.setprofile(None)
        return wall

    def _in_new_thread(self, *_: object) -> None:
        """The first event of a thread: from here on it has a profiler of its own."""
        sys.setprofile(None)
        self._others += 1
        if SHARED:
            return
        thread = threading.current_thread()
        profiler = cProfile.Profile()
        self._threads.append(((thread.name, threading.get_native_id()), profiler))
        profiler.enable()


def _stats(profiler: cProfile.Profile) -> tuple[_Stats, int]:
    """What `pstats` would be given, with functions that look alike added up; how many do.

    The ops of torch that compiled code calls all have one name, and most of their time would be
    lost. A running thread's profiler is not stopped by it.
    """
    profiler.snapshot_stats()
    stats: dict[Key, tuple[int, int, float, float, Mapping[Key, Any]]] = dict(profiler.stats)
    sums: dict[Key, list[tuple[int, int, float, float]]] = {}
    for one in profiler.getstats():
        row = (one.callcount - one.reccallcount, one.callcount, one.inlinetime, one.totaltime)
        sums.setdefault(cProfile.label(one.code), []).append(row)
    for key, rows in sums.items():
        if len(rows) > 1:
            primitive, calls, own, total = (sum(column) for column in zip(*rows, strict=True))
            stats[key] = (int(primitive), int(calls), own, total, stats[key][4])
    return stats, sum(len(rows) - 1 for rows in sums.values())


def _functions(table: FrameTable, stats: _Stats) -> list[FunctionCalls]:
    """As `pstats` has it: of a function primitive calls come first, of a caller all calls."""
    return [
        FunctionCalls(
            Calls(frame_of(table, key), calls, primitive, own, total),
            tuple(Calls(frame_of(table, caller), *figures) for caller, figures in callers.items()),
        )
        for key, (primitive, calls, own, total, callers) in stats.items()
    ]


def _summed(by_thread: Sequence[Sequence[FunctionCalls]]) -> tuple[FunctionCalls, ...]:
    """Figures of all threads together."""
    if len(by_thread) == 1:
        return tuple(by_thread[0])
    of: dict[int, Calls] = {}
    callers: dict[int, dict[int, Calls]] = {}
    for functions in by_thread:
        for one in functions:
            of[one.of.frame] = _plus(of.get(one.of.frame), one.of)
            theirs = callers.setdefault(one.of.frame, {})
            for caller in one.callers:
                theirs[caller.frame] = _plus(theirs.get(caller.frame), caller)
    return tuple(FunctionCalls(calls, tuple(callers[f].values())) for f, calls in of.items())


def _plus(one: Calls | None, other: Calls) -> Calls:
    if one is None:
        return other
    calls, primitive = one.calls + other.calls, one.primitive + other.primitive
    return Calls(one.frame, calls, primitive, one.own_s + other.own_s, one.total_s + other.total_s)


def _joined(
    by_thread: Sequence[Sequence[FunctionCalls]], rest: int, starters: set[int]
) -> CallTree:
    """The estimated trees of all threads, one after the other, without the functions that start the
    work; their own time is the rest's."""
    builder = trees.TreeBuilder()
    for thread, functions in enumerate(by_thread):
        tree = trees.from_callers(functions, rest)
        nodes: list[int] = []
        for parent, frame, own in zip(tree.parents, tree.frames, tree.own, strict=True):
            above = nodes[parent] if parent >= 0 else -1
            dropped = above < 0 and frame in starters
            node = builder.child(above, rest if dropped else frame, thread)
            builder.own[node] += own
            nodes.append(-1 if dropped else node)
    return builder.tree("seconds")


def _codes(table: FrameTable, profilers: Sequence[cProfile.Profile]) -> dict[int, CodeType]:
    found = {}
    for profiler in profilers:
        for entry in profiler.getstats():
            code = entry.code
            if isinstance(code, CodeType):
                key = (code.co_filename, code.co_firstlineno, code.co_name)
                found[frame_of(table, key)] = code
    return found


def _lines(table: FrameTable, functions: Sequence[FunctionCalls]) -> tuple[LineTable, ...]:
    """The files that took most, with calls and own time where each function begins."""
    frames = table.frames
    rows: dict[tuple[str, int], tuple[int, float]] = {}
    for one in functions:
        frame = frames[one.of.frame]
        if frame.kind == "python" and frame.line:
            calls, own = rows.get((frame.file, frame.line), (0, 0.0))
            rows[frame.file, frame.line] = (calls + one.of.calls, own + one.of.own_s)
    return tuple(line_tables(rows, "hits", "seconds")[:_MOST_FILES])
