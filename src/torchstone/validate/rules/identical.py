"""Is a difference larger than what identical arms differ by?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from torchstone.records import Check, Comparison, Level, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import arm_named
from torchstone.validate.words import name_of, percent

NAME = "identical"
TIMES_FLOOR = 2.0
"""R16: an effect is believed from twice what nine of ten identical pairs differ by."""


def _judge(result: Result) -> Iterator[Check]:
    claimed = [c for c in result.comparisons if _claims(c)]
    same = [c for c in claimed if _are_identical(c, result)]
    for comparison in same:
        yield _phantom(comparison)
    seen = max((_effect(c) for c in same), default=0.0)
    for comparison in claimed:
        if comparison not in same:
            yield _look(comparison, max(comparison.aa_floor, seen))


def _look(comparison: Comparison, floor: float) -> Check:
    effect = _effect(comparison)
    figures, who = {"effect": effect, "aa_floor": floor}, (comparison.new,)
    if effect >= TIMES_FLOOR * floor:
        text = f"{name_of(comparison.new)} differs by more than identical arms do."
        return Check(NAME, Level.OK, text, figures, who)
    text = (
        f"{name_of(comparison.new)} is called {comparison.verdict.value} by {percent(effect)}, "
        f"less than twice what identical arms differ by here ({percent(floor)}). Confirm it in "
        "another session, or with a longer --budget on a quieter machine."
    )
    return Check(NAME, Level.WARN, text, figures, who)


def _phantom(comparison: Comparison) -> Check:
    effect = _effect(comparison)
    text = (
        f"{name_of(comparison.new)} and {name_of(comparison.base)} are identical and yet called "
        f"{comparison.verdict.value} by {percent(effect)}: so much is this machine's doing. Run "
        "torchstone doctor, and measure again when it is quieter."
    )
    figures = {"effect": effect, "aa_floor": comparison.aa_floor}
    return Check(NAME, Level.FAIL, text, figures, (comparison.new,))


def _claims(comparison: Comparison) -> bool:
    return comparison.verdict.different and bool(comparison.time_ratio)


def _effect(comparison: Comparison) -> float:
    """On the log scale, so that swapping the arms changes nothing."""
    return math.expm1(abs(math.log(comparison.time_ratio or 1.0)))


def _are_identical(comparison: Comparison, result: Result) -> bool:
    base, new = arm_named(comparison.base, result), arm_named(comparison.new, result)
    if base is None or new is None or replace(new.arm, name=base.arm.name) != base.arm:
        return False
    # What a target does may depend on what is installed and set around it.
    return base.environment == new.environment


IDENTICAL = FunctionRule(NAME, "R16: twice the A/A floor, and identical arms are the same", _judge)
