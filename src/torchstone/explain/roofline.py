"""The roofline of an arm: what it reaches, under which peak it stands, and which one is nearer.

The step stands at its measured time. Its heaviest ops stand at their times in the counting pass,
which ran apart from all timing; they are marked as estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Calibration, Flops, Measurement, Result, UsageError
from torchstone.records.format import count, format_si, percent
from torchstone.stats.roofline import (
    COMPUTE,
    COVERAGE_NEEDED,
    LEVELS,
    MEMORY,
    Utilisation,
    achieved,
    applies,
    compute_peak,
    dtype_of,
    threads_of,
    utilisation,
)
from torchstone.validate.base import estimator, name_of, seconds_per_call
from torchstone.validate.rules.peaks import WRITE_ALLOWANCE, caches_of, sound

# What limits a step, said in words: compute, a level of memory, or neither.


OVERHEAD_SHARE = 0.10
"""Below a tenth of both peaks, something else takes the time."""
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
    """Which peak the step stands under. What is missing is said, and nothing is guessed.
    `of_kernels`: the time is that of the kernels alone, so no dispatch is in it."""
    if used is None:
        return Bound("", f"{_UNKNOWN}: no peak for it was measured.")
    notes = _coverage_notes(flops, used)
    if (used.compute or 0.0) > 1 or (used.memory or 0.0) > WRITE_ALLOWANCE:
        what = f"{used.dtype} peak" if used.nearer == COMPUTE else f"{used.level} bandwidth"
        sentence = (
            f"It seems to reach {percent(used.share)} of the {what}, which cannot be: the time, "
            "the count or the peak is wrong. Calibrate again with `torchstone doctor --calibrate`."
        )
        return Bound("", sentence, notes)
    unknown = _unknown(flops, used)
    if unknown:
        return Bound("", f"{_UNKNOWN}: {unknown}.", notes)
    if used.share < OVERHEAD_SHARE:
        rest = _IN_KERNELS if of_kernels else _overhead(flops, calibration, seconds)
        return Bound(NEITHER, f"{_reached(used)} {rest}", notes)
    bound = COMPUTE if used.nearer == COMPUTE else f"{MEMORY} ({used.level})"
    return Bound(bound, f"Bound by {bound}: {_evidence(arm, flops, used, seconds)}.", notes)


_UNKNOWN = "What limits it is unknown"
_IN_KERNELS = "The time goes into small operands, waiting, or code that is far from either peak."


def _unknown(flops: Flops, used: Utilisation) -> str:
    """Why no verdict is possible; empty where it is."""
    if used.compute is None and flops.total:
        return f"the {used.dtype} peak is not known"
    if used.memory is None:
        return "no bandwidth for data of its size was measured"
    if not used.claimed:
        unknown = 1 - max(flops.time_covered, flops.time_understood)
        return (
            f"{percent(unknown)} of the time is in ops of unknown work, and at most "
            f"{percent(1 - COVERAGE_NEEDED)} may be"
        )
    if not used.memory_at_least:
        return ""
    # The share of the memory peak if nothing had been fused.
    most = used.memory * (flops.bytes / flops.least_bytes if flops.least_bytes else 1.0)
    between = (
        f"between {percent(used.memory)} and {percent(most)} of the {used.level} bandwidth, which "
        "depends on what the compiler fused"
    )
    if used.memory < used.share < most:
        return f"it reaches {percent(used.share)} of the compute peak, and {between}"
    return f"it moves {between}" if used.share < OVERHEAD_SHARE <= most else ""


def _coverage_notes(flops: Flops, used: Utilisation) -> tuple[str, ...]:
    if used.claimed or not flops.total:
        return ()
    return (
        f"formulas cover {percent(flops.time_covered)} of the time in ops, and "
        f"{percent(flops.time_understood)} are understood (pointwise ops, reductions and copies "
        "need no formula), so no share of the compute peak is claimed",
    )


def _evidence(arm: Measurement, flops: Flops, used: Utilisation, seconds: float) -> str:
    moved = flops.least_bytes if used.memory_at_least else flops.bytes
    threads = threads_of(arm) or 0
    at = f" at {count(threads, 'thread')}" if threads else ""
    least = "at least " if used.memory_at_least else ""
    other = ""
    if used.nearer == COMPUTE:
        reached = format_si(achieved(flops.total, seconds) or 0.0, "FLOP/s")
        if used.memory is not None:
            other = f" (and {least}{percent(used.memory)} of the {used.level} bandwidth)"
        return f"{reached}, {percent(used.share)} of the {used.dtype} peak{at}{other}"
    reached = format_si(achieved(moved, seconds) or 0.0, "B/s")
    if used.compute is not None and used.claimed:
        other = f" (and {percent(used.compute)} of the {used.dtype} peak)"
    return (
        f"its ops move {least}{reached}, {percent(used.share)} of the bandwidth measured there"
        f"{at}{other}"
    )


def _reached(used: Utilisation) -> str:
    reached = []
    if used.compute is not None and used.claimed:
        reached.append(f"{percent(used.compute)} of the {used.dtype} peak")
    if used.memory is not None:
        reached.append(f"{percent(used.memory)} of the {used.level} bandwidth")
    return f"Bound by neither peak: it reaches {' and '.join(reached)}."


def _overhead(flops: Flops, calibration: Calibration, seconds: float) -> str:
    said = (
        f"The time goes into overhead (Python, the dispatch of {count(flops.ops, 'op')} a step, "
        "small operands, waiting)."
    )
    cost = calibration.costs.get("dispatch")
    if cost is not None and cost.value > 0:
        share = min(1.0, flops.ops * cost.value / seconds)
        said += f" Dispatch alone takes about {percent(share)} of the step."
    return said


CALIBRATE = "Measure the machine with `torchstone doctor --calibrate`."


@dataclass(frozen=True)
class Ceiling:
    """A limit: FLOP per second under a dtype, or bytes per second from a level of memory."""

    kind: str
    """`compute` or `memory`."""
    name: str
    value: float
    threads: int
    spread: float = 0.0
    nearer: bool = False
    """The step is held against it."""


@dataclass(frozen=True)
class Point:
    """The step or one of its ops. `rate` (FLOP/s) and `intensity` (FLOP per byte) are None without
    a formula or without bytes: then it has no place in the picture."""

    name: str
    kind: str
    """`step` or `op`."""
    seconds: float
    flops: int | None
    bytes: int
    calls: int = 1
    estimated: bool = False
    """Its time is of the counting pass, or its bytes are a lower bound."""

    @property
    def rate(self) -> float | None:
        """Operations per second."""
        return achieved(self.flops or 0, self.seconds)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return achieved(self.bytes, self.seconds)

    @property
    def intensity(self) -> float | None:
        """Operations for each byte."""
        return self.flops / self.bytes if self.flops and self.bytes else None


@dataclass(frozen=True)
class Roofline:
    """One arm under the peaks of its machine, with what may be said of it in words."""

    target: str
    arm: str
    result_id: str
    dtype: str
    threads: int
    device: str
    ceilings: tuple[Ceiling, ...]
    points: tuple[Point, ...]
    ridges: Mapping[str, float] = field(default_factory=dict)
    """By level of memory: the intensity above which compute is the lower peak."""
    bound: str = ""
    """`compute`, `memory (DRAM)` and the like, `neither: overhead`; empty where it is not known."""
    utilisation: Utilisation | None = None
    sentence: str = ""
    notes: tuple[str, ...] = ()
    calibrated: str = ""
    """When the peaks were measured."""

    @property
    def step(self) -> Point:
        """The workload itself."""
        return self.points[0]


def roofline(result: Result, calibration: Calibration | None, arm_name: str = "") -> Roofline:
    """Of one arm (the first, or the one named). A `UsageError` says what is missing."""
    arm = _find_arm(result, arm_name)
    flops = _counted(arm)
    seconds = seconds_per_call(arm, estimator(result))
    if seconds is None:
        raise UsageError(
            f"{name_of(arm)} has no measured time ({arm.outcome.value}).",
            "See why with `torchstone show`.",
        )
    if calibration is None or not applies(calibration, arm):
        raise UsageError("There is no calibration of the machine that measured this.", CALIBRATE)
    peaks_of = sound(calibration, caches_of(result))
    threads = threads_of(arm) or 0
    used = utilisation(arm, peaks_of, seconds)
    ceilings = _ceilings(peaks_of, dtype_of(arm), threads, used)
    if not ceilings:
        raise UsageError(
            f"The calibration knows no peak for {dtype_of(arm)} at {threads} threads.", CALIBRATE
        )
    points = (_step(arm, flops, seconds), *_ops(arm, flops, seconds))
    found = bound_of(arm, flops, used, peaks_of, seconds)
    return Roofline(
        target=arm.arm.target,
        arm=arm.arm.name,
        result_id=result.id,
        dtype=used.dtype if used else dtype_of(arm),
        threads=threads,
        device=arm.arm.device,
        ceilings=ceilings,
        points=points,
        ridges=_ridges(ceilings),
        bound=found.bound,
        utilisation=used,
        sentence=found.sentence,
        notes=(*found.notes, *_notes(arm, flops, points)),
        calibrated=calibration.created,
    )


def _find_arm(result: Result, name: str) -> Measurement:
    for arm in result.arms:
        if not name or arm.arm.name == name:
            return arm
    names = ", ".join(name_of(arm) for arm in result.arms)
    raise UsageError(f"The result has no arm {name!r}.", f"It has {names}." if names else "")


def _counted(arm: Measurement) -> Flops:
    flops = arm.flops
    if flops is not None and flops.bytes and arm.arm.shapes == 1:
        return flops
    why = next((note for note in arm.notes if note.startswith("FLOPs not counted")), "")
    if arm.arm.shapes > 1:
        why = "its input shapes vary, and a count is of one shape"
    raise UsageError(
        f"There is no count of what a step of {name_of(arm)} does{f': {why}' if why else ''}.",
        "Measure it as it is now: `torchstone explain TARGET --roofline`.",
    )


def _ceilings(
    calibration: Calibration, dtype: str, threads: int, used: Utilisation | None
) -> tuple[Ceiling, ...]:
    """Compute first, then memory from the fastest level to the slowest."""
    held = used.nearer if used is not None else ""
    found = []
    peak = compute_peak(calibration, dtype, threads)
    if peak is not None:
        nearer = held == COMPUTE
        found.append(Ceiling(COMPUTE, peak.dtype, peak.value, threads, peak.spread, nearer))
    for level in LEVELS:
        band = calibration.bandwidth_of(level, threads)
        if band is not None:
            nearer = held == MEMORY and used is not None and used.level == level
            found.append(Ceiling(MEMORY, level, band.value, threads, band.spread, nearer))
    return tuple(found)


def _ridges(ceilings: tuple[Ceiling, ...]) -> dict[str, float]:
    peaks = [ceiling.value for ceiling in ceilings if ceiling.kind == "compute"]
    return {
        ceiling.name: peaks[0] / ceiling.value
        for ceiling in ceilings
        if peaks and ceiling.kind == "memory"
    }


def _step(arm: Measurement, flops: Flops, seconds: float) -> Point:
    eager = arm.arm.is_eager
    moved = flops.bytes if eager else flops.least_bytes
    return Point(arm.arm.name, "step", seconds, flops.total, moved, estimated=not eager)


def _ops(arm: Measurement, flops: Flops, seconds: float) -> tuple[Point, ...]:
    """The heaviest ops of an eager step; a compiled one has others, which nobody has counted. Where
    the counting pass ran slower than the step, its times are scaled down together: the ops cannot
    take longer than the step that they make up."""
    if not arm.arm.is_eager:
        return ()
    spent = sum(work.time_ns for work in flops.heaviest) / 1e9
    scale = min(1.0, seconds / spent) if spent else 1.0
    return tuple(
        Point(
            name=work.op,
            kind="op",
            seconds=work.time_ns / 1e9 * scale,
            flops=work.flops,
            bytes=work.bytes,
            calls=work.calls,
            estimated=True,
        )
        for work in flops.heaviest
        if work.bytes or work.flops
    )


def _notes(arm: Measurement, flops: Flops, points: tuple[Point, ...]) -> list[str]:
    notes = []
    if len(points) > 1:
        notes.append("the ops' times are of the counting pass: estimates, one pass, op by op")
    if not arm.arm.is_eager:
        notes.append(
            f"the operations are those of the plain eager step; {name_of(arm)} may fuse its ops, "
            "so of its traffic only the least is known, and its ops are not shown"
        )
    if flops.uncovered and flops.time_understood < 1:
        notes.append(f"ops without a formula, slowest first: {', '.join(flops.uncovered)}")
    return notes
