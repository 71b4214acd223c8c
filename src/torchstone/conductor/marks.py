"""When the timed part of a turn began and ended, by a clock that the measured code cannot reach.

The worker sends a byte at its begin and its end, and the kernel notes when each was sent: with its
own clock, to the microsecond, however late we read it. So nobody wakes up while an arm is timed,
and a busy machine, on which we might get a core milliseconds too late, does not spoil the reading.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from types import TracebackType
from typing import NamedTuple

SO_TIMESTAMPNS = 35
"""From <asm-generic/socket.h>; the message that carries the time has the same number."""
_TIMESPEC = struct.Struct("@qq")
LOST = -1
"""Fewer or more marks than a turn has: user code closed the socket or wrote to it."""


class Marked(NamedTuple):
    """What the kernel says of a turn."""

    whole_ns: int
    sample_ns: int | None = None
    """Of the one sample that was marked within it."""


MOST_STEP_NS = 200_000
"""The kernel's stamps are the time of day. Where that was set meanwhile by more than this, a turn
has no second reading."""


class Marks:
    """A pair of sockets: the worker marks, we read."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.theirs = theirs.detach()
        self._ours.setblocking(False)
        self._offset = 0
        self.stamped = False
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self.stamped = True

    def __enter__(self) -> Marks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close_theirs(self) -> None:
        """The worker has its own copy."""
        os.close(self.theirs)

    def close(self) -> None:
        """Nothing more is read."""
        self._ours.close()

    def clear(self) -> None:
        """What was marked until now is of no interest."""
        self._read()
        self._offset = _day_offset()

    def between(self) -> Marked | None:
        """The time from the first mark to the last, and between two within; None where the system
        does not say."""
        stamps = self._read()
        if not self.stamped:
            return None
        if len(stamps) not in (2, 4):
            return Marked(LOST)
        if abs(_day_offset() - self._offset) > MOST_STEP_NS:
            return None
        sample = max(0, stamps[2] - stamps[1]) if len(stamps) == 4 else None
        return Marked(max(0, stamps[-1] - stamps[0]), sample)

    def _read(self) -> list[int]:
        stamps = []
        with contextlib.suppress(BlockingIOError):
            while True:
                _, ancillary, _, _ = self._ours.recvmsg(16, 128)
                for level, kind, data in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                        seconds, ns = _TIMESPEC.unpack(data[: _TIMESPEC.size])
                        stamps.append(seconds * 1_000_000_000 + ns)
        return stamps


def _day_offset() -> int:
    """How far the time of day is ahead of the clock that nobody sets: the tightest of a few looks,
    because we may lose the core between two readings."""
    looks = []
    for _ in range(3):
        before = time.monotonic_ns()
        day = time.time_ns()
        after = time.monotonic_ns()
        looks.append((after - before, day - before))
    return min(looks)[1]
