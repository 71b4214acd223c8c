"""One row an arm: the words and numbers that terminal and Markdown both show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchstone.records import Comparison, Measurement, Memory, Outcome, Result, Verdict
from torchstone.show.figures import FLOOR, LEVEL, TYPICAL, Figure, Figures, figures, headline
from torchstone.show.units import (
    as_much,
    format_bytes,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    half_width,
    ratio_decimals,
)

VERDICT_ROLES = {
    Verdict.FASTER: "good",
    Verdict.SLOWER: "bad",
    Verdict.SAME: "even",
    Verdict.NOT_SLOWER: "even",
    Verdict.NOT_FASTER: "even",
    Verdict.CANNOT_TELL: "doubt",
}

LEAST_COMPILE_NS = 100_000_000
"""A first call that costs less above a steady one has compiled nothing worth a column."""
_TYPICAL_TYPE = {TYPICAL, "median", "mean", "pairs"}
"""Estimators of the ordinary call; every other one speaks of the fastest."""


@dataclass(frozen=True)
class Row:
    """An arm in words. Empty strings where there is nothing to say."""

    name: str
    time: str
    spread: str
    other: str
    other_speedup: str
    speedup: str
    interval: str
    verdict: str
    role: str
    memory: str
    """Tensors at a step's peak."""
    memory_ratio: str
    process: str
    compiler: str
    compile: str
    figures: Figures | None


@dataclass(frozen=True)
class Rows:
    """All rows, which figure leads, and the name of the other one."""

    rows: tuple[Row, ...]
    lead: str
    other: str
    level: float


def rows(result: Result, *, ascii_only: bool = False, plus_minus: str = "±") -> Rows:
    """The rows of a result. The figure that decided the comparisons leads."""
    decided = [comparison.decided_by for comparison in result.comparisons]
    lead = TYPICAL if _TYPICAL_TYPE & {*decided, result.method.estimator} else FLOOR
    levels = [e.level for c in result.comparisons if (e := c.floor or c.typical)]
    found = [figures(m, result.method.alpha) for m in result.arms]
    base = found[0] if found else None
    made = tuple(
        _row(result, m, own, base, lead, ascii_only, plus_minus)
        for m, own in zip(result.arms, found, strict=True)
    )
    return Rows(made, lead, FLOOR if lead == TYPICAL else TYPICAL, min(levels, default=LEVEL))


def _row(
    result: Result,
    measurement: Measurement,
    found: Figures | None,
    base: Figures | None,
    lead: str,
    ascii_only: bool,
    plus_minus: str,
) -> Row:
    comparison = against_first(result, measurement.arm.name)
    speedup, interval = _speedup(comparison, ascii_only)
    verdict, role = _verdict(result, measurement, comparison)
    first, second = ("", ""), ("", "")
    memory, base_memory = measurement.memory, _base_memory(result, measurement)
    if found is not None:
        ratio = comparison.time_ratio if comparison else None
        other = found.typical if lead == FLOOR else found.floor
        pair = headline(found, lead, base, ratio), other
        first, second = (_timed(figure, ascii_only, plus_minus) for figure in pair)
    return Row(
        name=measurement.arm.name,
        time=first[0],
        spread=first[1],
        other=second[0],
        other_speedup=_other_speedup(comparison, lead, ascii_only),
        speedup=speedup,
        interval=interval,
        verdict=verdict,
        role=role,
        memory=_bytes(memory.tensor_peak_bytes if memory else None),
        memory_ratio=_memory_ratio(base_memory, memory, ascii_only),
        process=_bytes(memory.peak_bytes if memory else None),
        compiler=_compiler(base_memory, measurement),
        compile=_compile(measurement, ascii_only),
        figures=found,
    )


def against_first(result: Result, name: str) -> Comparison | None:
    """The comparison of this arm with the baseline, the first arm."""
    base = result.arms[0].arm.name
    return next((c for c in result.comparisons if c.base == base and c.new == name), None)


def _timed(figure: Figure, ascii_only: bool, plus_minus: str) -> tuple[str, str]:
    share = half_width(figure.value, figure.interval) if figure.interval else None
    spread = "" if share is None else f"{plus_minus}{_capped(share)}"
    return format_seconds(figure.value, ascii_only=ascii_only), spread


def _capped(share: float) -> str:
    """Beyond 100 % the number says no more than that nothing is known."""
    return format_percent(share) if share <= 1 else ">100 %"


def speedup_interval(comparison: Comparison) -> tuple[float, float] | None:
    """The interval of base / new: that of the time ratio, turned over; None without bounds."""
    low, high = comparison.interval or (0.0, math.inf)
    return (1 / high, 1 / low) if 0 < low <= high < math.inf else None


def _speedup(comparison: Comparison | None, ascii_only: bool) -> tuple[str, str]:
    speedup = comparison.speedup if comparison else None
    if comparison is None or speedup is None or not math.isfinite(speedup):
        return "", ""
    ends = speedup_interval(comparison)
    decimals = ratio_decimals(speedup, ends)
    return (
        format_ratio(speedup, decimals, ascii_only=ascii_only),
        format_interval(ends, decimals, ascii_only=ascii_only),
    )


def _other_speedup(comparison: Comparison | None, lead: str, ascii_only: bool) -> str:
    """The speed-up by the figure that did not decide: where the two part, a reader should know."""
    if comparison is None:
        return ""
    estimate = comparison.typical if lead == FLOOR else comparison.floor
    if estimate is None or not estimate.time_ratio > 0:
        return ""
    speedup = 1 / estimate.time_ratio
    return format_ratio(speedup, ratio_decimals(speedup, None), ascii_only=ascii_only)


def _verdict(
    result: Result, measurement: Measurement, comparison: Comparison | None
) -> tuple[str, str]:
    if measurement.outcome is not Outcome.OK:
        return measurement.outcome.value.replace("_", " "), "fail"
    if comparison is not None:
        return comparison.verdict.value, VERDICT_ROLES[comparison.verdict]
    return ("baseline", "dim") if measurement is result.arms[0] and result.arms[1:] else ("", "")


def _base_memory(result: Result, measurement: Measurement) -> Memory | None:
    """The baseline's; None for the baseline itself."""
    return None if measurement is result.arms[0] else result.arms[0].memory


def _bytes(count: int | None) -> str:
    return "" if count is None else format_bytes(count)


def _memory_ratio(base: Memory | None, new: Memory | None, ascii_only: bool) -> str:
    old, now = (memory.tensor_peak_bytes if memory else None for memory in (base, new))
    return as_much(now / old, ascii_only=ascii_only) if old and now else ""


def _compiler(base: Memory | None, measurement: Measurement) -> str:
    """What a compiled arm's process keeps beyond tensors and the baseline's does not."""
    new = measurement.memory
    if not _compiled(measurement) or base is None or new is None:
        return ""
    if base.overhead_bytes is None or new.overhead_bytes is None:
        return ""
    return format_bytes(new.overhead_bytes - base.overhead_bytes)


def _compiled(measurement: Measurement) -> bool:
    return measurement.compile is not None and measurement.compile.cold_ns >= LEAST_COMPILE_NS


def _compile(measurement: Measurement, ascii_only: bool) -> str:
    cost = measurement.compile
    if cost is None or not _compiled(measurement):
        return ""
    cold = format_seconds(cost.cold_ns / 1e9, 3, ascii_only=ascii_only)
    if cost.warm_ns is None:
        return cold
    return f"{cold} / {format_seconds(cost.warm_ns / 1e9, 3, ascii_only=ascii_only)}"
