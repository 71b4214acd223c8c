"""Clocks, bound before any user code is imported, and the check that they are still themselves."""

from __future__ import annotations

import threading
import time

wall_clock = time.perf_counter_ns
cpu_clock = time.process_time_ns
thread_clock = time.thread_time_ns

_WATCHED = (
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "sleep",
)
_ORIGINALS = {name: getattr(time, name) for name in _WATCHED}


def patched_timers() -> tuple[str, ...]:
    """Functions of `time` that user code has replaced. Ours were bound before, so still true."""
    return tuple(n for n, original in _ORIGINALS.items() if getattr(time, n, None) is not original)


def python_threads() -> int:
    """Python threads alive now."""
    return threading.active_count()
