"""Which arrays lie in which level of memory: cache sizes in, array sizes and labels out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchstone.machine.files import read_text
from torchstone.records import DRAM

DRAM_TIMES = 4
"""Each array at least this many times the last-level cache, as STREAM's run rules ask."""
INSIDE = 0.5
"""Of a cache that a working set may fill: code, stack and the neighbours' lines need room too."""
OUTSIDE = 2
"""A working set is outside a cache when it is at least this many times as large."""
MEMORY_SHARE = 0.5
"""Of the available memory that the arrays may take."""
ARRAYS = 3
_MIB = 1 << 20
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_INDEXES = 10
ROOT = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class Cache:
    """One level of data cache. `bytes` is one cache (the smallest, where they differ), `total` all
    of that level that the allowed cores see, `instances` how many those are."""

    level: int
    bytes: int
    instances: int = 1
    total: int = 0

    @property
    def name(self) -> str:
        return f"L{self.level}"

    @property
    def all_bytes(self) -> int:
        return max(self.total, self.bytes * self.instances)


@dataclass(frozen=True)
class Sized:
    """A size of array for a level, or None with the reason why there is none."""

    level: str
    array_bytes: int | None
    reason: str = ""


def read_caches(cores: Iterable[int], root: str = ROOT) -> tuple[Cache, ...]:
    """The data caches of these cores by sysfs, lowest level first; empty where it is silent."""
    found: dict[int, dict[str, int]] = {}
    for core in cores:
        for index in range(_MOST_INDEXES):
            folder = os.path.join(root, f"cpu{core}", "cache", f"index{index}")
            kind = (read_text(f"{folder}/type") or "").strip()
            level = (read_text(f"{folder}/level") or "").strip()
            size = re.match(r"(\d+)([KMG]?)", read_text(f"{folder}/size") or "")
            if kind not in ("Data", "Unified") or not level.isdigit() or not size:
                continue
            shared = (read_text(f"{folder}/shared_cpu_list") or str(core)).strip()
            found.setdefault(int(level), {})[shared] = int(size[1]) * _UNITS[size[2]]
    return tuple(
        Cache(level, min(sizes.values()), len(sizes), sum(sizes.values()))
        for level, sizes in sorted(found.items())
        if min(sizes.values()) > 0
    )


def caches_by_name(sizes: dict[str, int]) -> tuple[Cache, ...]:
    """The same from names such as `L1d`, without sysfs; one of each level is assumed."""
    found = {}
    for name, size in sizes.items():
        level = re.fullmatch(r"L(\d)d?", name)
        if level and size > 0:
            found[int(level[1])] = Cache(int(level[1]), size)
    return tuple(cache for _, cache in sorted(found.items()))


def label(arrays: Sequence[int], caches: Sequence[Cache]) -> str:
    """The level that arrays of these bytes lie in, used together; empty where that is not certain.

    `DRAM` only if each one is at least `DRAM_TIMES` all of the last level.
    """
    if not caches or not arrays:
        return ""
    last = caches[-1]
    if min(arrays) >= DRAM_TIMES * last.all_bytes:
        return DRAM
    used, under = sum(arrays), 0
    for cache in caches:
        room = cache.all_bytes if cache is last else cache.bytes
        if OUTSIDE * under <= used <= INSIDE * room:
            return cache.name
        under = cache.bytes
    return ""


def read_sizes(caches: Sequence[Cache]) -> list[Sized]:
    """For a kernel that reads one array on every thread: its size in each level of cache."""
    sized, under = [], 0
    for cache in caches:
        wanted = _whole_words(int(INSIDE * cache.bytes))
        if wanted >= OUTSIDE * under:
            sized.append(Sized(cache.name, wanted))
        else:
            sized.append(Sized(cache.name, None, "too little larger than the level beneath it"))
        under = cache.bytes
    return sized


def triad_size(caches: Sequence[Cache], threads: int) -> Sized:
    """For a kernel that shares three arrays out among the threads: their size in the last cache."""
    if not caches:
        return Sized("", None, "the sizes of the caches are not known")
    last = caches[-1]
    under = caches[-2].bytes if len(caches) > 1 else 0
    used = int(INSIDE * last.bytes * max(1, min(threads, last.instances)))
    if used // max(1, threads) < OUTSIDE * under:
        return Sized(last.name, None, "each thread's part would fit into the level beneath it")
    return Sized(last.name, _whole_words(used // ARRAYS))


def dram_size(caches: Sequence[Cache], available: int) -> Sized:
    """The size of each of three arrays that lie in memory for certain, if there is room."""
    if not caches:
        return Sized(
            DRAM, None, "the last-level cache is not known, so no array is certain to lie outside"
        )
    wanted = -(-DRAM_TIMES * caches[-1].all_bytes // _MIB) * _MIB
    if ARRAYS * wanted > MEMORY_SHARE * available:
        return Sized(
            DRAM,
            None,
            f"{ARRAYS} arrays of {wanted // _MIB} MiB ({DRAM_TIMES} times the last-level cache)"
            f" need more than half of the {available // _MIB} MiB that are free",
        )
    return Sized(DRAM, wanted)


def _whole_words(size: int) -> int:
    """Rounded down to whole cache lines, which are whole words of every dtype too."""
    return max(64, size // 64 * 64)
