"""Are the peaks known, measured and of this machine, and can the arms be as fast as they read?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torchstone.records import DRAM, Calibration, Check, Flops, Level, Measurement, Peak, Result
from torchstone.records.format import count, format_bytes, format_seconds, format_si, percent
from torchstone.stats import (
    COVERAGE_NEEDED,
    Utilisation,
    compute_peak,
    dtype_of,
    threads_of,
)
from torchstone.stats import utilisation as shares_of_peaks
from torchstone.stats.roofline import COMPUTE, DRAM_MULTIPLE, LEVELS, applies, last_level
from torchstone.validate.base import (
    arm_rule,
    check,
    cpu_per_wall,
    estimator,
    fail,
    name_of,
    note,
    ok,
    rule,
    seconds_per_call,
    wait_share,
    warn,
)

# Which peaks of a calibration a result may be held against, and what its arms reached of them.
#
# A peak that is not sound is refused: nothing is held against it, and a rule says why. That takes
# no figure from the arms, whose times do not depend on it.


SOURCES = ("measured", "datasheet", "user")
AGREES = (0.5, 1.15)
"""What was measured, over what a table says, when both speak of the same thing."""
TWICE_WITHIN = 0.10
"""A factor of two is the sign of counted sparsity or of MACs; a good matrix product comes
within a tenth of the dense peak (90 % was measured)."""
CLOCKS_HZ = (1e8, 1e10)
"""Processors run between 0.1 and 10 GHz; kHz or MHz taken for Hz lie outside."""
WRITE_ALLOWANCE = 4 / 3
"""A peak measured by writing counts three words of the four that move where the cache reads a line
before it is written. A step that only reads may exceed it by that much."""
DISTURBED = 1.15
"""DRAM faster than the caches by more than this: one of the readings was disturbed."""


@dataclass(frozen=True)
class Refusal:
    """Why a peak is not used."""

    reason: str
    measured_over_said: float | None = None
    known: bool = True
    """False where it only lacks confirmation, which is no fault."""


def reached(arm: Measurement, result: Result) -> Utilisation | None:
    """The shares of sound peaks that an arm reached; None where peak, count or time is unknown. A
    count is of one shape, so that nothing is claimed of an arm that goes through several."""
    if arm.flops is None or result.calibration is None or arm.arm.shapes > 1:
        return None
    seconds = seconds_per_call(arm, estimator(result))
    if seconds is None:
        return None
    return shares_of_peaks(arm, sound(result.calibration, caches_of(result)), seconds)


def fullest(found: Utilisation) -> float:
    """The largest share that cannot honestly be over 1: operations, or bytes nobody can avoid."""
    return max(found.compute or 0.0, (found.least_memory or 0.0) / WRITE_ALLOWANCE)


def sound(calibration: Calibration, caches: Mapping[str, int]) -> Calibration:
    """The calibration without what is refused; every compute peak of it was measured."""
    clock = calibration.clock
    return replace(
        calibration,
        compute=tuple(
            peak
            for peak in calibration.compute
            if peak.source == "measured" and _compute_refusal(peak, calibration) is None
        ),
        bandwidth=tuple(
            peak
            for peak in calibration.bandwidth
            if not _bandwidth_refusal(peak, calibration, caches)
        ),
        clock=clock if clock is not None and plausible_clock(clock.value) else None,
    )


def bandwidth_refusals(
    calibration: Calibration, caches: Mapping[str, int]
) -> list[tuple[Peak, str]]:
    """Bandwidths that are not used, and why."""
    found = ((p, _bandwidth_refusal(p, calibration, caches)) for p in calibration.bandwidth)
    return [(peak, reason) for peak, reason in found if reason]


def plausible_clock(hertz: float) -> bool:
    """Whether a processor can run at that."""
    return CLOCKS_HZ[0] <= hertz <= CLOCKS_HZ[1]


def caches_of(result: Result) -> Mapping[str, int]:
    """Cache sizes as the first arm that knows them says."""
    known = (arm.environment.caches for arm in result.arms if arm.environment)
    return next((caches for caches in known if caches), {})


def _key(peak: Peak) -> tuple[str, int]:
    return peak.dtype, peak.threads


def _compute_refusal(peak: Peak, calibration: Calibration) -> Refusal | None:
    if not (math.isfinite(peak.value) and peak.value > 0):
        return Refusal("is no rate")
    if not peak.dtype:
        return Refusal("does not say its dtype")
    if peak.source not in SOURCES:
        return Refusal("does not say where it comes from")
    if peak.sparse:
        return Refusal("counts operations that sparsity skips")
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
        return Refusal("is not confirmed by a measurement on this machine", known=False)
    return _disagreement(peak, measured)


def _disagreement(peak: Peak, measured: float) -> Refusal | None:
    """What a table says is not used where a measurement stands beside it, but it may be wrong."""
    ratio = measured / peak.value
    what = f"was measured as {format_si(measured, 'FLOP/s')}, {percent(ratio)} of it"
    for factor, cause in ((0.5, "counts sparsity"), (2.0, "counts a multiply-add as one")):
        if abs(ratio / factor - 1) <= TWICE_WITHIN:
            return Refusal(f"{what}: a factor of two, as where it {cause}", ratio)
    return None if AGREES[0] <= ratio <= AGREES[1] else Refusal(what, ratio)


def _bandwidth_refusal(peak: Peak, calibration: Calibration, caches: Mapping[str, int]) -> str:
    if not (math.isfinite(peak.value) and peak.value > 0):
        return "is no rate"
    if peak.source not in SOURCES:
        return "does not say where it comes from"
    if peak.level not in LEVELS:
        return "does not say which level it is of"
    last = last_level(calibration, caches)
    arrays = format_bytes(peak.array_bytes)
    if peak.level != DRAM:
        room = caches.get({"L1": "L1d"}.get(peak.level, peak.level), 0) * max(1, peak.threads)
        room = last if peak.level == "L3" else room
        if 0 < room < peak.array_bytes:
            return f"was measured with arrays of {arrays}, which {format_bytes(room)} cannot hold"
        return ""
    if not last or peak.source != "measured":
        return ""
    if not peak.array_bytes:
        return "does not say how large its arrays were"
    if peak.array_bytes < DRAM_MULTIPLE * last:
        return (
            f"was measured with arrays of {arrays}, under {DRAM_MULTIPLE} times the last-level "
            f"cache ({format_bytes(last)}), so it is partly the cache's"
        )
    cached = max(
        (p.value for p in calibration.bandwidth if p.level != DRAM and p.threads == peak.threads),
        default=math.inf,
    )
    if peak.value > DISTURBED * cached:
        return f"is above what any cache showed ({format_si(cached, 'B/s')})"
    return ""


_CALIBRATE = "Calibrate (torchstone doctor --calibrate)"


@rule("peak", "unknown is unknown, and tables must agree with measurement; dense only")
def peak(result: Result) -> Iterator[Check]:
    """Peaks that are missing, refused, or of another machine."""
    counted = [arm for arm in result.arms if arm.flops is not None and arm.turns]
    calibration = result.calibration
    if calibration is None:
        if counted:
            yield note(
                "The peak of this machine is unknown, so no utilisation is claimed. "
                f"{_CALIBRATE} to have one."
            )
        return
    fitting = [arm for arm in counted if applies(calibration, arm)]
    strangers = [arm for arm in counted if arm not in fitting]
    problems = [
        *_refused(calibration),
        *_foreign(strangers, calibration, separately=bool(fitting)),
        *_unknown(fitting, sound(calibration, caches_of(result))),
    ]
    yield from problems
    if calibration.compute and not problems:
        known = len(calibration.compute)
        yield ok(f"{count(known, 'peak')} known, with source and dtype.", peaks=known)


def _refused(calibration: Calibration) -> Iterator[Check]:
    """Compute peaks that are not used. A sparse one beside a dense one does no harm."""
    dense = {_key(peak) for peak in calibration.compute if not peak.sparse}
    refused = [
        (peak, refusal)
        for peak in calibration.compute
        if (refusal := _compute_refusal(peak, calibration))
        and not (peak.sparse and _key(peak) in dense)
    ]
    for known in (True, False):
        some = [(peak, refusal) for peak, refusal in refused if refusal.known is known]
        if not some:
            continue
        peak, first = some[0]
        at = f" at {count(peak.threads, 'thread')}" if peak.threads else ""
        more = f" (and {len(some) - 1} more)" if len(some) > 1 else ""
        figures: dict[str, float] = {"refused": len(some)}
        if first.measured_over_said is not None:
            figures["measured_over_said"] = first.measured_over_said
        remedy = f"{_CALIBRATE} for the peaks that are used."
        if known:
            remedy = f"It is not used; correct it, or leave it out. {_CALIBRATE}."
        yield check(
            Level.WARN if known else Level.NOTE,
            f"The {peak.dtype or 'unnamed'} peak{at} ({peak.source or 'no source'}, "
            f"{format_si(peak.value, 'FLOP/s')}){more} {first.reason}. {remedy}",
            **figures,
        )


def _foreign(
    arms: list[Measurement], calibration: Calibration, *, separately: bool
) -> Iterator[Check]:
    """Arms of another machine than the peaks. Where they are only some of the arms, each has a
    check of its own, because what is said of the baseline is every case's."""
    for some in [[arm] for arm in arms] if separately else [arms] * bool(arms):
        yield warn(
            f"The peaks are of another machine or device ({calibration.device_name or 'unnamed'}, "
            f"{calibration.machine_id}, {calibration.device}) than {name_of(some[0])}, so no "
            f"utilisation is claimed. {_CALIBRATE} where the arms run.",
            [arm.arm.name for arm in some],
        )


def _unknown(arms: list[Measurement], known: Calibration) -> Iterator[Check]:
    """Arms for whose dtype and thread count nothing was measured; there is no figure to fall on."""
    for arm in arms:
        dtype, threads = dtype_of(arm), threads_of(arm)
        if threads is not None and compute_peak(known, dtype, threads) is None:
            yield note(
                f"The {dtype} peak at {count(threads, 'thread')} is unknown, so no share of it is "
                f"claimed of {name_of(arm)}. {_CALIBRATE} at that thread count to have one.",
                (arm.arm.name,),
            )


# How near is the step to the nearer peak: nearer than is likely, or far below, and why?


SUSPICIOUS = 0.90
"""Whole models stay well below; only what the peak was measured with comes so near."""
LOW = 0.10
"""From there down it is worth asking why."""
PURE = 0.90
"""Ours: a step that spends nine tenths of its op time in matrix products is one, for the peak."""
LEFT_OF_RIDGE = 0.25
"""Ours: with a quarter of the ridge's operations a byte, memory alone is what limits a step."""
CAUSE = 0.50
"""Ours: what takes half of the step is what to look at first."""
WAITING = 0.02
"""The limit of the rule `noise` for threads that are ready but without a core."""
MATRIX_OPS = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "_addmm_activation", "_scaled_mm"),
        *("_grouped_mm", "convolution", "convolution_backward", "conv1d", "conv2d", "conv3d"),
        *("mkldnn_linear", "mkldnn_convolution"),
    )
)
"""What compute peaks are measured with, or what the same kernels do."""
_LOOK_AGAIN = (
    "that is suspicious. Calibrate again (torchstone doctor --calibrate), and look whether all of "
    "the work is done."
)


@arm_rule("roofline", "over 90 % or under 10 % of the nearer peak")
def roofline(arm: Measurement, result: Result) -> Iterator[Check]:
    """An arm that is nearer to a peak than is likely, or far below both."""
    found, flops = reached(arm, result), arm.flops
    if found is None or flops is None or fullest(found) > 1:
        return  # over a peak: that is the rule utilisation's
    shares = {"compute_share": found.compute, "memory_share": found.memory}
    figures = {"share": found.share, **{k: v for k, v in shares.items() if v is not None}}
    reaches = f"{name_of(arm)} reaches {percent(found.share)}"
    if found.share > SUSPICIOUS:
        yield _near_peak(flops, result, found, reaches, figures)
    elif found.share >= LOW:
        yield ok(f"{reaches} of its {found.nearer} peak.", **figures)
    elif max(flops.time_understood, flops.time_covered) >= COVERAGE_NEEDED:
        cause, remedy, evidence = _cause(arm, flops, result)
        yield note(
            f"{reaches} of the nearer peak ({found.nearer}): {cause}. {remedy}",
            **figures,
            **evidence,
        )


def _near_peak(
    flops: Flops, result: Result, found: Utilisation, reaches: str, figures: dict[str, float]
) -> Check:
    if found.nearer == COMPUTE:
        pure = _matrix_time(flops)
        figures["matrix_time"] = pure
        if pure >= PURE:
            return ok(
                f"{reaches} of the compute peak, as a matrix product may: the peak is one.",
                **figures,
            )
        return warn(
            f"{reaches} of the compute peak, though {percent(1 - pure)} of its op time is no "
            f"matrix product: {_LOOK_AGAIN}",
            **figures,
        )
    intensity = _of_ridge(flops, result, found)
    figures["of_ridge"] = intensity
    if intensity <= LEFT_OF_RIDGE and found.share <= WRITE_ALLOWANCE:
        return ok(
            f"{reaches} of the bandwidth of {found.level}, as a step that only streams may.",
            **figures,
        )
    return warn(
        f"{reaches} of the bandwidth of {found.level}, though it computes {percent(intensity)} of "
        f"what it would take to be limited by arithmetic instead: {_LOOK_AGAIN}",
        **figures,
    )


def _matrix_time(flops: Flops) -> float:
    """Share of the op time in matrix products and convolutions; of covered time where unknown."""
    total = sum(work.time_ns for work in flops.heaviest)
    if not total:
        return flops.time_covered
    matrix = (w for w in flops.heaviest if MATRIX_OPS & {*w.op.replace("::", ".").split(".")})
    return sum(work.time_ns for work in matrix) / total


def _of_ridge(flops: Flops, result: Result, found: Utilisation) -> float:
    """Operations a byte, over those at which both peaks meet; 0 where a peak is not known."""
    calibration = _sound(result)
    compute = compute_peak(calibration, found.dtype, found.threads)
    memory = calibration.bandwidth_of(found.level, found.threads)
    if compute is None or memory is None or flops.bytes <= 0:
        return 0.0
    return flops.total / flops.bytes / (compute.value / memory.value)


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
    if dispatch is not None and arm.arm.is_eager and seconds:
        share = flops.ops * dispatch.value / seconds
        if share >= CAUSE:
            cause = (
                f"the dispatch of {count(flops.ops, 'op')} at {format_seconds(dispatch.value, 3)} "
                f"each is about {percent(min(share, 1.0))} of the step"
            )
            return cause, "Compile it, or give it larger inputs.", {"dispatch_share": share}
    inside = sum(work.time_ns for work in flops.heaviest) / 1e9
    if arm.arm.is_eager and seconds and 0 < inside < CAUSE * seconds:
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


# Is the time shorter than the work can take?


BELOW = 0.9
"""The floor is calibrated, so a tenth is left for its own error."""


@arm_rule("time-floor", "time below the roofline floor")
def time_floor(arm: Measurement, result: Result) -> Iterator[Check]:
    """Samples shorter than the clock can tell, or than the machine's peaks allow."""
    seconds = seconds_per_call(arm, estimator(result))
    if seconds is None:
        return
    sample = seconds * arm.loops
    timer = result.calibration.costs.get("timer") if result.calibration else None
    if timer is not None and 0 < sample < timer.value:
        yield fail(
            f"A sample of {name_of(arm)} ({format_seconds(sample, 3)}) is shorter than reading the "
            f"clock takes ({format_seconds(timer.value, 3)}). Let the target do more in a call, or "
            "give timeit a larger -n.",
            sample_s=sample,
            timer_s=timer.value,
        )
        return
    found = reached(arm, result)
    if found is None:
        return
    floor = fullest(found) * seconds
    if seconds >= BELOW * floor:
        yield ok(
            f"{name_of(arm)} takes no less than its work needs.", seconds=seconds, floor_s=floor
        )
        return
    yield fail(
        f"{name_of(arm)} takes {format_seconds(seconds, 3)} where the peaks of this machine allow "
        f"no less than {format_seconds(floor, 3)} ({percent(seconds / floor)} of it). Look for "
        "work that is left out, remembered or done after the clock has stopped.",
        seconds=seconds,
        floor_s=floor,
    )


# Is more claimed than the machine can do?


FULL = 1.00
"""Nothing does more than the peak."""
IMPOSSIBLE = 1.05
"""Ours: a peak is the best of many short samples and may have been missed by some per cent. What is
still above after calibrating again is wrong."""


def over_full(result: Result) -> Iterator[Utilisation]:
    """What arms reach that reach more than the whole of a peak."""
    for arm in result.arms:
        found = reached(arm, result)
        if found is not None and fullest(found) > FULL:
            yield found


@arm_rule("utilisation", "utilisation over 100 % is an error, never clamped")
def utilisation(arm: Measurement, result: Result) -> Iterator[Check]:
    """An arm that reads more than the peaks of the machine allow."""
    found = reached(arm, result)
    if found is None:
        return
    shares = {
        "compute_share": found.compute,
        "memory_share": found.memory,
        "least_memory_share": found.least_memory,
        "time_covered": found.time_covered,
    }
    figures = {name: share for name, share in shares.items() if share is not None}
    worst = fullest(found)
    said = f"{name_of(arm)} reads {_claim(found)}"
    if worst <= FULL:
        yield ok(f"{name_of(arm)} claims no more than the calibrated peaks allow.", **figures)
    elif worst <= IMPOSSIBLE:
        yield warn(
            f"{said}: just over what was calibrated. Calibrate again when the machine is quiet "
            "(torchstone doctor --calibrate).",
            **figures,
        )
    else:
        yield fail(
            f"{said}, which cannot be: the time, the count or the peak is wrong. Calibrate again "
            "(torchstone doctor --calibrate); if it stays, look for work that the arm leaves out, "
            "for operations counted twice, or for an algorithm that needs fewer of them than its "
            "formula says (Winograd).",
            **figures,
        )


def _claim(found: Utilisation) -> str:
    compute, memory = found.compute or 0.0, found.least_memory or 0.0
    if compute >= memory / WRITE_ALLOWANCE:
        at = f" at {count(found.threads, 'thread')}" if found.threads else ""
        return f"{percent(compute)} of the {found.dtype} peak{at}"
    return f"{percent(memory)} of the bandwidth of {found.least_level}"
