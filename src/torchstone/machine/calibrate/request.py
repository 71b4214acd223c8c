"""What is to be measured, checked before anything is."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from time import perf_counter_ns as _now
from typing import Protocol

from torchstone.machine import hardware, processes
from torchstone.machine.hardware import best_rate
from torchstone.machine.processes import read_int, read_text
from torchstone.machine.software import machine_id
from torchstone.records import CALIBRATION_SCHEMA, DRAM, Calibration, Peak, UsageError

# Jobs take samples in turns, so that a slow moment of the machine falls on all of them.


Say = Callable[[str], None]
Timer = Callable[[Callable[[], object]], float]
"""Runs a call and returns the seconds it took, waiting for whatever it queued."""

ROUNDS = 4
"""Each job comes back this often, in different moments of the machine."""
LEAST_SAMPLES = 3
"""In each turn, however slow."""


class Job(Protocol):
    """One peak in the making."""

    name: str
    threads: int
    weight: float

    def sample_for(self, seconds: float) -> None:
        """Take samples for about so long."""

    def peak(self) -> Peak | None:
        """The best of all samples so far."""


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
        """The best of all samples so far."""
        return best_rate(self._rates, self._template)


def run_jobs(
    jobs: Iterable[Job], seconds: float, use_threads: Callable[[int], None], say: Say
) -> tuple[list[Job], list[str]]:
    """Give every job its turns; those that are left, and why others are not."""
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
                notes.append(f"{job.name}: not measured; {first_line(error)}")
    return alive, notes


def first_line(error: BaseException) -> str:
    """What an error says, in one line of bounded length."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


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
_CORES = "/sys/devices/system/cpu"


def allowed_cores() -> tuple[int, ...]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def threads_allowed() -> int:
    """How many threads can truly run at once: the cores allowed, or the quota if that is less."""
    quota = processes.cpu_quota()
    cores = len(allowed_cores())
    return max(1, cores if quota is None else min(cores, math.floor(quota)))


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
        threads_allowed(),
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
        next((n for name in names if (n := read_int(f"{_CORES}/cpu{core}/{name}"))), 0)
        for core in allowed_cores()
    )


CPU = "cpu"
DTYPES = ("fp32", "fp64", "bf16", "fp16", "int8")
ACCELERATOR_DTYPES = ("fp32", "tf32", "fp64", "bf16", "fp16", "int8")
LEVELS = ("L1", "L2", "L3", "L4", DRAM)
SECONDS = 10.0
"""Time spent on samples; start-up, first calls and touching pages come on top."""
ONE_ROOF_SECONDS = 0.7
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
    device: str,
    threads: Sequence[int] | None,
    dtypes: Sequence[str] | None,
    seconds: float | None,
    only: Sequence[tuple[str, int]] | None,
) -> Request:
    """The request with its defaults, or a `UsageError`."""
    if not _DEVICE.match(device):
        raise UsageError(f"{device!r} is no device.", "Give one as torch names it: cpu, cuda:0.")
    known = DTYPES if device == CPU else ACCELERATOR_DTYPES
    roofs = tuple((name, count) for name, count in only or ())
    if only is not None and not roofs:
        raise UsageError("There is nothing to calibrate.", "Name a peak, or leave `only` out.")
    for name in (*(dtypes or ()), *(name for name, _ in roofs if name not in LEVELS)):
        if name not in known:
            raise UsageError(
                f"There is no peak {name!r} on {device}.", f"Choose from {', '.join(known)}."
            )
    counts = _counts(device, threads, roofs)
    wanted = tuple(dict.fromkeys(name for name, _ in roofs if name not in LEVELS))
    return Request(
        device,
        counts,
        wanted if roofs else tuple(dtypes or known),
        _seconds(seconds, roofs),
        roofs,
    )


def _counts(
    device: str, threads: Sequence[int] | None, roofs: tuple[tuple[str, int], ...]
) -> tuple[int, ...]:
    if device != CPU:
        return (0,)  # threads mean nothing there
    found = [count for _, count in roofs] or threads or (1, threads_allowed())
    for count in found:
        if type(count) is not int or count < 1:
            raise UsageError(f"{count!r} is no number of threads.", "Give 1 or more.")
    return tuple(dict.fromkeys(found))


def _seconds(seconds: float | None, roofs: tuple[tuple[str, int], ...]) -> float:
    if seconds is None:
        return ONE_ROOF_SECONDS * len(roofs) if roofs else SECONDS
    if not math.isfinite(seconds) or not 0 < seconds <= MOST_SECONDS:
        raise UsageError(
            f"{seconds:g} s cannot be spent on a calibration.",
            f"Give more than 0 and at most {MOST_SECONDS:g} seconds.",
        )
    return seconds


# What a device gave, before it becomes a calibration with a name and a date.


@dataclass(frozen=True)
class Measured:
    """The peaks of one device; see `Calibration` for each of them."""

    name: str
    compute: tuple[Peak, ...] = ()
    bandwidth: tuple[Peak, ...] = ()
    clock: Peak | None = None
    nominal_clock_hz: float | None = None
    costs: Mapping[str, Peak] = field(default_factory=dict)
    last_level_bytes: int = 0
    notes: tuple[str, ...] = ()


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
