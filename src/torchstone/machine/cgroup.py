"""Where this process stands in the control groups, version 1 or 2, and what they say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from torchstone.machine.files import read_field, read_int, read_text

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


def oom_kills() -> int:
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


def usable_cores(places: Sequence[str] | None = None) -> int:
    """Cores that this process may use: those it is bound to, and the whole ones that its quota (or
    that of these folders) grants."""
    if hasattr(os, "sched_getaffinity"):
        bound = len(os.sched_getaffinity(0))
    else:
        bound = os.cpu_count() or 1
    quota = cpu_quota(places)
    return bound if quota is None else max(1, min(bound, int(quota)))
