"""Where the thread blocks: every C function that kept it off the core, and who called it.

A profile function sees each call of a C function. One that took longer than the thread ran was
blocked, or pushed off its core; the kernel's own account of waiting for a core tells which.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from types import FrameType
from typing import Any

from torchstone.explain.passes.report import Block
from torchstone.machine.processes import list_numbers, read_text
from torchstone.measure.arm import Phase
from torchstone.measure.loops import thread_clock, wall_clock

# Clocks of one thread: how long it ran, how long it waited for a core, how long it collected.


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

    def __call__(self) -> int:
        """Nanoseconds so far."""
        if self._file < 0:
            return 0
        try:
            words = os.pread(self._file, _SCHEDSTAT, 0).split()
        except OSError:
            return 0
        return int(words[1]) if len(words) == 3 else 0

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


LEAST_OFF_NS = 20_000
"""Shorter absences are the scheduler's."""
MOST_BLOCKS = 12
ELSEWHERE = "elsewhere"
SLEEP, LOCK, FILE, NETWORK = "sleep", "locks", "files", "network"
LOADING, TORCH, OTHER = "loading", "torch", "other"
_SLEEPS = ("sleep", "nanosleep", "pause")
_LOCKS = ("acquire", "__enter__", "wait", "join", "get", "put", "acquire_lock", "_wait")
_FILES = (
    *("read", "readinto", "readline", "readlines", "write", "writelines", "flush", "open", "close"),
    *("pread", "pwrite", "preadv", "fsync", "fdatasync", "stat", "lstat", "fstat", "listdir"),
    *("scandir", "unlink", "rename", "mkdir", "truncate", "seek", "readall", "fromfile", "tofile"),
)
_NETWORK = (
    *("recv", "recv_into", "recvfrom", "send", "sendall", "sendto", "accept", "connect"),
    *("poll", "select", "epoll_wait"),
)
_SOCKETS = ("_socket", "socket", "_ssl")


@dataclass
class _Entry:
    """All calls of one function from one place. Time on the core is kept call by call: a neighbour
    that slows it down for a while must not count."""

    off: int = 0
    on: list[int] = field(default_factory=list)

    def block(self, key: tuple[str, str, str], steps: int) -> Block:
        usual = median(self.on) * len(self.on)
        return Block(*key, self.off / steps, usual / steps, len(self.on) / steps)


class _Watch:
    """The profile function and what it has seen."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], _Entry] = {}
        self._wait = WaitClock()
        self._open: tuple[int, int, int] | None = None

    def __call__(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            waited = self._wait()
            self._open = (wall_clock(), thread_clock(), waited)
        elif event in ("c_return", "c_exception"):
            if self._open is None:  # the function called back into Python in between
                return
            wall, cpu, waited = self._open
            self._open = None
            on = thread_clock() - cpu
            off = wall_clock() - wall - on
            kind = kind_of(function)
            if off < LEAST_OFF_NS and kind not in (FILE, NETWORK):
                return
            off -= self._wait() - waited
            self._add(frame, function, kind, off, on)
        else:
            self._open = None

    def _add(self, frame: FrameType, function: Any, kind: str, off: int, on: int) -> None:
        if _loads(frame):
            kind = LOADING
        key = (kind, _name(function), _place(frame))
        entry = self.found.setdefault(key, _Entry())
        entry.off += max(0, off)
        entry.on.append(on)

    def close(self) -> None:
        self._wait.close()


def kind_of(function: Any) -> str:
    """What a C function that blocks is waiting for."""
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None) or ""
    owner = type(getattr(function, "__self__", None))
    home = f"{owner.__module__}.{owner.__name__}"
    if module.startswith("torch") or home.startswith("torch"):
        return TORCH
    if name in _SLEEPS:
        return SLEEP
    if name in _NETWORK or owner.__module__ in _SOCKETS:
        return NETWORK
    if home.startswith(("_thread.", "_multiprocessing.", "_queue.", "queue.")) or name in _LOCKS:
        return LOCK
    if name in _FILES and (module in ("posix", "io", "_io", "os", "nt", "numpy") or "io" in home):
        return FILE
    return OTHER


def _loads(frame: FrameType | None) -> bool:
    while frame is not None:
        if "torch/utils/data/" in frame.f_code.co_filename.replace("\\", "/"):
            return True
        frame = frame.f_back
    return False


def _name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", getattr(function, "__name__", "?"))
    module = getattr(function, "__module__", None)
    if module is None and owner is not None and not isinstance(owner, type):
        module = type(owner).__module__
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def _place(frame: FrameType) -> str:
    """The nearest caller that is not the library's own: where a person would look."""
    found: FrameType | None = frame
    while found is not None and _is_plumbing(found.f_code.co_filename):
        found = found.f_back
    shown = found or frame
    return f"{shown.f_code.co_filename}:{shown.f_lineno}"


def _is_plumbing(path: str) -> bool:
    path = path.replace("\\", "/")
    if "/site-packages/torch/" in path or path.startswith("<"):
        return True
    home = sys.base_prefix.replace("\\", "/")
    return path.startswith(home) and "/site-packages/" not in path


def blocked_pass(
    block: Callable[[], object], loops: int, count: int, phase: Phase
) -> tuple[Block, ...]:
    """Run the block `count` times under the profile function; the slowest first."""
    phase("passes")
    if sys.getprofile() is not None:
        return ()
    watch = _Watch()
    sys.setprofile(watch)
    try:
        for _ in range(count):
            block()
    finally:
        sys.setprofile(None)
        watch.close()
    steps = count * loops
    return cut([entry.block(key, steps) for key, entry in watch.found.items()])


def cut(blocks: Sequence[Block], most: int = MOST_BLOCKS) -> tuple[Block, ...]:
    """The slowest by name; the others added up, one for each kind, so that no time is lost."""
    ordered = sorted(blocks, key=lambda one: -(one.off + one.on))
    others: dict[str, Block] = {}
    for one in ordered[most:]:
        so_far = others.get(one.kind, Block(one.kind, ELSEWHERE, "", 0.0, 0.0, 0.0))
        off, on = so_far.off + one.off, so_far.on + one.on
        others[one.kind] = replace(so_far, off=off, on=on, calls=so_far.calls + one.calls)
    return (*ordered[:most], *others.values())
