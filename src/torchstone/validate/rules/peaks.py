"""Are the peaks known, measured and of this machine?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torchstone.records import DRAM, Calibration, Check, Flops, Level, Measurement, Peak, Result
from torchstone.records.format import count, percent
from torchstone.stats import (
    COVERAGE_NEEDED,
    Utilisation,
    compute_peak,
    dtype_of,
    threads_of,
    utilisation,
)
from torchstone.stats.roofline import COMPUTE, DRAM_MULTIPLE, LEVELS, applies, is_eager, last_level
from torchstone.validate.base import (
    FunctionRule,
    cpu_per_wall,
    duration,
    estimator,
    name_of,
    rate,
    seconds_per_call,
    size,
    wait_share,
)

# Which peaks of a calibration a result may be held against, and what its arms reached of them.
#
# A peak that is not sound is refused: nothing is held against it, and a rule says why. That takes
# no figure from the arms, whose times do not depend on it.


SOURCES = ("measured", "datasheet", "user")
AGREES = (0.5, 1.15)
"""what was measured, over what a table says, when both speak of the same thing."""
TWICE_WITHIN = 0.10
"""a factor of two is the sign of counted sparsity or of MACs; a good matrix product comes
within a tenth of the dense peak (90 % was measured)."""
CLOCKS_HZ = (1e8, 1e10)
"""processors run between 0.1 and 10 GHz; kHz or MHz taken for Hz lie outside."""
WRITE_ALLOWANCE = 4 / 3
"""A peak measured by writing counts three words of the four that move where the cache reads a line
before it is written. A step that only reads may exceed it by that much."""
DISTURBED = 1.15
"""DRAM beyond the caches by more than R2's tolerance: one of the readings was disturbed."""


@dataclass(frozen=True)
class Refusal:
    """A peak that is not used, and why."""

    peak_name: str
    reason: str
    measured_over_said: float | None = None
    known: bool = True
    """False where it only lacks confirmation, which is no fault."""


def reached(arm: Measurement, result: Result) -> Utilisation | None:
    """The shares of sound peaks that an arm reached; None where peak, count or time is unknown.

    A count is of one shape, so that nothing is claimed of an arm that goes through several.
    """
    if arm.flops is None or result.calibration is None or arm.arm.shapes > 1:
        return None
    seconds = seconds_per_call(arm, estimator(result))
    if seconds is None:
        return None
    return utilisation(arm, sound(result.calibration, caches_of(result)), seconds)


def fullest(found: Utilisation) -> float:
    """The largest share that cannot honestly be over 1: operations, or bytes nobody can avoid."""
    return max(found.compute or 0.0, (found.least_memory or 0.0) / WRITE_ALLOWANCE)


def sound(calibration: Calibration, caches: Mapping[str, int]) -> Calibration:
    """The calibration without what is refused; every compute peak of it was measured."""
    clock = calibration.clock
    return replace(
        calibration,
        compute=tuple(
            p
            for p in calibration.compute
            if p.source == "measured" and _compute_reason(p, calibration) is None
        ),
        bandwidth=tuple(
            p for p in calibration.bandwidth if not _bandwidth_reason(p, calibration, caches)
        ),
        clock=clock if clock is not None and plausible_clock(clock.value) else None,
    )


def compute_refusals(calibration: Calibration) -> Iterator[Refusal]:
    """Compute peaks that are not used. A sparse one beside a dense one does no harm."""
    dense = {_key(peak) for peak in calibration.compute if not peak.sparse}
    for peak in calibration.compute:
        refusal = _compute_reason(peak, calibration)
        if refusal is not None and not (peak.sparse and _key(peak) in dense):
            yield refusal


def bandwidth_refusals(
    calibration: Calibration, caches: Mapping[str, int]
) -> Iterator[tuple[Peak, str]]:
    """Bandwidths that are not used, and why."""
    for peak in calibration.bandwidth:
        reason = _bandwidth_reason(peak, calibration, caches)
        if reason:
            yield peak, reason


def plausible_clock(hertz: float) -> bool:
    """Whether a processor can run at that."""
    return CLOCKS_HZ[0] <= hertz <= CLOCKS_HZ[1]


def caches_of(result: Result) -> Mapping[str, int]:
    """Cache sizes as the first arm that knows them says."""
    known = (arm.environment.caches for arm in result.arms if arm.environment)
    return next((caches for caches in known if caches), {})


def name_of_peak(peak: Peak) -> str:
    """`the fp32 peak at 2 threads (measured, 93.3 GFLOP/s)`."""
    what = peak.dtype or "unnamed"
    where = f" at {peak.threads} thread{'s' * (peak.threads != 1)}" if peak.threads else ""
    said = peak.source or "no source"
    return f"the {what} peak{where} ({said}, {rate(peak.value, 'FLOP/s')})"


def _key(peak: Peak) -> tuple[str, int]:
    return peak.dtype, peak.threads


def _compute_reason(peak: Peak, calibration: Calibration) -> Refusal | None:
    peak_name = name_of_peak(peak)
    if not (math.isfinite(peak.value) and peak.value > 0):
        return Refusal(peak_name, "is no rate")
    if not peak.dtype:
        return Refusal(peak_name, "does not say its dtype")
    if peak.source not in SOURCES:
        return Refusal(peak_name, "does not say where it comes from")
    if peak.sparse:
        return Refusal(peak_name, "counts operations that sparsity skips")
    if peak.source == "measured":
        return None
    measured = max(
        (
            p.value
            for p in calibration.compute
            if _key(p) == _key(peak) and p.source == "measured" and not p.sparse and p.value > 0
        ),
        default=None,
    )
    if measured is None:
        return Refusal(peak_name, "is not confirmed by a measurement on this machine", known=False)
    return _disagreement(peak_name, peak, measured)


def _disagreement(peak_name: str, peak: Peak, measured: float) -> Refusal | None:
    """What a table says is not used where a measurement stands beside it, but it may be wrong."""
    ratio = measured / peak.value
    what = f"was measured as {rate(measured, 'FLOP/s')}, {percent(ratio)} of it"
    for factor, cause in ((0.5, "counts sparsity"), (2.0, "counts a multiply-add as one")):
        if abs(ratio / factor - 1) <= TWICE_WITHIN:
            return Refusal(peak_name, f"{what}: a factor of two, as where it {cause}", ratio)
    if not AGREES[0] <= ratio <= AGREES[1]:
        return Refusal(peak_name, what, ratio)
    return None


def _bandwidth_reason(peak: Peak, calibration: Calibration, caches: Mapping[str, int]) -> str:
    if not (math.isfinite(peak.value) and peak.value > 0):
        return "is no rate"
    if peak.source not in SOURCES:
        return "does not say where it comes from"
    if peak.level not in LEVELS:
        return "does not say which level it is of"
    last = last_level(calibration, caches)
    if peak.level == DRAM:
        return _dram_reason(peak, calibration, last)
    room = last if peak.level == "L3" else caches.get({"L1": "L1d"}.get(peak.level, peak.level), 0)
    room *= 1 if peak.level == "L3" else max(1, peak.threads)
    if 0 < room < peak.array_bytes:
        return (
            f"was measured with arrays of {size(peak.array_bytes)}, which {size(room)} cannot hold"
        )
    return ""


def _dram_reason(peak: Peak, calibration: Calibration, last: int) -> str:
    if not last or peak.source != "measured":
        return ""
    if not peak.array_bytes:
        return "does not say how large its arrays were"
    if peak.array_bytes < DRAM_MULTIPLE * last:
        return (
            f"was measured with arrays of {size(peak.array_bytes)}, under {DRAM_MULTIPLE} times "
            f"the last-level cache ({size(last)}), so it is partly the cache's"
        )
    cached = max(
        (p.value for p in calibration.bandwidth if p.level != DRAM and p.threads == peak.threads),
        default=math.inf,
    )
    if peak.value > DISTURBED * cached:
        return f"is above what any cache showed ({rate(cached, 'B/s')})"
    return ""


PEAK_NAME = "peak"

_CALIBRATE = "Calibrate (torchstone doctor --calibrate)"


def _judge_peak(result: Result) -> Iterator[Check]:
    counted = [arm for arm in result.arms if arm.flops is not None and arm.turns]
    calibration = result.calibration
    if calibration is None:
        if counted:
            text = (
                "The peak of this machine is unknown, so no utilisation is claimed. "
                f"{_CALIBRATE} to have one."
            )
            yield Check(PEAK_NAME, Level.NOTE, text)
        return
    refused = list(_refused(calibration))
    yield from refused
    fitting = [arm for arm in counted if applies(calibration, arm)]
    strangers = [arm for arm in counted if arm not in fitting]
    # Some of the arms: each by itself, because what is said of the baseline is every case's.
    for arms in [[arm] for arm in strangers] if fitting else [strangers]:
        if arms:
            yield _strange(arms, calibration)
    unknown = list(_unknown(fitting, result, calibration))
    yield from unknown
    if not refused and not strangers and not unknown and calibration.compute:
        text = f"{count(len(calibration.compute), 'peak')} known, with source and dtype."
        yield Check(PEAK_NAME, Level.OK, text, {"peaks": float(len(calibration.compute))})


def _refused(calibration: Calibration) -> Iterator[Check]:
    found = list(compute_refusals(calibration))
    for known in (True, False):
        some = [refusal for refusal in found if refusal.known is known]
        if not some:
            continue
        first = some[0]
        more = f" (and {count(len(some) - 1, 'more')})" if len(some) > 1 else ""
        figures = {"refused": float(len(some))}
        if first.measured_over_said is not None:
            figures["measured_over_said"] = first.measured_over_said
        remedy = (
            f"Nothing is held against it; correct it, or leave it out. {_CALIBRATE}."
            if known
            else f"{_CALIBRATE} for the peaks that are used."
        )
        peak_name = first.peak_name[0].upper() + first.peak_name[1:]
        text = f"{peak_name}{more} {first.reason}. {remedy}"
        yield Check(PEAK_NAME, Level.WARN if known else Level.NOTE, text, figures)


def _strange(arms: list[Measurement], calibration: Calibration) -> Check:
    text = (
        f"The peaks are of another machine or device ({calibration.device_name or 'unnamed'}, "
        f"{calibration.machine_id}, {calibration.device}) than {name_of(arms[0])}, so no "
        f"utilisation is claimed. {_CALIBRATE} where the arms run."
    )
    return Check(PEAK_NAME, Level.WARN, text, arms=tuple(arm.arm.name for arm in arms))


def _unknown(arms: list[Measurement], result: Result, calibration: Calibration) -> Iterator[Check]:
    """Arms for whose dtype and thread count nothing was measured; there is no figure to fall on."""
    known = sound(calibration, caches_of(result))
    for arm in arms:
        dtype, threads = dtype_of(arm), threads_of(arm)
        if threads is None or compute_peak(known, dtype, threads) is not None:
            continue
        text = (
            f"The {dtype} peak at {count(threads, 'thread')} is unknown, so no share of it is "
            f"claimed of {name_of(arm)}. {_CALIBRATE} at that thread count to have one."
        )
        yield Check(PEAK_NAME, Level.NOTE, text, arms=(arm.arm.name,))


PEAK = FunctionRule(
    PEAK_NAME,
    "unknown is unknown, and tables must agree with measurement; dense only",
    _judge_peak,
)


# How near is the step to the nearer peak: nearer than is likely, or far below, and why?


ROOFLINE_NAME = "roofline"
SUSPICIOUS = 0.90
"""whole models stay well below; only what the peak was measured with comes so near."""
LOW = 0.10
"""from there down it is worth asking why."""
PURE = 0.90
"""Ours: a step that spends nine tenths of its op time in matrix products is one, for the peak."""
LEFT_OF_RIDGE = 0.25
"""Ours: with a quarter of the ridge's operations a byte, memory alone is what limits a step."""
CAUSE = 0.50
"""Ours: what takes half of the step is what to look at first."""
WAITING = 0.02
"""R15's limit for threads that are ready but without a core."""
MATRIX_OPS = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "_addmm_activation", "_scaled_mm"),
        *("_grouped_mm", "convolution", "convolution_backward", "conv1d", "conv2d", "conv3d"),
        *("mkldnn_linear", "mkldnn_convolution"),
    )
)
"""What compute peaks are measured with, or what the same kernels do."""


def _judge_roofline(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        found = reached(arm, result)
        if found is None or arm.flops is None or fullest(found) > 1:
            continue  # over a peak: that is the rule utilisation's
        if found.share > SUSPICIOUS:
            yield _near(arm, arm.flops, result, found)
        elif found.share >= LOW:
            text = f"{name_of(arm)} reaches {percent(found.share)} of its {found.nearer} peak."
            yield Check(ROOFLINE_NAME, Level.OK, text, _figures_roofline(found), (arm.arm.name,))
        elif max(arm.flops.time_understood, arm.flops.time_covered) >= COVERAGE_NEEDED:
            yield _far(arm, arm.flops, result, found)


def _near(arm: Measurement, flops: Flops, result: Result, found: Utilisation) -> Check:
    who, near = (arm.arm.name,), f"{name_of(arm)} reaches {percent(found.share)}"
    if found.nearer == COMPUTE:
        pure = matrix_time(flops)
        figures = {**_figures_roofline(found), "matrix_time": pure}
        if pure >= PURE:
            text = f"{near} of the compute peak, as a matrix product may: the peak is one."
            return Check(ROOFLINE_NAME, Level.OK, text, figures, who)
        return Check(
            ROOFLINE_NAME,
            Level.WARN,
            f"{near} of the compute peak, though {percent(1 - pure)} of its op time is no matrix "
            "product: that is suspicious. Calibrate again (torchstone doctor --calibrate), and "
            "look whether all of the work is done.",
            figures,
            who,
        )
    intensity = _of_ridge(flops, result, found)
    figures = {**_figures_roofline(found), "of_ridge": intensity}
    if intensity <= LEFT_OF_RIDGE and found.share <= WRITE_ALLOWANCE:
        text = f"{near} of the bandwidth of {found.level}, as a step that only streams may."
        return Check(ROOFLINE_NAME, Level.OK, text, figures, who)
    return Check(
        ROOFLINE_NAME,
        Level.WARN,
        f"{near} of the bandwidth of {found.level}, though it computes "
        f"{percent(intensity)} of what it would take to be limited by arithmetic instead: that is "
        "suspicious. Calibrate again (torchstone doctor --calibrate), and look whether all of the "
        "work is done.",
        figures,
        who,
    )


def matrix_time(flops: Flops) -> float:
    """Share of the op time in matrix products and convolutions; of covered time where unknown."""
    total = sum(work.time_ns for work in flops.heaviest)
    if not total:
        return flops.time_covered
    return sum(work.time_ns for work in flops.heaviest if _is_matrix(work.op)) / total


def _is_matrix(op: str) -> bool:
    return not MATRIX_OPS.isdisjoint(op.replace("::", ".").split("."))


def _of_ridge(flops: Flops, result: Result, found: Utilisation) -> float:
    """Operations a byte, over those at which both peaks meet; 0 where a peak is not known."""
    calibration = _sound(result)
    peak_name = compute_peak(calibration, found.dtype, found.threads)
    memory = calibration.bandwidth_of(found.level, found.threads)
    if peak_name is None or memory is None or flops.bytes <= 0:
        return 0.0
    return flops.total / flops.bytes / (peak_name.value / memory.value)


def _far(arm: Measurement, flops: Flops, result: Result, found: Utilisation) -> Check:
    cause, remedy, figures = _cause(arm, flops, result)
    return Check(
        ROOFLINE_NAME,
        Level.NOTE,
        f"{name_of(arm)} reaches {percent(found.share)} of the nearer peak ({found.nearer}): "
        f"{cause}. {remedy}",
        {**_figures_roofline(found), **figures},
        (arm.arm.name,),
    )


def _cause(arm: Measurement, flops: Flops, result: Result) -> tuple[str, str, dict[str, float]]:
    """The likeliest cause, its remedy and the figures it rests on."""
    busy, waited = cpu_per_wall(arm), wait_share(arm)
    if busy is not None and busy < CAUSE:
        figures = {"cpu_per_wall": busy, "wait_share": waited}
        if waited > WAITING:
            cause = f"other work had the core for much of the time (it ran {percent(busy)} of it)"
            return cause, "Run it on a quieter machine.", figures
        cause = f"it used the CPU for {percent(busy)} of its time and slept or waited for the rest"
        return cause, "Profile it to see what it waits for.", figures
    seconds = seconds_per_call(arm, estimator(result)) or 0.0
    dispatch = _sound(result).costs.get("dispatch")
    if dispatch is not None and is_eager(arm) and seconds:
        share = flops.ops * dispatch.value / seconds
        if share >= CAUSE:
            cause = (
                f"the dispatch of {count(flops.ops, 'op')} at {duration(dispatch.value)} each is "
                f"about {percent(min(share, 1.0))} of the step"
            )
            remedy = "Compile it, or give it larger inputs."
            return cause, remedy, {"dispatch_share": share}
    inside = sum(work.time_ns for work in flops.heaviest) / 1e9
    if is_eager(arm) and seconds and 0 < inside < CAUSE * seconds:
        cause = f"its ops take {percent(inside / seconds)} of the step, the rest is Python"
        return cause, "Profile its Python code.", {"op_time_share": inside / seconds}
    if waited > WAITING:
        cause = f"its threads waited for a core {percent(waited)} of the time"
        return cause, "Run it on a quieter machine.", {"wait_share": waited}
    if flops.heaviest:
        work = max(flops.heaviest, key=lambda work: work.time_ns)
        share = work.time_ns / sum(work.time_ns for work in flops.heaviest)
        cause = f"{work.op}, {percent(share)} of the op time, comes near neither peak"
        return cause, "Look at its sizes and memory layout.", {"heaviest_share": share}
    return "nothing in the record names the cause", "Profile it.", {}


def _sound(result: Result) -> Calibration:
    assert result.calibration is not None
    return sound(result.calibration, caches_of(result))


def _figures_roofline(found: Utilisation) -> dict[str, float]:
    shares = {"compute_share": found.compute, "memory_share": found.memory}
    return {"share": found.share, **{k: v for k, v in shares.items() if v is not None}}


ROOFLINE = FunctionRule(
    ROOFLINE_NAME, "over 90 % or under 10 % of the nearer peak", _judge_roofline
)


# Is the time shorter than the work can take?


TIME_FLOOR_NAME = "time-floor"
BELOW = 0.9
"""the floor is calibrated, so a tenth is left for its own error."""


def _judge_time_floor(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        seconds = seconds_per_call(arm, estimator(result))
        if seconds is not None:
            yield from _look_time_floor(arm, result, seconds)


def _look_time_floor(arm: Measurement, result: Result, seconds: float) -> Iterator[Check]:
    who, name = (arm.arm.name,), name_of(arm)
    timer = result.calibration.costs.get("timer") if result.calibration else None
    if timer is not None and 0 < seconds * arm.loops < timer.value:
        yield Check(
            TIME_FLOOR_NAME,
            Level.FAIL,
            f"A sample of {name} ({duration(seconds * arm.loops)}) is shorter than reading the "
            f"clock takes ({duration(timer.value)}). Let the target do more in a "
            "call, or give timeit a larger -n.",
            {"sample_s": seconds * arm.loops, "timer_s": timer.value},
            who,
        )
        return
    found = reached(arm, result)
    if found is None:
        return
    floor = fullest(found) * seconds
    figures = {"seconds": seconds, "floor_s": floor}
    if seconds >= BELOW * floor:
        text = f"{name} takes no less than its work needs."
        yield Check(TIME_FLOOR_NAME, Level.OK, text, figures, who)
        return
    yield Check(
        TIME_FLOOR_NAME,
        Level.FAIL,
        f"{name} takes {duration(seconds)} where the peaks of this machine allow no less than "
        f"{duration(floor)} ({percent(seconds / floor)} of it). Look for work that is left out, "
        "remembered or done after the clock has stopped.",
        figures,
        who,
    )


TIME_FLOOR = FunctionRule(TIME_FLOOR_NAME, "time below the roofline floor", _judge_time_floor)


# Is more claimed than the machine can do?


UTILISATION_NAME = "utilisation"
FULL = 1.00
"""nothing does more than the peak."""
IMPOSSIBLE = 1.05
"""Ours: a peak is the best of many short samples and may have been missed by some per cent. What is
still above after calibrating again is wrong."""


def over_full(result: Result) -> Iterator[tuple[Measurement, Utilisation]]:
    """The arms that reach more than the whole of a peak."""
    for arm in result.arms:
        found = reached(arm, result)
        if found is not None and fullest(found) > FULL:
            yield arm, found


def _judge_utilisation(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        found = reached(arm, result)
        if found is not None:
            yield _look_utilisation(arm, found)


def _look_utilisation(arm: Measurement, found: Utilisation) -> Check:
    figures, who = _figures_utilisation(found), (arm.arm.name,)
    worst = fullest(found)
    if worst <= FULL:
        text = f"{name_of(arm)} claims no more than the calibrated peaks allow."
        return Check(UTILISATION_NAME, Level.OK, text, figures, who)
    said = f"{name_of(arm)} reads {_claim(found)}"
    if worst <= IMPOSSIBLE:
        text = (
            f"{said}: just over what was calibrated. Calibrate again when the machine is quiet "
            "(torchstone doctor --calibrate)."
        )
        return Check(UTILISATION_NAME, Level.WARN, text, figures, who)
    text = (
        f"{said}, which cannot be: the time, the count or the peak is wrong. Calibrate again "
        "(torchstone doctor --calibrate); if it stays, look for work that the arm leaves out, for "
        "operations counted twice, or for an algorithm that needs fewer of them than its formula "
        "says (Winograd)."
    )
    return Check(UTILISATION_NAME, Level.FAIL, text, figures, who)


def _claim(found: Utilisation) -> str:
    compute, memory = found.compute or 0.0, found.least_memory or 0.0
    if compute >= memory / WRITE_ALLOWANCE:
        threads = f" at {found.threads} thread{'s' * (found.threads != 1)}" if found.threads else ""
        return f"{percent(compute)} of the {found.dtype} peak{threads}"
    return f"{percent(memory)} of the bandwidth of {found.least_level}"


def _figures_utilisation(found: Utilisation) -> dict[str, float]:
    shares = {
        "compute_share": found.compute,
        "memory_share": found.memory,
        "least_memory_share": found.least_memory,
    }
    known = {name: share for name, share in shares.items() if share is not None}
    return {**known, "time_covered": found.time_covered}


UTILISATION = FunctionRule(
    UTILISATION_NAME, "utilisation over 100 % is an error, never clamped", _judge_utilisation
)
