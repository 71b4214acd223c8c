"""Resident memory: now, and over time by a thread that looks."""

from __future__ import annotations

import os
import threading
import time

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
