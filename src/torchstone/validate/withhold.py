"""No verdict for an arm that failed a check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone.records import Check, Comparison, Level, Verdict
from torchstone.validate.words import name_of


def withhold(comparisons: Sequence[Comparison], checks: Sequence[Check]) -> tuple[Comparison, ...]:
    """The comparisons, each one with a failed arm turned into `cannot tell`.

    Its figures go too, as for a wrong answer: a ratio that is not to be believed is not to be
    quoted. The samples are still in the record. A failed check without arms speaks of all.
    """
    failed = [check for check in checks if check.level is Level.FAIL]
    return tuple(_judged(comparison, failed) for comparison in comparisons)


def _judged(comparison: Comparison, failed: Sequence[Check]) -> Comparison:
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
