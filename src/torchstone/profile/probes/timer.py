"""A timer of the kernel that sends this thread a signal: it needs neither a thread nor the GIL."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

MONOTONIC, THREAD_CPU = 1, 3
"""Clocks: of the wall, and of the CPU time that the calling thread uses."""
_SIGEV_THREAD_ID = 4
"""From <time.h> and <signal.h> of Linux, like the clocks."""
_SECOND_NS = 1_000_000_000


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


class _Setting(ctypes.Structure):
    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("in_s", ctypes.c_long),
        ("in_ns", ctypes.c_long),
    )


class NoTimer(OSError):
    """The system has no such timers, or no more of them."""


class Timer:
    """Goes off once each time it is armed; the signal goes to the thread that made it."""

    def __init__(self, signal_number: int, clock: int = MONOTONIC) -> None:
        self._library = _library()
        event = _Event(None, signal_number, _SIGEV_THREAD_ID, threading.get_native_id(), b"")
        self._timer = ctypes.c_void_p()
        if self._library.timer_create(clock, ctypes.byref(event), ctypes.byref(self._timer)):
            raise NoTimer("the system gives no timer")
        # Made once: it is armed at each look, and a look has to be cheap.
        self._setting = _Setting(0, 0, 0, 0)
        self._place = ctypes.byref(self._setting)
        self._set = self._library.timer_settime

    def arm(self, seconds: float) -> None:
        """Send the signal in so many seconds, instead of whenever it was to be sent."""
        whole = int(seconds)
        self._setting.in_s = whole
        self._setting.in_ns = max(1, int((seconds - whole) * _SECOND_NS))
        self._set(self._timer, 0, self._place, None)

    @property
    def left(self) -> float:
        """Seconds until it goes off; 0 when it has."""
        left = _Setting(0, 0, 0, 0)
        self._library.timer_gettime(self._timer, ctypes.byref(left))
        return float(left.in_s + left.in_ns / _SECOND_NS)

    def close(self) -> None:
        """No signal comes after this."""
        self._library.timer_settime(self._timer, 0, ctypes.byref(_Setting(0, 0, 0, 0)), None)
        self._library.timer_delete(self._timer)


def _library() -> Any:
    if sys.platform.startswith("linux"):
        for name in (None, "librt.so.1"):  # before glibc 2.34 timers were apart
            try:
                library = ctypes.CDLL(name)
                if hasattr(library, "timer_create"):
                    return library
            except OSError:
                continue
    raise NoTimer("the system has no such timers")
