"""Counts that the system and the interpreter keep anyway: read before and after, at no cost."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from torchstone.machine.files import read_field, read_text
from torchstone.records import Counter

_IO = "/proc/self/io"
_NET = "/proc/self/net/dev"
_NO_PROC = "not measurable here: the system does not tell"
_NET_NOTE = "of all processes of this network namespace, without the loopback"
_USAGE = (
    ("page faults, minor", "ru_minflt"),
    ("page faults, major", "ru_majflt"),
    ("context switches, voluntary", "ru_nvcsw"),
    ("context switches, involuntary", "ru_nivcsw"),
)
_FILES = (
    ("read by system calls", "rchar"),
    ("written by system calls", "wchar"),
    ("read from disk", "read_bytes"),
    ("written to disk", "write_bytes"),
)


class Readings:
    """All counts at one moment; `counters` gives what they have grown by since."""

    def __init__(self) -> None:
        self._before = {name: read() for name, _, _, read in _sources()}

    def counters(self) -> tuple[Counter, ...]:
        """What was counted since this was made."""
        found = []
        for name, unit, note, read in _sources():
            before, now = self._before[name], read()
            if before is None or now is None:
                found.append(Counter(name, None, unit, _NO_PROC))
            else:
                found.append(Counter(name, now - before, unit, note))
        return tuple(found)


_Source = tuple[str, str, str, Callable[[], float | None]]


def _sources() -> list[_Source]:
    return [
        ("CPU time of all threads", "seconds", "", _cpu_time),
        *((name, "", "", _usage(field)) for name, field in _USAGE),
        *((name, "bytes", "", _io(field)) for name, field in _FILES),
        ("received by network", "bytes", _NET_NOTE, lambda: _network(0)),
        ("sent by network", "bytes", _NET_NOTE, lambda: _network(8)),
        ("garbage collections", "", "", _collections),
        ("Python blocks kept", "blocks", "allocated and not freed", _blocks),
    ]


def _used() -> Any:
    """What the system says that this process has used; None where it does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF)


def _cpu_time() -> float | None:
    used = _used()
    return None if used is None else float(used.ru_utime + used.ru_stime)


def _usage(field: str) -> Callable[[], float | None]:
    def read() -> float | None:
        used = _used()
        return None if used is None else float(getattr(used, field))

    return read


def _io(field: str) -> Callable[[], float | None]:
    return lambda: read_field(_IO, field)


def _network(column: int) -> float | None:
    """Bytes received (column 0) or sent (column 8) by all devices but the loopback."""
    text = read_text(_NET)
    if text is None:
        return None
    total = 0
    for line in text.splitlines()[2:]:
        device, _, figures = line.partition(":")
        if device.strip() != "lo":
            total += int(figures.split()[column])
    return float(total)


def _collections() -> float:
    return float(sum(generation["collections"] for generation in gc.get_stats()))


def _blocks() -> float:
    return float(sys.getallocatedblocks())
