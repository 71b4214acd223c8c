"""Can the counted operations be right? A multiplication and an addition are two.

The counting pass tests its formulas on ops of known size and gives no count where one is wrong.
From a record a count cannot be made again; what can be seen is that test's verdict, parts that do
not add up to their sum, and two counts of one workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchstone.records import ArmSpec, Check, Flops, Level, Measurement, Result
from torchstone.records.format import count, percent
from torchstone.stats import COVERAGE_NEEDED
from torchstone.validate.base import FunctionRule, each_arm, name_of, number, rate
from torchstone.validate.rules.peaks import bandwidth_refusals, caches_of

FLOPS_NAME = "flops"
UNCOUNTED = "FLOPs not counted: "
"""How a measurement's note begins that says why there is no count."""
WRONG_FORMULA = "The formula for"
"""How the reason begins where a formula gave a wrong count for an op of known size."""
NAMED = 12
"""The counting pass names the ops with most operations, up to this many."""
TWICE_WITHIN = 0.01
"""counts are exact, so a factor of two is exactly two."""

_REMEDY = "Correct the formula or take it out, and count again; no share of a peak stands on it."


def _judge_flops(result: Result) -> Iterator[Check]:
    counted = [arm for arm in result.arms if arm.flops is not None]
    clean = True
    for check in (*_uncounted(result), *_singly(counted), *_together(counted)):
        clean = False
        yield check
    if counted and clean:
        text = "The counted operations add up."
        yield Check(FLOPS_NAME, Level.OK, text, {"counts": float(len(counted))})


def _uncounted(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        for note in arm.notes:
            if not note.startswith(UNCOUNTED):
                continue
            reason = note.removeprefix(UNCOUNTED).rstrip(".")
            wrong = reason.startswith(WRONG_FORMULA)
            remedy = _REMEDY if wrong else "Without a count no utilisation is claimed."
            text = f"The operations of {name_of(arm)} were not counted: {reason}. {remedy}"
            level = Level.WARN if wrong else Level.NOTE
            yield Check(FLOPS_NAME, level, text, arms=(arm.arm.name,))


def _singly(arms: list[Measurement]) -> Iterator[Check]:
    told: list[Flops] = []
    for arm in arms:
        flops = arm.flops
        if flops is None or flops in told:
            continue  # arms of one workload share one count
        told.append(flops)
        for found, figures in _faults(flops):
            text = f"Of the operations counted for {name_of(arm)}, {found}. {_REMEDY}"
            yield Check(FLOPS_NAME, Level.WARN, text, figures, (arm.arm.name,))


def _faults(flops: Flops) -> Iterator[tuple[str, dict[str, float]]]:
    parts = sum(flops.by_op.values())
    whole = len(flops.by_op) < NAMED
    if parts and (flops.total < parts or (whole and flops.total > parts)):
        yield (
            f"the total ({number(flops.total)}) is not the sum of its parts ({number(parts)})"
            f"{_meaning(flops.total / parts)}",
            {"total": float(flops.total), "parts": float(parts)},
        )
    for work in flops.heaviest:
        said = flops.by_op.get(work.op)
        if work.flops and said is not None and said != work.flops:
            yield (
                f"{work.op} is counted as {number(said)} and as {number(work.flops)}"
                f"{_meaning(said / work.flops)}",
                {"by_op": float(said), "heaviest": float(work.flops)},
            )


def _together(arms: list[Measurement]) -> Iterator[Check]:
    """Two counts of one workload must be one number."""
    first: dict[ArmSpec, Measurement] = {}
    for arm in arms:
        base = first.setdefault(_workload(arm.arm), arm)
        if not base.flops or not arm.flops or base.flops.total == arm.flops.total:
            continue
        ratio = arm.flops.total / base.flops.total if base.flops.total else 0.0
        text = (
            f"{name_of(arm)} and {name_of(base)} are the same workload, but two counts of it "
            f"differ by {percent(ratio - 1)}{_meaning(ratio)}. {_REMEDY}"
        )
        yield Check(FLOPS_NAME, Level.WARN, text, {"ratio": ratio}, (base.arm.name, arm.arm.name))


def _meaning(ratio: float) -> str:
    if abs(ratio / 2 - 1) <= TWICE_WITHIN:
        return ": something counts twice"
    if abs(ratio / 0.5 - 1) <= TWICE_WITHIN:
        return ": multiply-adds were counted as one"
    return ""


def _workload(spec: ArmSpec) -> ArmSpec:
    """What is counted: the plain workload, whatever the variant and its settings."""
    return replace(
        ArmSpec("", spec.target),
        mode=spec.mode,
        precision=spec.precision,
        statement=spec.statement,
        shapes=spec.shapes,
    )


FLOPS = FunctionRule(FLOPS_NAME, "FLOPs, not MACs, each once", _judge_flops)


# Is enough of the step counted to speak of utilisation?


COVERAGE_NAME = "coverage"


def _look(arm: Measurement) -> Iterator[Check]:
    flops = arm.flops
    if flops is None:
        return
    figures = {
        "time_covered": flops.time_covered,
        "time_understood": flops.time_understood,
        "ops": float(flops.ops),
        "ops_covered": float(flops.ops_covered),
    }
    who = (arm.arm.name,)
    known = max(flops.time_covered, flops.time_understood)
    if known >= COVERAGE_NEEDED:
        text = f"The work of {percent(known)} of the op time of {name_of(arm)} is known"
        if flops.time_covered < known:
            text += f", {percent(flops.time_covered)} by formulas and the rest by its bytes"
        yield Check(COVERAGE_NAME, Level.OK, f"{text}.", figures, who)
        return
    named = f" ({', '.join(flops.uncovered)} have none)" if flops.uncovered else ""
    text = (
        f"Formulas cover {percent(flops.time_covered)} of the op time of {name_of(arm)}{named}, "
        f"and the work of {percent(known)} is known in all, so no share of the compute peak is "
        "claimed. Register formulas for them to have one."
    )
    yield Check(COVERAGE_NAME, Level.NOTE, text, figures, who)


COVERAGE = FunctionRule(COVERAGE_NAME, "no utilisation under 80 % coverage", each_arm(_look))


# Is a bandwidth that is called DRAM's not the cache's?


WORKING_SET_NAME = "working-set"


def _judge_working_set(result: Result) -> Iterator[Check]:
    calibration = result.calibration
    if calibration is None or not calibration.bandwidth:
        return
    refused = list(bandwidth_refusals(calibration, caches_of(result)))
    figures = {"bandwidths": float(len(calibration.bandwidth)), "refused": float(len(refused))}
    if not refused:
        text = f"{count(len(calibration.bandwidth), 'bandwidth')} measured with fitting arrays."
        yield Check(WORKING_SET_NAME, Level.OK, text, figures)
        return
    peak, reason = refused[0]
    more = f" (and {count(len(refused) - 1, 'more')})" if len(refused) > 1 else ""
    yield Check(
        WORKING_SET_NAME,
        Level.WARN,
        f"The bandwidth of {peak.level or 'an unnamed level'} ({rate(peak.value, 'B/s')}){more} "
        f"{reason}. Nothing is held against it; calibrate again (torchstone doctor --calibrate) "
        "with arrays that fit the label.",
        {**figures, "array_bytes": float(peak.array_bytes), "bytes_per_s": peak.value},
    )


WORKING_SET = FunctionRule(
    WORKING_SET_NAME, "arrays of four times the last-level cache (STREAM)", _judge_working_set
)
