"""The A/A of the doctor: two identical arms for a few seconds, and what that says of today."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchstone import stats
from torchstone.conductor import Events, Settings
from torchstone.lab import identical
from torchstone.lab.bench import measure_unkept
from torchstone.lab.keeping import Keeper
from torchstone.machine.allocator import usual_allocator
from torchstone.records import (
    ArmSpec,
    Estimate,
    Finding,
    Level,
    Measurement,
    Outcome,
    Result,
)

NAME = "identical"
TARGET = "torchstone.workloads.yardstick:run()"
ARMS = ("identical arm", "its twin")
BUDGET_S = 4.0
REPLICATES = 4
"""Fresh processes an arm: fewer give an interval that no effect would leave."""
GOOD = 0.02
"""The default margin: what lies below it counts as the same anyway."""


@dataclass(frozen=True)
class Seen:
    """What the A/A gave. `smallest` is the smallest difference that could have been shown."""

    finding: Finding
    estimate: Estimate | None = None
    smallest: float | None = None
    interrupted: bool = False


def measure_identical(
    keeper: Keeper, events: Events | None = None, target: str = TARGET, budget_s: float = BUDGET_S
) -> Seen:
    """Measure the same function as two arms; remember what they differed by."""
    settings = Settings(budget_s=budget_s, replicates=REPLICATES, check_outputs=False)
    arms = tuple(ArmSpec(name, target, allocator=usual_allocator()) for name in ARMS)
    # Without the keeper: no third arm runs along, and no earlier floor hides a difference.
    result = measure_unkept(arms, settings, None, events, (), "doctor")
    return see(result, keeper)


def see(result: Result, keeper: Keeper) -> Seen:
    """What the two arms of a result say of this machine."""
    interrupted = result.method.stopped_by == "interrupt"
    base, twin = result.arms
    failed = next((arm for arm in result.arms if arm.outcome is not Outcome.OK), None)
    if failed is not None and not interrupted:
        return Seen(_broken(failed))
    estimate = _estimate(base, twin)
    if estimate is None:
        said = "interrupted" if interrupted else "too few processes gave samples"
        return Seen(_unknown(said), interrupted=interrupted)
    differ = identical.differ(base, twin, result.method.margin)
    shown = result.comparisons[0].smallest_detectable if result.comparisons else None
    if differ or (shown is not None and shown <= identical.USELESS):
        identical.remember(keeper, base, estimate)
    floor = identical.aa_floor(keeper, base)
    smallest = None if shown is None or not math.isfinite(shown) else max(shown, floor)
    finding = _judge(estimate, differ, smallest, result.method.budget_s)
    return Seen(finding, estimate, smallest, interrupted)


def _estimate(base: Measurement, twin: Measurement) -> Estimate | None:
    if not (base.turns and twin.turns):
        return None
    found = stats.ratio(base, twin, stats.estimator_of(base))
    usable = found.replicates > 1 and math.isfinite(found.time_ratio)
    return found if usable else None


def _judge(estimate: Estimate, differ: bool, smallest: float | None, budget_s: float) -> Finding:
    apart = abs(estimate.time_ratio - 1)
    figures = {"difference": apart, "processes": float(estimate.replicates)}
    if smallest is not None:
        figures["smallest_detectable"] = smallest
    if differ:
        return Finding(
            NAME,
            Level.FAIL,
            f"two identical programs differ by {_percent(apart)} here",
            figures,
            "Do not believe differences of that size today; make the machine quieter and look "
            "again.",
        )
    if smallest is None:
        return _unknown("the spread of the samples has no bound")
    said = (
        f"two identical programs differ by {_percent(apart)} in {budget_s:g} s: "
        f"differences under {_percent(smallest)} cannot be seen here today"
    )
    if smallest <= GOOD:
        return Finding(NAME, Level.OK, said, figures)
    if smallest <= identical.USELESS:
        return Finding(
            NAME,
            Level.WARN,
            said,
            figures,
            "A longer --budget shows smaller ones; a quieter machine helps more.",
        )
    return Finding(
        NAME, Level.FAIL, said, figures, "Make the machine quieter, or measure on another."
    )


def _unknown(why: str) -> Finding:
    return Finding(
        NAME,
        Level.NOTE,
        f"what can be told apart here is not known: {why}",
        remedy="Run `torchstone doctor` again.",
    )


def _broken(arm: Measurement) -> Finding:
    said = arm.detail.message or "no message"
    return Finding(
        NAME,
        Level.FAIL,
        f"a plain function could not be measured: it ended as {arm.outcome.value} ({said})",
        remedy="Nothing can be measured here before that is mended.",
    )


def _percent(share: float) -> str:
    size = share * 100
    return f"{size:.{0 if size >= 9.95 else 1 if size >= 0.995 else 2}f} %"
