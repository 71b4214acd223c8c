"""What an evaluated result asks to be measured again, before it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone.records import Check, Comparison, Level, Result, Verdict
from torchstone.validate.base import name_of
from torchstone.validate.rules.peaks import WRITE_ALLOWANCE, over_full
from torchstone.validate.rules.statistics import TOO_GOOD, remeasurement, suspicious


def needs_recalibration(result: Result) -> list[tuple[str, int]]:
    """Peaks of which an arm reaches more than the whole: a dtype or a memory level, and threads.
    Measure them again beside the result, put the higher ones into it and evaluate again; what is
    still over then is wrong."""
    beaten = []
    for found in over_full(result):
        if (found.compute or 0.0) > 1:
            beaten.append((found.dtype, found.threads))
        if (found.least_memory or 0.0) > WRITE_ALLOWANCE:
            beaten.append((found.least_level, found.threads))
    return list(dict.fromkeys(beaten))


def needs_remeasuring(result: Result) -> list[Comparison]:
    """Comparisons that are too good to be believed unless they are measured once more. A ratio that
    was withheld only because it is too good is put back from its check. Arms that failed another
    check are past saving."""
    failed = {
        name
        for check in result.checks
        if check.level is Level.FAIL and check.rule != TOO_GOOD
        for name in (check.arms or [arm.arm.name for arm in result.arms])
    }
    return [
        comparison
        for comparison in (_with_ratio(c, result) for c in result.comparisons)
        if suspicious(comparison, result)
        and remeasurement(comparison, result) is None
        and failed.isdisjoint((comparison.base, comparison.new))
    ]


def _with_ratio(comparison: Comparison, result: Result) -> Comparison:
    if comparison.time_ratio is not None:
        return comparison
    for check in result.checks:
        speedup = check.figures.get("speedup", 0.0)
        if check.rule == TOO_GOOD and comparison.new in check.arms and speedup > 0:
            return replace(comparison, time_ratio=1 / speedup)
    return comparison


# No verdict for an arm that failed a check.


def withhold(comparisons: Sequence[Comparison], checks: Sequence[Check]) -> tuple[Comparison, ...]:
    """The comparisons, each one with a failed arm turned into `cannot tell`. Its figures go too, as
    for a wrong answer: a ratio that is not to be believed is not to be quoted. The samples are
    still in the record. A failed check without arms speaks of all."""
    failed = [check for check in checks if check.level is Level.FAIL]
    return tuple(_withheld(comparison, failed) for comparison in comparisons)


def _withheld(comparison: Comparison, failed: Sequence[Check]) -> Comparison:
    reasons = [text for text in (_reason(comparison, check) for check in failed) if text]
    if not reasons:
        return comparison
    return replace(
        comparison,
        verdict=Verdict.CANNOT_TELL,
        time_ratio=None,
        interval=None,
        floor=None,
        typical=None,
        smallest_detectable=None,
        deciding_budget_s=None,
        reason="Withheld: " + " and ".join(dict.fromkeys(reasons)) + ".",
    )


def _reason(comparison: Comparison, check: Check) -> str:
    if not check.arms:
        return f"the result fails the check {check.rule}"
    arms = [name_of(name) for name in (comparison.base, comparison.new) if name in check.arms]
    if not arms:
        return ""
    return f"{' and '.join(arms)} fail{'s' if len(arms) == 1 else ''} the check {check.rule}"
