"""The peaks of the processor: products, memory by level, and what the smallest things cost."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, repeat
from time import perf_counter_ns as _now

import torch

from torchstone.machine import hardware
from torchstone.machine.calibrate.request import (
    LEAST_SAMPLES,
    LEVELS,
    NOBODY,
    Job,
    Repeated,
    Request,
    Say,
    Timer,
    drop_false_memory,
    mark_impossible,
    run_jobs,
    wall_timer,
)
from torchstone.machine.clock import measure_clock, nominal_clock_hz
from torchstone.machine.hardware import best_cost, best_rate
from torchstone.machine.processes import allowed_cores, memory_available, usable_cores
from torchstone.records import DRAM, Calibration, Peak
from torchstone.records.format import count

# The compute peak: the best of many short products of square matrices.


SIDES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288)
"""Tried from the smallest up, as long as one product stays short."""
MOST_SAMPLE_S = 2e-3
"""A sample must fit between two interruptions: on a shared core the scheduler's turn is a few ms,
and of longer products none was ever seen undisturbed."""
TRIALS = 5
KEPT = 3
"""How many sides are sampled on after the trial."""

TORCH_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp64": torch.float64,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}
MM = "torch.mm of square matrices"
INT_MM = "torch._int_mm of square matrices; integer operations"


@dataclass
class _Side:
    length: int
    call: Callable[[], object]
    seconds: list[float] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        work = 2 * self.length**3
        return [work / seconds for seconds in self.seconds if seconds > 0]

    @property
    def best(self) -> float:
        return max(self.rates, default=0.0)


class Gemm:
    """Samples of one dtype at one thread count (0 on an accelerator)."""

    def __init__(
        self,
        dtype: str,
        threads: int,
        device: str = "cpu",
        timer: Timer = wall_timer,
        weight: float = 1.0,
    ) -> None:
        self.name = f"{dtype}, {count(threads, 'thread')}" if threads else dtype
        self.dtype = dtype
        self.threads = threads
        self.weight = weight
        self._device = device
        self._timer = timer
        self._sides: list[_Side] = []

    def sample_for(self, seconds: float) -> None:
        """Samples in turn of the sides that did best; the first time, finds out which these are."""
        end = _now() + int(seconds * 1e9)
        if not self._sides:
            self._explore(end)
        sides = cycle(self._sides)
        taken = 0
        for side in self._sides:
            side.call()  # into the caches
        while taken < LEAST_SAMPLES or _now() < end:
            self._take(next(sides))
            taken += 1

    def _explore(self, end: int) -> None:
        tried: list[_Side] = []
        for length in SIDES:
            side = _Side(length, product(self.dtype, length, self._device))
            self._timer(side.call)  # the library chooses its kernel, pages are touched
            for _ in range(TRIALS):
                self._take(side)
            tried.append(side)
            if min(side.seconds) > MOST_SAMPLE_S or _now() > end:
                break
        short = [side for side in tried if min(side.seconds) <= MOST_SAMPLE_S] or tried[:1]
        self._sides = sorted(short, key=lambda side: side.best, reverse=True)[:KEPT]

    def _take(self, side: _Side) -> None:
        side.seconds.append(self._timer(side.call))

    def peak(self) -> Peak | None:
        """The best rate; spread and number are those of the side that reached it."""
        best = max(self._sides, key=lambda side: side.best, default=None)
        if best is None:
            return None
        what = INT_MM if self.dtype == "int8" else MM
        note = f"{what}, {best.length} a side"
        return best_rate(best.rates, Peak(0.0, dtype=self.dtype, threads=self.threads, note=note))


def product(dtype: str, length: int, device: str) -> Callable[[], object]:
    """A call that multiplies two matrices of random numbers into a third."""
    shape = (length, length)
    if dtype == "int8":
        left, right = (
            torch.randint(-8, 8, shape, dtype=torch.int8, device=device) for _ in range(2)
        )
        return lambda: torch._int_mm(left, right)
    kind = TORCH_DTYPES[dtype]
    a, b = (torch.randn(shape, device=device).to(kind) for _ in range(2))
    out = torch.empty(shape, dtype=kind, device=device)
    return lambda: torch.mm(a, b, out=out)


# What the smallest things cost: a reading of the timer, a Python call, an op of torch.


ROUNDS = 200
CALLS = 200
"""Of a block: some 10 to 300 µs."""


def measure_costs() -> dict[str, Peak]:
    """Seconds each, the best of many blocks; what cannot be seen is absent."""
    found = {"timer": timer_cost(), "python-call": call_cost(), "dispatch": dispatch_cost()}
    return {name: cost for name, cost in found.items() if cost is not None}


def timer_cost() -> Peak | None:
    """From one reading of the timer to the next."""
    gaps = []
    for _ in repeat(None, ROUNDS * CALLS):
        start = _now()
        gaps.append((_now() - start) / 1e9)
    return best_cost(gaps, Peak(0.0, note="time.perf_counter_ns, back to back"))


def call_cost() -> Peak | None:
    """A call of a Python function that does nothing, without the loop around it."""

    def nothing() -> None:
        pass

    def calls() -> None:
        for _ in repeat(None, CALLS):
            nothing()

    def empty() -> None:
        for _ in repeat(None, CALLS):
            pass

    loop = min(_blocks(empty))
    costs = (seconds - loop for seconds in _blocks(calls))
    return best_cost(costs, Peak(0.0, threads=1, note="an empty function, less the empty loop"))


def dispatch_cost() -> Peak | None:
    """An op of torch on one element: argument parsing, dispatch and a kernel with nothing to do."""
    with torch.inference_mode():
        one, out = torch.ones(1), torch.empty(1)
        add = torch.add

        def ops() -> None:
            for _ in repeat(None, CALLS):
                add(one, one, out=out)

        note = "torch.add of one element, out="
        return best_cost(_blocks(ops), Peak(0.0, dtype="fp32", threads=1, note=note))


def _blocks(block: Callable[[], None]) -> list[float]:
    """Seconds of one of the calls in a block, many times."""
    block()
    found = []
    for _ in repeat(None, ROUNDS):
        start = _now()
        block()
        found.append((_now() - start) / 1e9 / CALLS)
    return found


# Which arrays lie in which level of memory: cache sizes in, array sizes and labels out.


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


def read_caches(cores: Iterable[int], root: str = hardware.CPUS) -> tuple[Cache, ...]:
    """The data caches of these cores by sysfs, lowest level first; empty where it is silent."""
    found: dict[int, dict[str, int]] = {}
    for core in cores:
        for level, kind, size, shared in hardware.caches_of(core, root):
            if kind in ("Data", "Unified"):
                found.setdefault(level, {})[shared] = size
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


# The memory peaks: two kernels, on arrays whose size says which level they lie in.
#
# *Triad* reads two arrays and writes a third, three words an element. *Read* sums one. Neither is
# always the faster, so both are kept, and a peak is the higher one. In the small caches only
# reading is measured: one triad there is over before torch has found its kernel, while a sum can go
# over the same array many times in one call.


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


def dram_jobs(
    arrays: Sequence[torch.Tensor], caches: Sequence[Cache], threads: int, timer: Timer = wall_timer
) -> list[Repeated]:
    """The triad and reading, in arrays that lie in memory and are shared by all jobs."""
    size = slice_bytes(caches[-1].all_bytes, threads)
    triad, read = triad_sample(arrays, size, timer), _walking_read(arrays[1], size, timer)
    return [_job(triad, arrays, caches, threads), _job(read, arrays[1:2], caches, threads, READ)]


def slice_bytes(last_level: int, threads: int) -> int:
    """How much of each array one sample takes."""
    return max(WORD, min(last_level // 2, SLICE_BYTES * max(1, threads)) // WORD * WORD)


def touched(size: int) -> tuple[torch.Tensor, ...]:
    """Three arrays of so many bytes, each page written once so that it exists."""
    return tuple(torch.empty(size // WORD).fill_(1.0 + i) for i in range(ARRAYS))


def walk(length: int, step: int) -> Iterator[slice]:
    """Slices of at most `step`, one after the other through `length`, and again from the start."""
    return cycle([slice(start, min(length, start + step)) for start in range(0, length, step)])


def triad_sample(
    arrays: Sequence[torch.Tensor], size: int, timer: Timer = wall_timer
) -> Callable[[], float]:
    """A sample of the triad over the next `size` bytes of each array, in bytes a second."""
    a, b, c = arrays
    parts = walk(a.numel(), size // WORD)

    def sample() -> float:
        part = next(parts)
        x, y, z = a[part], b[part], c[part]
        seconds = timer(lambda: torch.add(y, z, alpha=3, out=x))
        return 3 * x.nbytes / seconds if seconds > 0 else 0.0

    return sample


def _walking_read(array: torch.Tensor, size: int, timer: Timer) -> Callable[[], float]:
    parts = walk(array.numel(), size // WORD)
    out = torch.empty(())

    def sample() -> float:
        part = array[next(parts)]
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
    name = f"{level or 'no level'} {note.split(',')[0]}, {count(threads, 'thread')}"
    template = Peak(0.0, threads=threads, level=level, array_bytes=arrays[0].nbytes, note=note)
    return Repeated(name, sample, template, weight=2.0 if level == DRAM else 1.0)


# The whole processor.


_FP32_WEIGHT = 3.0
"""Most figures are held against this peak."""


def measure_cpu(request: Request, say: Say) -> Calibration:
    """Clock, costs and all peaks that the request asks for."""
    caches, available, cpu = _caches(), memory_available(), hardware.describe_cpu()
    clock = measure_clock()
    notes = [] if clock.peak is not None else [f"clock: unknown; {clock.reason}"]
    with full_precision():
        costs = measure_costs() if request.whole else {}
        jobs: list[Job] = [
            Gemm(dtype, threads, weight=_FP32_WEIGHT if dtype == "fp32" else 1.0)
            for dtype in request.dtypes
            for threads in request.threads
            if request.wants(dtype, threads)
        ]
        jobs += _memory_jobs(request, caches, available, say)
        found, failed = run_jobs(jobs, request.seconds, _use_threads, say)
    # Once more: a core that was idle at first may have sped up since.
    clocks = filter(None, (clock.peak, measure_clock().peak))
    clock_peak = max(clocks, key=lambda peak: peak.value, default=None)
    products = [peak for peak in found if peak.dtype]
    compute, impossible = mark_impossible(products, clock_peak, cpu, len(allowed_cores()))
    bandwidth, false_memory = drop_false_memory([peak for peak in found if peak.level])
    if request.whole:
        notes += absences(caches, request.threads, available)
    notes += [*failed, *impossible, *false_memory, *_crowded(request)]
    return replace(
        NOBODY,
        device_name=cpu.get("model", ""),
        compute=tuple(compute),
        bandwidth=tuple(bandwidth),
        clock=clock_peak,
        nominal_clock_hz=nominal_clock_hz(),
        costs=costs,
        last_level_bytes=caches[-1].all_bytes if caches else 0,
        notes=tuple(notes),
    )


def _caches() -> tuple[Cache, ...]:
    return read_caches(allowed_cores()) or caches_by_name(hardware.cache_sizes())


def _memory_jobs(
    request: Request, caches: tuple[Cache, ...], available: int, say: Say
) -> list[Job]:
    jobs: list[Job] = []
    if not request.whole and not any(name in LEVELS for name, _ in request.only):
        return jobs
    say("touching the arrays")
    size = dram_size(caches, available).array_bytes
    wanted = any(request.wants(DRAM, threads) for threads in request.threads)
    arrays = touched(size) if size and wanted else ()
    for threads in request.threads:
        # A figure for DRAM is believed only beside those of the caches.
        if request.whole or any(request.wants(level, threads) for level in LEVELS):
            jobs += cache_jobs(caches, threads)
        if arrays and request.wants(DRAM, threads):
            jobs += dram_jobs(arrays, caches, threads)
    return jobs


def _use_threads(threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """No gradients, products in full precision, and afterwards everything as it was."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


def _crowded(request: Request) -> list[str]:
    allowed = usable_cores()
    return [
        f"{threads} threads: only {allowed} can run at once here"
        for threads in request.threads
        if threads > allowed
    ]
