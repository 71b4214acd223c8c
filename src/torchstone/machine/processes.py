"""Processes seen from outside: are they quiet, how much did they use, are they truly gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

from torchstone.machine import cgroup
from torchstone.machine.files import list_numbers, read_field, read_text

KILL_LIMIT_S = 2.0
"""How long `kill_tree` goes on; a process that survives that is stuck in the kernel."""
_KILL_PAUSE_S = 0.01
_PR_SET_PDEATHSIG = 1
_BUSY_STATES = "RD"
_KIB = 1024


def thread_run_ns(pid: int) -> int | None:
    """CPU time of all living threads of a process.

    Of a thread that is running this moment the kernel shows only what it had used at the last
    scheduler tick, up to 4 ms (or 10) ago; of a sleeping thread all of it.
    """
    runs = _runs(pid)
    return sum(runs.values()) if runs else None


def _runs(pid: int) -> dict[int, int]:
    runs = {}
    for thread in list_numbers(f"/proc/{pid}/task"):
        words = (read_text(f"/proc/{pid}/task/{thread}/schedstat") or "").split()
        if len(words) == 3:
            runs[thread] = int(words[0])
    return runs


def _any_busy(pid: int) -> bool:
    return any(
        _state(f"/proc/{pid}/task/{thread}") in _BUSY_STATES
        for thread in list_numbers(f"/proc/{pid}/task")
    )


def _state(folder: str) -> str:
    """The letter of a process's or thread's state; `X` when it is gone."""
    # The name before it is in brackets and may itself hold spaces and brackets.
    after_name = (read_text(f"{folder}/stat") or "").rpartition(")")[2].split()
    return after_name[0] if after_name else "X"


def wait_until_quiet(pid: int, limit_s: float, pause_s: float = 0.0005) -> tuple[int | None, int]:
    """Wait until no thread of the process runs; when that was, and the CPU time used till then.

    Quiet means: between two reads no thread's CPU time grew, and at the second none was running
    or runnable. The state is needed too, because CPU time grows only at scheduler ticks: a
    spinning thread shows none for milliseconds. Returns None for the time if the limit passed
    (or the system does not say).
    """
    start = time.perf_counter_ns()
    limit = start + int(limit_s * 1e9)
    runs = _runs(pid)
    if not runs:
        return None, 0
    late = 0
    while True:
        read_at = time.perf_counter_ns()
        time.sleep(pause_s)
        now = _runs(pid)
        grown = sum(max(0, run - runs.get(thread, 0)) for thread, run in now.items())
        late += grown
        runs = now
        if not grown and not _any_busy(pid):
            return read_at - start, late
        if time.perf_counter_ns() >= limit:
            return None, late


def tagged_processes(tag_name: str, tag_value: str) -> list[int]:
    """Every other process that was started with `tag_name=tag_value` in its environment."""
    me = os.getpid()
    entry = f"{tag_name}={tag_value}"
    return [pid for pid in list_numbers("/proc") if pid != me and _is_tagged(pid, entry)]


def _is_tagged(pid: int, entry: str) -> bool:
    text = read_text(f"/proc/{pid}/environ")
    return text is not None and entry in text.split("\0")


def kill_tree(pgid: int, tag_name: str, tag_value: str) -> int:
    """Kill a worker's process group, its session, and everything that carries its tag.

    The tag finds what left the group by `setsid` and lost its parent. Goes on until nothing is
    left or `KILL_LIMIT_S` is over; returns how many processes besides the leader were killed.
    """
    killed: set[int] = set()
    limit = time.monotonic() + KILL_LIMIT_S
    if pgid <= 1 or pgid == os.getpgrp():
        raise ValueError(f"refusing to kill process group {pgid}")
    while True:
        # Look before killing: the children of a dead process can no longer be told from others.
        victims = _members(pgid, f"{tag_name}={tag_value}")
        with contextlib.suppress(OSError):
            os.killpg(pgid, signal.SIGKILL)
        for pid in victims:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= victims
        if not victims or time.monotonic() >= limit:
            return len(killed - {pgid})
        time.sleep(_KILL_PAUSE_S)


def _members(pgid: int, entry: str) -> set[int]:
    """Living processes of the tree: by group, session, tag, or as a descendant of one of these."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    for pid in set(list_numbers("/proc")) - {os.getpid()}:
        words = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        if len(words) < 4 or words[0] in "ZX":
            continue
        parents[pid] = int(words[1])
        if pgid in (int(words[2]), int(words[3])) or _is_tagged(pid, entry):
            members.add(pid)
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        members |= more
        grew = bool(more)
    return members


def oom_kills() -> int:
    """A counter that grows when the kernel kills for want of memory.

    Only its growth means something: the machine and the control groups may count the same kill.
    """
    return (read_field("/proc/vmstat", "oom_kill") or 0) + cgroup.oom_kills()


def memory_available() -> int:
    """Bytes that a new process may take without swapping or meeting a limit.

    Where the system does not say what is free (no /proc), all of the memory.
    """
    kib = read_field("/proc/meminfo", "MemAvailable")
    free = _physical_memory() if kib is None else kib * _KIB
    headroom = cgroup.memory_headroom()
    return free if headroom is None else min(free, headroom)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def die_with_parent(parent: int | None = None) -> bool:
    """Ask the kernel to kill this process when its parent dies; False where it cannot.

    Give the parent's id to end at once if it is dead already. The kernel means the parent's
    *thread*: the one that starts workers must live as long as they do.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        failed = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return False
    if parent is not None and os.getppid() != parent:
        os._exit(1)
    return not failed
