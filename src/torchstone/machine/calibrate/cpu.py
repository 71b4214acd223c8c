"""The roofs of the processor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from torchstone.machine import hardware
from torchstone.machine.calibrate.bandwidth import Dram, absences, cache_jobs
from torchstone.machine.calibrate.costs import measure_costs
from torchstone.machine.calibrate.gemm import Gemm
from torchstone.machine.calibrate.identity import allowed_cores, threads_allowed
from torchstone.machine.calibrate.jobs import Job, Say, run_jobs
from torchstone.machine.calibrate.measured import Measured
from torchstone.machine.calibrate.request import LEVELS, Request
from torchstone.machine.calibrate.sanity import drop_false_memory, mark_impossible
from torchstone.machine.calibrate.sizes import Cache, caches_by_name, read_caches
from torchstone.machine.clock import measure_clock, nominal_clock_hz
from torchstone.machine.processes import memory_available
from torchstone.records import DRAM, Peak

_FP32_WEIGHT = 3.0
"""Most figures are held against this roof."""


def measure_cpu(request: Request, say: Say) -> Measured:
    """Clock, costs and all roofs that the request asks for."""
    caches = _caches()
    available = memory_available()
    notes = []
    clock = measure_clock()
    if clock.peak is None:
        notes.append(f"clock: unknown; {clock.reason}")
    with _settings():
        costs = measure_costs() if request.whole else {}
        jobs: list[Job] = list(_compute_jobs(request))
        jobs += _memory_jobs(request, caches, available, say)
        alive, failed = run_jobs(jobs, request.seconds, _use_threads, say)
        found = [peak for peak in (job.peak() for job in alive) if peak is not None]
    # Once more: a core that was idle at first may have sped up since.
    clock_peak = _higher(clock.peak, measure_clock().peak)
    compute, impossible = mark_impossible(
        [peak for peak in found if peak.dtype],
        clock_peak,
        hardware.describe_cpu(),
        len(allowed_cores()),
    )
    bandwidth, false_memory = drop_false_memory([peak for peak in found if peak.level])
    if request.whole:
        notes += absences(caches, request.threads, available)
    notes += [*failed, *impossible, *false_memory, *_crowded(request)]
    return Measured(
        name=hardware.describe_cpu().get("model", ""),
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


def _compute_jobs(request: Request) -> Iterator[Gemm]:
    for dtype in request.dtypes:
        for threads in request.threads:
            if request.wants(dtype, threads):
                yield Gemm(dtype, threads, weight=_FP32_WEIGHT if dtype == "fp32" else 1.0)


def _memory_jobs(
    request: Request, caches: tuple[Cache, ...], available: int, say: Say
) -> list[Job]:
    jobs: list[Job] = []
    if not request.whole and not any(name in LEVELS for name, _ in request.only):
        return jobs
    say("touching the arrays")
    levels = {name for name, _ in request.only}
    dram = Dram(caches, available) if request.whole or DRAM in levels else None
    for threads in request.threads:
        # A figure for DRAM is believed only beside those of the caches.
        if request.whole or any(request.wants(level, threads) for level in LEVELS):
            jobs += cache_jobs(caches, threads)
        if dram is not None and request.wants(DRAM, threads):
            jobs += dram.jobs(threads)
    return jobs


def _use_threads(threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """No gradients, products in full precision, and afterwards everything as it was."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


def _higher(first: Peak | None, second: Peak | None) -> Peak | None:
    return max((p for p in (first, second) if p), key=lambda p: p.value, default=None)


def _crowded(request: Request) -> list[str]:
    allowed = threads_allowed()
    return [
        f"{threads} threads: only {allowed} can run at once here"
        for threads in request.threads
        if threads > allowed
    ]
