"""How near is the step to the nearer roof: nearer than is likely, or far below, and why?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Calibration, Check, Flops, Level, Measurement, Result
from torchstone.stats import COVERAGE_NEEDED, Utilisation, compute_roof
from torchstone.stats.roofline import COMPUTE, is_eager
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import cpu_per_wall, estimator, seconds_per_call, wait_share
from torchstone.validate.roofs import WRITE_ALLOWANCE, caches_of, fullest, reached, sound
from torchstone.validate.words import count, duration, name_of, percent

NAME = "roofline"
SUSPICIOUS = 0.90
"""R4: whole models stay well below; only what the roof was measured with comes so near."""
LOW = 0.10
"""R4: from there down it is worth asking why."""
PURE = 0.90
"""Ours: a step that spends nine tenths of its op time in matrix products is one, for the roof."""
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
"""What compute roofs are measured with, or what the same kernels do."""


def _judge(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        found = reached(arm, result)
        if found is None or arm.flops is None or fullest(found) > 1:
            continue  # over a roof: that is the rule utilisation's
        if found.share > SUSPICIOUS:
            yield _near(arm, arm.flops, result, found)
        elif found.share >= LOW:
            text = f"{name_of(arm)} reaches {percent(found.share)} of its {found.nearer} roof."
            yield Check(NAME, Level.OK, text, _figures(found), (arm.arm.name,))
        elif max(arm.flops.time_understood, arm.flops.time_covered) >= COVERAGE_NEEDED:
            yield _far(arm, arm.flops, result, found)


def _near(arm: Measurement, flops: Flops, result: Result, found: Utilisation) -> Check:
    who, near = (arm.arm.name,), f"{name_of(arm)} reaches {percent(found.share)}"
    if found.nearer == COMPUTE:
        pure = matrix_time(flops)
        figures = {**_figures(found), "matrix_time": pure}
        if pure >= PURE:
            text = f"{near} of the compute roof, as a matrix product may: the roof is one."
            return Check(NAME, Level.OK, text, figures, who)
        return Check(
            NAME,
            Level.WARN,
            f"{near} of the compute roof, though {percent(1 - pure)} of its op time is no matrix "
            "product: that is suspicious. Calibrate again (torchstone doctor --calibrate), and "
            "look whether all of the work is done.",
            figures,
            who,
        )
    intensity = _of_ridge(flops, result, found)
    figures = {**_figures(found), "of_ridge": intensity}
    if intensity <= LEFT_OF_RIDGE and found.share <= WRITE_ALLOWANCE:
        text = f"{near} of the bandwidth of {found.level}, as a step that only streams may."
        return Check(NAME, Level.OK, text, figures, who)
    return Check(
        NAME,
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
    """Operations a byte, over those at which both roofs meet; 0 where a roof is not known."""
    calibration = _sound(result)
    roof = compute_roof(calibration, found.dtype, found.threads)
    memory = calibration.bandwidth_of(found.level, found.threads)
    if roof is None or memory is None or flops.bytes <= 0:
        return 0.0
    return flops.total / flops.bytes / (roof.value / memory.value)


def _far(arm: Measurement, flops: Flops, result: Result, found: Utilisation) -> Check:
    cause, remedy, figures = _cause(arm, flops, result)
    return Check(
        NAME,
        Level.NOTE,
        f"{name_of(arm)} reaches {percent(found.share)} of the nearer roof ({found.nearer}): "
        f"{cause}. {remedy}",
        {**_figures(found), **figures},
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
        cause = f"{work.op}, {percent(share)} of the op time, comes near neither roof"
        return cause, "Look at its sizes and memory layout.", {"heaviest_share": share}
    return "nothing in the record names the cause", "Profile it.", {}


def _sound(result: Result) -> Calibration:
    assert result.calibration is not None
    return sound(result.calibration, caches_of(result))


def _figures(found: Utilisation) -> dict[str, float]:
    shares = {"compute_share": found.compute, "memory_share": found.memory}
    return {"share": found.share, **{k: v for k, v in shares.items() if v is not None}}


ROOFLINE = FunctionRule(NAME, "R4: over 90 % or under 10 % of the nearer roof", _judge)
