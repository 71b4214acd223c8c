"""Is enough of the step counted to speak of utilisation?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.stats import COVERAGE_NEEDED
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import name_of, percent

NAME = "coverage"


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
    if flops.time_covered >= COVERAGE_NEEDED:
        text = f"Formulas cover {percent(flops.time_covered)} of the op time of {name_of(arm)}."
        yield Check(NAME, Level.OK, text, figures, who)
        return
    named = f" ({', '.join(flops.uncovered)} have none)" if flops.uncovered else ""
    if flops.time_understood >= COVERAGE_NEEDED:
        remedy = (
            "The rest is pointwise, reductions and copies, for which the memory roof is the one to "
            "look at."
        )
    else:
        remedy = "Register formulas for them to have one."
    text = (
        f"Formulas cover {percent(flops.time_covered)} of the op time of {name_of(arm)}{named}, so "
        f"no share of the compute roof is claimed. {remedy}"
    )
    yield Check(NAME, Level.NOTE, text, figures, who)


COVERAGE = FunctionRule(NAME, "R6: no utilisation under 80 % coverage", each_arm(_look))
