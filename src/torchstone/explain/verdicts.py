"""Whether a prediction held, from the comparison that put it to the test."""

from __future__ import annotations

import math
from dataclasses import replace

from torchstone.records import ArmSpec, Outcome, Prediction, Remedy, Result, Verification
from torchstone.records.format import faster_range, times


def verdict(prediction: Prediction, result: Result) -> Verification:
    """The measured interval against the range: it held where all of the interval is inside, and did
    not where all of it is outside. One that reaches over an edge decides nothing, and neither does
    a ratio without an interval.

    Of typical steps, because a ledger is of those: what comes now and then (pages that are mapped
    again, the collector) is not in the quickest.
    """
    low, high = prediction.time_ratio
    failed = [arm for arm in result.arms if arm.outcome is not Outcome.OK]
    if failed:
        arm = failed[-1]
        why = f"{arm.arm.name}: {arm.outcome.value}, {arm.detail.message}"
        return replace(_not_tested(prediction, why), result_id=result.id)
    comparison = result.comparisons[0] if result.comparisons else None
    if comparison is None or comparison.time_ratio is None:
        return _not_tested(prediction, "no comparison came out")
    typical = comparison.typical
    measured = typical.time_ratio if typical else comparison.time_ratio
    interval = _finite(typical.interval) if typical else comparison.interval
    held = _held(interval, low, high)
    words = {
        True: "The prediction held",
        None: "It cannot be told whether the prediction held",
        False: "The prediction did not hold",
    }
    ends = [math.inf if not end else 1 / end for end in interval or ()]
    spread = f" ({times(ends[1])} to {times(ends[0])})" if ends else ""
    sentence = (
        f"{words[held]}: predicted {faster_range(low, high)}, measured {times(1 / measured)}"
        f"{spread}{' by typical steps' if typical else ''}."
    )
    return Verification(prediction.name, (low, high), measured, interval, held, sentence, result.id)


def _finite(interval: tuple[float, float]) -> tuple[float, float] | None:
    """None for that of a single process, which has no ends."""
    return interval if math.isfinite(interval[1]) else None


def _held(interval: tuple[float, float] | None, low: float, high: float) -> bool | None:
    if interval is None:
        return None
    if low <= interval[0] and interval[1] <= high:
        return True
    return None if interval[0] <= high and interval[1] >= low else False


def untested(prediction: Prediction) -> Verification:
    """One that cannot be applied by itself."""
    return _not_tested(prediction, prediction.why_not or "no remedy can be applied by itself")


def _not_tested(prediction: Prediction, why: str) -> Verification:
    return Verification(prediction.name, prediction.time_ratio, sentence=f"Not tested: {why}.")


def apply_remedy(remedy: Remedy, arm: ArmSpec, name: str) -> ArmSpec:
    """The arm after the remedy: an arm like any other, which can be measured again by its name."""
    variant = remedy.variant or arm.variant
    if remedy.technique:
        variant = f"{variant}+{remedy.technique}"
    return replace(
        arm,
        name=name,
        variant=variant,
        threads=remedy.threads or arm.threads,
        allocator=remedy.allocator or arm.allocator,
    )
