"""The memory roofs: two kernels, on arrays whose size says which level they lie in.

*Triad* reads two arrays and writes a third, three words an element. *Read* sums one. Neither is
always the faster, so both are kept, and a roof is the higher one. In the small caches only reading
is measured: one triad there is over before torch has found its kernel, while a sum can go over the
same array many times in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torchstone.machine.calibrate.jobs import Repeated, Timer, wall_timer
from torchstone.machine.calibrate.sizes import (
    ARRAYS,
    Cache,
    dram_size,
    label,
    read_sizes,
    triad_size,
)
from torchstone.records import DRAM, Peak

TRIAD = (
    "triad, torch.add(b, c, alpha=3, out=a): three words an element; what a write reads first is"
    " not counted"
)
READ = "read, torch.sum: one word an element"
WORD = 4
PASS_BYTES = 8 << 20
"""Read in one sample of a cache, by each thread: some 50 to 500 µs."""
SLICE_BYTES = 8 << 20
"""Of each array in one sample of DRAM and for each thread, if half of the last level is not less:
about a millisecond. The slices walk through the whole arrays, so each is out of all caches when it
is its turn again. Slices of 2 to 16 MiB gave the same best within 2 %."""


def cache_jobs(caches: Sequence[Cache], threads: int, timer: Timer = wall_timer) -> list[Repeated]:
    """Reading in every level of cache, and the triad in the last."""
    jobs = [
        _read_job(sized.array_bytes, caches, threads, timer)
        for sized in read_sizes(caches)
        if sized.array_bytes is not None
    ]
    sized = triad_size(caches, threads)
    if sized.array_bytes is not None:
        arrays = touched(sized.array_bytes)
        jobs.append(_job(triad_sample(arrays, sized.array_bytes, timer), arrays, caches, threads))
    return jobs


def absences(caches: Sequence[Cache], threads: Sequence[int], available: int) -> list[str]:
    """Why levels are missing, in sentences."""
    found = [(sized.level, sized.reason) for sized in read_sizes(caches)]
    found += [(f"{s.level} triad", s.reason) for s in (triad_size(caches, t) for t in threads)]
    sized = dram_size(caches, available)
    found.append((sized.level, sized.reason))
    return list(dict.fromkeys(f"{level}: absent; {why}" for level, why in found if why))


class Dram:
    """Three arrays in memory, made once and shared by all jobs; none where they do not fit."""

    def __init__(self, caches: Sequence[Cache], available: int) -> None:
        self._caches = caches
        size = dram_size(caches, available).array_bytes
        self._arrays = touched(size) if size else ()

    def jobs(self, threads: int, timer: Timer = wall_timer) -> list[Repeated]:
        """The triad and reading, with so many threads."""
        if not self._arrays:
            return []
        size = slice_bytes(self._caches[-1].all_bytes, threads)
        triad = triad_sample(self._arrays, size, timer)
        read = _walking_read(self._arrays[1], size, timer)
        return [
            _job(triad, self._arrays, self._caches, threads),
            _job(read, self._arrays[1:2], self._caches, threads, READ),
        ]


def slice_bytes(last_level: int, threads: int) -> int:
    """How much of each array one sample takes."""
    return max(WORD, min(last_level // 2, SLICE_BYTES * max(1, threads)) // WORD * WORD)


def touched(size: int) -> tuple[torch.Tensor, ...]:
    """Three arrays of so many bytes, each page written once so that it exists."""
    return tuple(torch.empty(size // WORD).fill_(1.0 + i) for i in range(ARRAYS))


def walk(length: int, step: int) -> Callable[[], slice]:
    """Slices of at most `step`, one after the other through `length`, and again from the start."""
    place = 0

    def following() -> slice:
        nonlocal place
        start = place
        end = min(length, start + step)
        place = 0 if end >= length else end
        return slice(start, end)

    return following


def triad_sample(
    arrays: Sequence[torch.Tensor], size: int, timer: Timer = wall_timer
) -> Callable[[], float]:
    """A sample of the triad over the next `size` bytes of each array, in bytes a second."""
    a, b, c = arrays
    following = walk(a.numel(), size // WORD)

    def sample() -> float:
        part = following()
        x, y, z = a[part], b[part], c[part]
        seconds = timer(lambda: torch.add(y, z, alpha=3, out=x))
        return 3 * x.nbytes / seconds if seconds > 0 else 0.0

    return sample


def _walking_read(array: torch.Tensor, size: int, timer: Timer) -> Callable[[], float]:
    following = walk(array.numel(), size // WORD)
    out = torch.empty(())

    def sample() -> float:
        part = array[following()]
        seconds = timer(lambda: torch.sum(part, 0, out=out))
        return part.nbytes / seconds if seconds > 0 else 0.0

    return sample


def _read_job(size: int, caches: Sequence[Cache], threads: int, timer: Timer) -> Repeated:
    array = torch.empty(size // WORD).fill_(1.0)
    # A view that has the same array many times: each thread sums whole copies of it.
    rows = max(1, PASS_BYTES // array.nbytes) * threads
    view, out = array.expand(rows, -1), torch.empty(rows)

    def sample() -> float:
        seconds = timer(lambda: torch.sum(view, 1, out=out))
        return rows * array.nbytes / seconds if seconds > 0 else 0.0

    return _job(sample, (array,), caches, threads, READ)


def _job(
    sample: Callable[[], float],
    arrays: Sequence[torch.Tensor],
    caches: Sequence[Cache],
    threads: int,
    note: str = TRIAD,
) -> Repeated:
    """The level is read off the arrays that are truly used, not taken from the plan."""
    level = label([array.nbytes for array in arrays], caches)
    name = f"{level or 'no level'} {note.split(',')[0]}, {threads} thread{'s'[: threads != 1]}"
    template = Peak(0.0, threads=threads, level=level, array_bytes=arrays[0].nbytes, note=note)
    return Repeated(name, sample, template, weight=2.0 if level == DRAM else 1.0)
