"""The compute roof: the best of many short products of square matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter_ns as _now

import torch

from torchstone.machine.best import best_rate
from torchstone.machine.calibrate.jobs import LEAST_SAMPLES, Timer, wall_timer
from torchstone.records import Peak

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
        self.name = f"{dtype}, {threads} thread{'' if threads == 1 else 's'}" if threads else dtype
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
