"""Clocks of one thread: how long it ran, how long it waited for a core, how long it collected."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchstone.machine.files import list_numbers, read_text
from torchstone.measure.clock import thread_clock

_SCHEDSTAT = 64
"""Bytes that a line of schedstat never fills."""


class WaitClock:
    """How long a thread has been ready to run but without a core; always 0 where nobody says."""

    def __init__(self, thread: int | None = None) -> None:
        thread = threading.get_native_id() if thread is None else thread
        try:
            self._file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    @property
    def known(self) -> bool:
        """Whether the system says."""
        return self._file >= 0 and len(self._words()) == 3

    def __call__(self) -> int:
        """Nanoseconds so far."""
        words = self._words()
        return int(words[1]) if len(words) == 3 else 0

    def _words(self) -> list[bytes]:
        if self._file < 0:
            return []
        try:
            return os.pread(self._file, _SCHEDSTAT, 0).split()
        except OSError:
            return []

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class CollectionClock:
    """Time in the garbage collector on one thread."""

    def __init__(self) -> None:
        self.total = 0
        self.runs = 0
        self._thread = threading.get_ident()
        self._started = 0

    def _callback(self, phase: str, info: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._started = thread_clock()
        elif self._started:
            self.total += thread_clock() - self._started
            self.runs += 1

    @contextmanager
    def watching(self) -> Iterator[CollectionClock]:
        """Count as long as this is open."""
        gc.callbacks.append(self._callback)
        try:
            yield self
        finally:
            gc.callbacks.remove(self._callback)


def run_by_thread() -> dict[int, int]:
    """CPU time of every thread of this process, by its id in the system."""
    found = {}
    for thread in list_numbers("/proc/self/task"):
        words = (read_text(f"/proc/self/task/{thread}/schedstat") or "").split()
        if len(words) == 3:
            found[thread] = int(words[0])
    return found


def other_python_threads() -> set[int]:
    """Ids in the system of the Python threads of this process, without this one."""
    me = threading.get_native_id()
    known = {thread.native_id for thread in threading.enumerate()}
    return {number for number in known if number is not None and number != me}
