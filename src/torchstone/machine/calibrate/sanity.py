"""What cannot be: figures held against each other and against the processor's own limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchstone.records import DRAM, Calibration, Peak

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
