"""Counters of the processor, by the kernel's `perf_event_open`, where machine and system let us."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import itertools
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchstone.machine.processes import list_numbers, read_field, read_text, read_word
from torchstone.records import Counter

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
