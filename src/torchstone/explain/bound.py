"""What limits a step, said in words: compute, a level of memory, or neither."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.records import Calibration, Flops, Measurement
from torchstone.stats.roofline import (
    COMPUTE,
    COVERAGE_NEEDED,
    MEMORY,
    Utilisation,
    achieved,
    threads_of,
)
from torchstone.validate.roofs import WRITE_ALLOWANCE
from torchstone.validate.words import count, percent, rate

OVERHEAD_SHARE = 0.10
"""Below a tenth of both roofs, something else takes the time (rule R4)."""
NEITHER = "neither: overhead"


@dataclass(frozen=True)
class Bound:
    """The verdict, a sentence, and remarks; `bound` is empty where it is not known."""

    bound: str
    sentence: str
    notes: tuple[str, ...] = ()


def bound_of(
    arm: Measurement,
    flops: Flops,
    used: Utilisation | None,
    calibration: Calibration,
    seconds: float,
    *,
    of_kernels: bool = False,
) -> Bound:
    """Which roof the step stands under. What is missing is said, and nothing is guessed.

    `of_kernels`: the time is that of the kernels alone, so no dispatch is in it.
    """
    if used is None:
        return Bound("", "Nothing is said of its limit: no roof for it was measured.")
    notes = _coverage_notes(flops, used)
    if (used.compute or 0.0) > 1 or (used.memory or 0.0) > WRITE_ALLOWANCE:
        return Bound("", _above(used), notes)
    unknown = _unknown(flops, used, arm, calibration, seconds)
    if unknown:
        return Bound("", unknown, notes)
    if used.share < OVERHEAD_SHARE:
        said = _reached(used)
        said += _IN_KERNELS if of_kernels else _overhead(flops, calibration, seconds)
        return Bound(NEITHER, said, notes)
    bound = COMPUTE if used.nearer == COMPUTE else f"{MEMORY} ({used.level})"
    return Bound(bound, _bound_by(bound, arm, flops, used, seconds), notes)


def _unknown(
    flops: Flops, used: Utilisation, arm: Measurement, calibration: Calibration, seconds: float
) -> str:
    """Why no verdict is possible; empty where it is."""
    if used.compute is None and flops.total:
        return f"Nothing is said of its limit: the {used.dtype} peak is not known."
    if used.memory is None:
        return "Nothing is said of its limit: no bandwidth for data of its size was measured."
    if not used.claimed:
        unknown = 1 - max(flops.time_covered, flops.time_understood)
        return (
            f"Nothing is said of its limit: {percent(unknown)} of the time is in ops of unknown "
            f"work, and at most {percent(1 - COVERAGE_NEEDED)} may be."
        )
    most = _most_memory(flops, used)
    if used.memory_at_least and used.memory < used.share < most:
        return (
            f"Nothing is said of its limit: it reaches {percent(used.share)} of the compute peak, "
            f"and between {percent(used.memory)} and {percent(most)} of the {used.level} "
            "bandwidth, which depends on what the compiler fused."
        )
    if used.memory_at_least and used.share < OVERHEAD_SHARE <= most:
        return (
            f"Nothing is said of its limit: it moves between {percent(used.memory)} and "
            f"{percent(most)} of the {used.level} bandwidth, which depends on what the compiler "
            "fused."
        )
    return ""


def _most_memory(flops: Flops, used: Utilisation) -> float:
    """The share of the memory roof if nothing had been fused."""
    scale = flops.bytes / flops.least_bytes if flops.least_bytes else 1.0
    return (used.memory or 0.0) * (scale if used.memory_at_least else 1.0)


def _coverage_notes(flops: Flops, used: Utilisation) -> tuple[str, ...]:
    if used.claimed or not flops.total:
        return ()
    return (
        f"formulas cover {percent(flops.time_covered)} of the time in ops, and "
        f"{percent(flops.time_understood)} are understood (pointwise ops, reductions and copies "
        "need no formula), so no share of the compute peak is claimed",
    )


def _above(used: Utilisation) -> str:
    what = f"{used.dtype} peak" if used.nearer == COMPUTE else f"{used.level} bandwidth"
    return (
        f"It seems to reach {percent(used.share)} of the {what}, which cannot be: the time, the "
        "count or the roof is wrong. Calibrate again with `torchstone doctor --calibrate`."
    )


def _at(threads: int) -> str:
    return f" at {count(threads, 'thread')}" if threads else ""


def _bound_by(bound: str, arm: Measurement, flops: Flops, used: Utilisation, seconds: float) -> str:
    moved = flops.least_bytes if used.memory_at_least else flops.bytes
    at = _at(threads_of(arm) or 0)
    least = "at least " if used.memory_at_least else ""
    other = ""
    if used.nearer == COMPUTE:
        reached = rate(achieved(flops.total, seconds) or 0.0, "FLOP/s")
        if used.memory is not None:
            other = f" (and {least}{percent(used.memory)} of the {used.level} bandwidth)"
        share = f"{percent(used.share)} of the {used.dtype} peak{at}"
        return f"Bound by {bound}: {reached}, {share}{other}."
    reached = rate(achieved(moved, seconds) or 0.0, "B/s")
    if used.compute is not None and used.claimed:
        other = f" (and {percent(used.compute)} of the {used.dtype} peak)"
    return (
        f"Bound by {bound}: its ops move {least}{reached}, {percent(used.share)} of the bandwidth "
        f"measured there{at}{other}."
    )


_IN_KERNELS = " The time goes into small operands, waiting, or code that is far from either roof."


def _reached(used: Utilisation) -> str:
    reached = []
    if used.compute is not None and used.claimed:
        reached.append(f"{percent(used.compute)} of the {used.dtype} peak")
    if used.memory is not None:
        reached.append(f"{percent(used.memory)} of the {used.level} bandwidth")
    return f"Bound by neither roof: it reaches {' and '.join(reached)}."


def _overhead(flops: Flops, calibration: Calibration, seconds: float) -> str:
    said = (
        f" The time goes into overhead (Python, the dispatch of {count(flops.ops, 'op')} a step, "
        "small operands, waiting)."
    )
    cost = calibration.costs.get("dispatch")
    if cost is not None and cost.value > 0:
        share = min(1.0, flops.ops * cost.value / seconds)
        said += f" Dispatch alone takes about {percent(share)} of the step."
    return said
