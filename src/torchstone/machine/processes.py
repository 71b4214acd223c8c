"""Processes seen from outside: are they quiet, how much did they use, are they truly gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import cache

# Small reads from the kernel's text files that never raise.


_CHUNK = 65536


def read_text(path: str) -> str | None:
    """The file's text, or None if it is missing, unreadable or vanished while being read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def read_word(path: str) -> str:
    """The file's text without blanks around it; empty where there is none."""
    return (read_text(path) or "").strip()


def read_int(path: str) -> int | None:
    """The one integer that the file holds, or None."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def read_field(path: str, name: str) -> int | None:
    """The integer after `name` on the line that starts with it, as in `throttled_time 12`."""
    return field_in(read_text(path) or "", name)


def field_in(text: str, name: str) -> int | None:
    """The same of a text that was read."""
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def list_numbers(folder: str) -> list[int]:
    """The entries of a folder whose names are numbers: processes in /proc, threads in a task."""
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


KILL_LIMIT_S = 2.0
"""How long `kill_tree` goes on; a process that survives that is stuck in the kernel."""
_KILL_PAUSE_S = 0.01
_PR_SET_PDEATHSIG = 1
_BUSY_STATES = "RD"
_KIB = 1024


def by_thread(process: int | str, column: int) -> dict[int, int]:
    """Nanoseconds that each living thread has run (column 0) or waited for a core (1).

    Of a thread that is running this moment the kernel shows only what it had used at the last
    scheduler tick, up to 4 ms (or 10) ago; of a sleeping thread all of it.
    """
    found = {}
    for thread in list_numbers(f"/proc/{process}/task"):
        words = read_word(f"/proc/{process}/task/{thread}/schedstat").split()
        if len(words) == 3:
            found[thread] = int(words[column])
    return found


_CPUCLOCK_SCHED = 2


def process_cpu_ns(pid: int) -> int | None:
    """CPU time of all threads of a process, the ended ones too, as the kernel has it this moment.

    It is the clock that `process_time_ns` reads inside the process (clock_getcpuclockid(3)), and no
    code in there can change what we read. None where there is no such clock or process.
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return None


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
    runs = by_thread(pid, 0)
    if not runs:
        return None, 0
    late = 0
    while True:
        read_at = time.perf_counter_ns()
        time.sleep(pause_s)
        now = by_thread(pid, 0)
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
    """A counter that grows when the kernel kills for lack of memory.

    Only its growth means something: the machine and the control groups may count the same kill.
    """
    return (read_field("/proc/vmstat", "oom_kill") or 0) + cgroup_oom_kills()


def memory_available() -> int:
    """Bytes that a new process may take without swapping or meeting a limit.

    Where the system does not say what is free (no /proc), all of the memory.
    """
    kib = read_field("/proc/meminfo", "MemAvailable")
    free = physical_memory() if kib is None else kib * _KIB
    headroom = memory_headroom()
    return free if headroom is None else min(free, headroom)


def physical_memory() -> int:
    """All the memory there is, as the C library tells it; 0 where it does not."""
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


# Where this process stands in the control groups, version 1 or 2, and what they say.


NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest page-aligned integer; anything this big is none."""


@cache
def folders(controller: str, root: str = "") -> tuple[str, ...]:
    """This process's folder for one controller and all its ancestors, both versions together.

    An ancestor's limit or quota binds as much as one's own. `root` is where another system's
    files lie.
    """
    found: list[str] = []
    for version, kinds, path in _memberships(root):
        if version == 1 and controller not in kinds:
            continue
        mount = _mount(version, controller, root)
        if mount is not None:
            found.extend(_with_ancestors(mount, path))
    return tuple(found)


def _memberships(root: str) -> list[tuple[int, list[str], str]]:
    found = []
    for line in (read_text(f"{root}/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        found.append((2 if number == "0" and not kinds else 1, kinds.split(","), path))
    return found


def _mount(version: int, controller: str, root: str) -> tuple[str, str] | None:
    """Mount point, and the group that is its root (not `/` inside some containers)."""
    for line in (read_text(f"{root}/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3:
            continue
        if version == 2 and kind[0] == "cgroup2":
            return root + place[4], place[3]
        if version == 1 and kind[0] == "cgroup" and controller in kind[2].split(","):
            return root + place[4], place[3]
    return None


def _with_ancestors(mount: tuple[str, str], path: str) -> list[str]:
    point, root = mount
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    inside = [part for part in path.split("/") if part not in ("", "..")]
    found = [os.path.join(point, *inside[:depth]) for depth in range(len(inside), -1, -1)]
    return [folder for folder in found if os.path.isdir(folder)]


@cache
def _throttle_files() -> tuple[tuple[str, str, int], ...]:
    fields = (("throttled_time", 1), ("throttled_usec", 1000))
    return tuple(
        (path, name, to_ns)
        for path in (os.path.join(folder, "cpu.stat") for folder in folders("cpu"))
        for name, to_ns in fields
        if read_field(path, name) is not None
    )


def throttled_ns() -> int | None:
    """Time for which a CPU quota held this group back, summed over its levels and CPUs."""
    files = _throttle_files()
    if not files:
        return None
    return sum((read_field(path, name) or 0) * to_ns for path, name, to_ns in files)


def memory_headroom(places: Sequence[str] | None = None) -> int | None:
    """Bytes left under the tightest memory limit (of these folders); None without one.

    File cache that has not been used of late is counted as free, as MemAvailable does.
    """
    left: int | None = None
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ("memory.max", "memory.current", "inactive_file"),
    )
    for folder in folders("memory") if places is None else places:
        for limit_name, usage_name, cache_name in names:
            limit = read_int(os.path.join(folder, limit_name))
            usage = read_int(os.path.join(folder, usage_name))
            if limit is None or usage is None or limit >= NO_LIMIT:
                continue
            cache = read_field(os.path.join(folder, "memory.stat"), cache_name) or 0
            here = max(0, limit - max(0, usage - cache))
            left = here if left is None else min(left, here)
    return left


def cgroup_oom_kills() -> int:
    """Kills by the memory controller in this group and its ancestors."""
    return sum(
        read_field(os.path.join(folder, name), "oom_kill") or 0
        for folder in folders("memory")
        for name in ("memory.oom_control", "memory.events")
    )


def cpu_quota(places: Sequence[str] | None = None) -> float | None:
    """How many cores' worth of time the tightest quota (of these folders) grants, or None."""
    granted: list[float] = []
    for folder in folders("cpu") if places is None else places:
        quota = read_int(os.path.join(folder, "cpu.cfs_quota_us"))
        period = read_int(os.path.join(folder, "cpu.cfs_period_us"))
        words = (read_text(os.path.join(folder, "cpu.max")) or "").split()
        if len(words) == 2 and words[0].isdigit():
            quota, period = int(words[0]), int(words[1])
        if quota and period and quota > 0:
            granted.append(quota / period)
    return min(granted) if granted else None


def allowed_cores() -> frozenset[int]:
    """The cores that this process is bound to."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores(places: Sequence[str] | None = None, cores: int | None = None) -> int:
    """Cores that this process may use: those it is bound to (or so many), and the whole ones that
    its quota (or that of these folders) grants."""
    bound = len(allowed_cores()) if cores is None else cores
    quota = cpu_quota(places)
    return bound if quota is None else max(1, min(bound, int(quota)))
