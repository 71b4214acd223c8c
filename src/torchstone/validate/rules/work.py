"""Can the counted operations and the measured bandwidths be right?

The counting pass tests its formulas on ops of known size and gives no count where one is wrong.
From a record a count cannot be made again; what can be seen is that test's verdict, parts that do
not add up to their sum, and two counts of one workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchstone.records import ArmSpec, Check, Flops, Level, Measurement, Result
from torchstone.records.format import count, format_count, format_si, percent
from torchstone.stats import COVERAGE_NEEDED
from torchstone.validate.base import arm_rule, check, name_of, note, ok, rule, warn
from torchstone.validate.rules.peaks import bandwidth_refusals, caches_of

UNCOUNTED = "FLOPs not counted: "
"""How a measurement's note begins that says why there is no count."""
WRONG_FORMULA = "The formula for"
"""How the reason begins where a formula gave a wrong count for an op of known size."""
NAMED = 12
"""The counting pass names the ops with most operations, up to this many."""
TWICE_WITHIN = 0.01
"""Counts are exact, so a factor of two is exactly two."""

_REMEDY = "Correct the formula or take it out, and count again; no share of a peak rests on it."


@rule("flops", "FLOPs, not MACs, each once")
def flops(result: Result) -> Iterator[Check]:
    """Operations that were not counted, or counts that do not add up; a multiply-add is two."""
    counted = [(arm, arm.flops) for arm in result.arms if arm.flops is not None]
    problems = [*_uncounted(result), *_inconsistent(counted), *_contradictory(counted)]
    yield from problems
    if counted and not problems:
        yield ok("The counted operations add up.", counts=len(counted))


def _uncounted(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        for reason in (n.removeprefix(UNCOUNTED) for n in arm.notes if n.startswith(UNCOUNTED)):
            wrong = reason.startswith(WRONG_FORMULA)
            remedy = _REMEDY if wrong else "Without a count no utilisation is claimed."
            yield check(
                Level.WARN if wrong else Level.NOTE,
                f"The operations of {name_of(arm)} were not counted: {reason.rstrip('.')}. "
                f"{remedy}",
                (arm.arm.name,),
            )


def _inconsistent(counted: list[tuple[Measurement, Flops]]) -> Iterator[Check]:
    told: list[Flops] = []
    for arm, found in counted:
        if found in told:
            continue  # arms of one workload share one count
        told.append(found)
        for what, figures in _contradictions(found):
            yield warn(
                f"Of the operations counted for {name_of(arm)}, {what}. {_REMEDY}",
                (arm.arm.name,),
                **figures,
            )


def _contradictions(found: Flops) -> Iterator[tuple[str, dict[str, float]]]:
    parts = sum(found.by_op.values())
    whole = len(found.by_op) < NAMED
    if parts and (found.total < parts or (whole and found.total > parts)):
        yield (
            f"the total ({format_count(found.total)}) is not the sum of its parts "
            f"({format_count(parts)}){_meaning(found.total / parts)}",
            {"total": found.total, "parts": parts},
        )
    for work in found.heaviest:
        said = found.by_op.get(work.op)
        if work.flops and said is not None and said != work.flops:
            yield (
                f"{work.op} is counted as {format_count(said)} and as {format_count(work.flops)}"
                f"{_meaning(said / work.flops)}",
                {"by_op": said, "heaviest": work.flops},
            )


def _contradictory(counted: list[tuple[Measurement, Flops]]) -> Iterator[Check]:
    """Two counts of one workload must be one number."""
    first: dict[ArmSpec, tuple[Measurement, Flops]] = {}
    for arm, found in counted:
        base, before = first.setdefault(_workload(arm.arm), (arm, found))
        if before.total == found.total:
            continue
        ratio = found.total / before.total if before.total else 0.0
        yield warn(
            f"{name_of(arm)} and {name_of(base)} are the same workload, but two counts of it "
            f"differ by {percent(ratio - 1)}{_meaning(ratio)}. {_REMEDY}",
            (base.arm.name, arm.arm.name),
            ratio=ratio,
        )


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


@arm_rule("coverage", "no utilisation under 80 % coverage")
def coverage(arm: Measurement, _: Result) -> Iterator[Check]:
    """Steps of which too little is counted to speak of utilisation."""
    found = arm.flops
    if found is None:
        return
    figures = {
        "time_covered": found.time_covered,
        "time_understood": found.time_understood,
        "ops": found.ops,
        "ops_covered": found.ops_covered,
    }
    known = max(found.time_covered, found.time_understood)
    if known >= COVERAGE_NEEDED:
        text = f"The work of {percent(known)} of the op time of {name_of(arm)} is known"
        if found.time_covered < known:
            text += f", {percent(found.time_covered)} by formulas and the rest by its bytes"
        yield ok(f"{text}.", **figures)
        return
    named = f" ({', '.join(found.uncovered)} have none)" if found.uncovered else ""
    yield note(
        f"Formulas cover {percent(found.time_covered)} of the op time of {name_of(arm)}{named}, "
        f"and the work of {percent(known)} is known in all, so no share of the compute peak is "
        "claimed. Register formulas for them to have one.",
        **figures,
    )


@rule("working-set", "arrays of four times the last-level cache (STREAM)")
def working_set(result: Result) -> Iterator[Check]:
    """Bandwidths that are another level's than they say, such as a cache's called DRAM's."""
    calibration = result.calibration
    if calibration is None or not calibration.bandwidth:
        return
    known, refused = len(calibration.bandwidth), bandwidth_refusals(calibration, caches_of(result))
    figures = {"bandwidths": known, "refused": len(refused)}
    if not refused:
        yield ok(f"{count(known, 'bandwidth')} measured with fitting arrays.", **figures)
        return
    peak, reason = refused[0]
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    yield warn(
        f"The bandwidth of {peak.level or 'an unnamed level'} ({format_si(peak.value, 'B/s')})"
        f"{more} {reason}. It is not used; calibrate again (torchstone doctor --calibrate) with "
        "arrays that fit the label.",
        **figures,
        array_bytes=peak.array_bytes,
        bytes_per_s=peak.value,
    )
