"""A calibration: what may be asked for, what it holds for, how it is made, what cannot be true."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from time import perf_counter_ns as _now
from typing import Protocol

from torchstone.machine import hardware
from torchstone.machine.hardware import best_rate
from torchstone.machine.processes import allowed_cores, read_int, read_text, usable_cores
from torchstone.machine.software import machine_id
from torchstone.records import CALIBRATION_SCHEMA, DRAM, Calibration, Peak, UsageError, first_line

# Jobs take samples in turns, so that a slow moment of the machine falls on all of them.


Say = Callable[[str], None]
Timer = Callable[[Callable[[], object]], float]
"""Runs a call and returns the seconds it took, waiting for whatever it queued."""

ROUNDS = 4
"""Each job comes back this often, in different moments of the machine."""
LEAST_SAMPLES = 3
"""In each turn, however slow."""
NOBODY = Calibration("", "", "", "")
"""What devices fill with their peaks; `calibrate` says of what and when."""


class Job(Protocol):
    """One peak in the making: the best of all samples so far."""

    name: str
    threads: int
    weight: float

    def sample_for(self, seconds: float) -> None: ...
    def peak(self) -> Peak | None: ...


class Repeated:
    """A job of one kernel: `sample` runs it once and returns the rate."""

    def __init__(
        self, name: str, sample: Callable[[], float], template: Peak, weight: float = 1.0
    ) -> None:
        self.name = name
        self.threads = template.threads
        self.weight = weight
        self._sample = sample
        self._template = template
        self._rates: list[float] = []

    def sample_for(self, seconds: float) -> None:
        """Samples until the time is over; the first one warms the caches and is not kept."""
        self._sample()
        end = _now() + int(seconds * 1e9)
        taken = 0
        while taken < LEAST_SAMPLES or _now() < end:
            self._rates.append(self._sample())
            taken += 1

    def peak(self) -> Peak | None:
        return best_rate(self._rates, self._template)


def run_jobs(
    jobs: Iterable[Job], seconds: float, use_threads: Callable[[int], None], say: Say
) -> tuple[list[Peak], list[str]]:
    """Give every job its turns; the peaks that they found, and why others did not."""
    alive, notes = list(jobs), []
    share = seconds / ROUNDS / max(1e-9, sum(job.weight for job in alive))
    for number in range(ROUNDS):
        say(f"round {number + 1} of {ROUNDS}: {len(alive)} peaks")
        for job in tuple(alive):
            use_threads(job.threads)
            try:
                job.sample_for(share * job.weight)
            except (RuntimeError, NotImplementedError, MemoryError, TypeError) as error:
                # torch has no kernel for this here, or there is no room for it.
                alive.remove(job)
                notes.append(f"{job.name}: not measured; {why(error)}")
    return [peak for peak in (job.peak() for job in alive) if peak is not None], notes


def why(error: BaseException) -> str:
    """What an error says, in one line of bounded length."""
    return (first_line(error) or type(error).__name__)[:200]


def wall_timer(call: Callable[[], object]) -> float:
    """Seconds of a call that is over when it returns."""
    start = _now()
    call()
    return (_now() - start) / 1e9


# What a calibration holds for, and how long.


STALE_AFTER_DAYS = 30
"""Our choice. What the fingerprint cannot see (firmware, microcode, a driver, a guest moved to
another host) changes within months, and measuring again takes seconds."""
_AHEAD = timedelta(days=1)
"""A calibration from further in the future than this was made under a wrong date."""
_DIGITS = 16


def fingerprint(device: str = "cpu", device_name: str = "") -> str:
    """A hash of what the peaks hold for. Equal for equal machines, and names nobody.

    For an accelerator give the name that torch has for it (`Calibration.device_name`); the
    processor's own is known.
    """
    cpu = hardware.describe_cpu()
    kind = device.split(":")[0]
    parts = [
        CALIBRATION_SCHEMA,
        cpu.get("model", ""),
        cpu.get("family", ""),
        cpu.get("architecture", ""),
        cpu.get("flags", ""),
        usable_cores(),
        _core_kinds(),
        sorted(hardware.cache_sizes().items()),
        kind,
        "" if kind == "cpu" else device_name,
        torch_version(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def is_stale(calibration: Calibration, now: datetime, fingerprint: str) -> bool:
    """Whether the calibration is of something else, of another schema, or too old."""
    if calibration.fingerprint != fingerprint or calibration.schema != CALIBRATION_SCHEMA:
        return True
    try:
        age = _in_utc(now) - _in_utc(datetime.fromisoformat(calibration.created))
    except ValueError:
        return True
    return not -_AHEAD <= age <= timedelta(days=STALE_AFTER_DAYS)


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment


def own_machine_id() -> str:
    """The machine's id, as in the environment of a measurement."""
    return machine_id(hardware.describe_cpu(), hardware.cache_sizes(), hardware.memory_bytes())


def torch_version() -> str:
    """The version of the torch that would be imported, without importing it; empty without one."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.origin:
        return ""
    text = read_text(os.path.join(os.path.dirname(spec.origin), "version.py")) or ""
    found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.M)
    return found[1] if found else ""


def _core_kinds() -> list[int]:
    """The top speed of each allowed core, by which large and small ones differ; 0 where unknown."""
    names = ("cpufreq/cpuinfo_max_freq", "cpu_capacity")
    return sorted(
        next((n for name in names if (n := read_int(f"{hardware.CPUS}/cpu{core}/{name}"))), 0)
        for core in allowed_cores()
    )


CPU = "cpu"
DTYPES = ("fp32", "fp64", "bf16", "fp16", "int8")
ACCELERATOR_DTYPES = ("fp32", "tf32", "fp64", "bf16", "fp16", "int8")
LEVELS = ("L1", "L2", "L3", "L4", DRAM)
SECONDS = 10.0
"""Time spent on samples; start-up, first calls and touching pages come on top."""
ONE_PEAK_SECONDS = 0.7
"""For each peak when only some are asked for."""
MOST_SECONDS = 600.0
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(?::\d+)?\Z")


@dataclass(frozen=True)
class Request:
    """Peaks as (name, threads): a name is a dtype or a level of memory.

    `whole` asks for every level that the machine has, and for the costs.
    """

    device: str
    threads: tuple[int, ...]
    dtypes: tuple[str, ...]
    seconds: float
    only: tuple[tuple[str, int], ...] = ()

    @property
    def whole(self) -> bool:
        return not self.only

    def wants(self, name: str, threads: int) -> bool:
        """Whether this peak is asked for."""
        return self.whole or (name, threads) in self.only


def make_request(
    device: str = CPU,
    threads: Sequence[int] | None = None,
    dtypes: Sequence[str] | None = None,
    seconds: float | None = None,
    only: Sequence[tuple[str, int]] | None = None,
) -> Request:
    """The request with its defaults, or a `UsageError`.

    `threads` are the thread counts (by default 1 and all that may run at once). `only` asks for
    single peaks, such as `("fp32", 1)` or `("DRAM", 2)`, which takes about a second; on an
    accelerator the number is 0.
    """
    if not _DEVICE.match(device):
        raise UsageError(f"{device!r} is no device.", "Give one as torch names it: cpu, cuda:0.")
    known = DTYPES if device == CPU else ACCELERATOR_DTYPES
    peaks = tuple((name, count) for name, count in only or ())
    if only is not None and not peaks:
        raise UsageError("There is nothing to calibrate.", "Name a peak, or leave `only` out.")
    for name in (*(dtypes or ()), *(name for name, _ in peaks if name not in LEVELS)):
        if name not in known:
            raise UsageError(
                f"There is no peak {name!r} on {device}.", f"Choose from {', '.join(known)}."
            )
    counts = _counts(device, threads, peaks)
    wanted = tuple(dict.fromkeys(name for name, _ in peaks if name not in LEVELS))
    asked = wanted if peaks else tuple(dtypes or known)
    return Request(device, counts, asked, _seconds(seconds, peaks), peaks)


def _counts(
    device: str, threads: Sequence[int] | None, peaks: tuple[tuple[str, int], ...]
) -> tuple[int, ...]:
    if device != CPU:
        return (0,)  # threads mean nothing there
    found = [count for _, count in peaks] or threads or (1, usable_cores())
    for count in found:
        if type(count) is not int or count < 1:
            raise UsageError(f"{count!r} is no number of threads.", "Give 1 or more.")
    return tuple(dict.fromkeys(found))


def _seconds(seconds: float | None, peaks: tuple[tuple[str, int], ...]) -> float:
    if seconds is None:
        return ONE_PEAK_SECONDS * len(peaks) if peaks else SECONDS
    if not math.isfinite(seconds) or not 0 < seconds <= MOST_SECONDS:
        raise UsageError(
            f"{seconds:g} s cannot be spent on a calibration.",
            f"Give more than 0 and at most {MOST_SECONDS:g} seconds.",
        )
    return seconds


# What cannot be: figures held against each other and against the processor's own limits.


OVER_THEORY = 1.05
"""The clock is measured at another moment than the products, and it moves by a few percent."""

_FP32_PER_CYCLE = (("avx512f", 64), ("fma", 32), ("avx", 16))
"""FLOP a cycle and core: two units of 16 or 8 lanes, two operations each; one without FMA."""
_TILES = {"bf16": ("amx_bf16", 1024), "fp16": ("amx_fp16", 1024), "int8": ("amx_int8", 2048)}
_TIMES_FP32 = {"fp32": 1.0, "fp64": 0.5, "bf16": 2.0, "fp16": 2.0, "int8": 4.0}
"""With the widest instructions there are; a dtype without any of its own stays under fp32."""


def flops_per_cycle(dtype: str, flags: Sequence[str], architecture: str) -> float | None:
    """The most a core can do by its instruction set; None where that cannot be told from flags."""
    if architecture not in ("x86_64", "AMD64") or dtype not in _TIMES_FP32:
        return None  # elsewhere the width of a vector or a matrix unit is not among the flags
    flag, tile = _TILES.get(dtype, ("", 0))
    if flag and flag in flags:
        return float(tile)
    vector = next((rate for name, rate in _FP32_PER_CYCLE if name in flags), None)
    return None if vector is None else vector * _TIMES_FP32[dtype]


def mark_impossible(
    peaks: Sequence[Peak], clock: Peak | None, cpu: Mapping[str, str], cores: int
) -> tuple[list[Peak], list[str]]:
    """Peaks above clock × cores × widest vector unit get a note, and so does the calibration."""
    if clock is None:
        return list(peaks), []
    marked, notes = [], []
    for peak in peaks:
        each = flops_per_cycle(
            peak.dtype, cpu.get("flags", "").split(), cpu.get("architecture", "")
        )
        most = None if each is None else each * clock.value * min(peak.threads, cores)
        if most is not None and peak.value > OVER_THEORY * most:
            note = (
                f"{peak.dtype}, {peak.threads} threads: {peak.value / 1e9:.1f} GFLOP/s is more than"
                f" {most / 1e9:.1f}, which clock, cores and vector width allow"
            )
            notes.append(note)
            peak = replace(peak, note=f"{peak.note}; above the theoretical bound")
        marked.append(peak)
    return marked, notes


def drop_false_memory(peaks: Sequence[Peak]) -> tuple[list[Peak], list[str]]:
    """Without those DRAM figures that are above what the same kernel shows in the last cache."""
    kept, notes = [], []
    for peak in peaks:
        cached = cache_rival(peak, peaks)
        if peak.level == DRAM and cached is not None and peak.value > cached.value:
            notes.append(
                f"DRAM, {peak.threads} threads ({peak.note.split(',')[0]}): dropped;"
                f" {peak.value / 1e9:.1f} GB/s is above the {cached.value / 1e9:.1f} of arrays"
                f" that fit into {cached.level}"
            )
            continue
        kept.append(peak)
    return kept, notes


def cache_rival(peak: Peak, peaks: Sequence[Peak]) -> Peak | None:
    """The figure of the same kernel and threads in the slowest cache there is one of."""
    alike = [
        other
        for other in peaks
        if other.level != DRAM and other.note == peak.note and other.threads == peak.threads
    ]
    return max(alike, key=lambda other: other.level, default=None)


def unsound(calibration: Calibration) -> str:
    """Names the first figure that is not a positive finite number; empty if there is none."""
    named: list[tuple[str, Peak]] = [
        *((f"the {peak.dtype} peak", peak) for peak in calibration.compute),
        *((f"the {peak.level} bandwidth", peak) for peak in calibration.bandwidth),
        *((f"the cost of a {name}", peak) for name, peak in calibration.costs.items()),
    ]
    if calibration.clock is not None:
        named.append(("the clock", calibration.clock))
    for name, peak in named:
        if not (math.isfinite(peak.value) and peak.value > 0 and math.isfinite(peak.spread)):
            return f"{name} is {peak.value}"
    return ""


# The whole of it, in a process that may import torch.


_ID_DIGITS = 12


def calibrate(request: Request, say: Say = lambda _: None) -> Calibration:
    """Measure what the device can do, for about `request.seconds` of samples.

    Imports torch and sets its threads for the time being: `conductor.calibration` has it done in
    another process. `UsageError` for a device that is not there.
    """
    started = time.perf_counter()
    found = _measure(request, say)
    return replace(
        found,
        id=uuid.uuid4().hex[:_ID_DIGITS],
        machine_id=own_machine_id(),
        fingerprint=fingerprint(request.device, found.device_name),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device=request.device,
        torch=torch_version(),
        took_s=time.perf_counter() - started,
    )


def _measure(request: Request, say: Say) -> Calibration:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "Calibrating needs torch, and this interpreter has none.",
            "Install it into the environment that runs torchstone: pip install torch.",
        )
    say("importing torch")
    if request.device == CPU:
        from torchstone.machine.calibrate.kernels import measure_cpu

        return measure_cpu(request, say)
    from torchstone.machine.calibrate.accelerator import measure_accelerator

    return measure_accelerator(request, say)
