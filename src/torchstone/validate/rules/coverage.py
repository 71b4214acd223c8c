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
    known = max(flops.time_covered, flops.time_understood)
    if known >= COVERAGE_NEEDED:
        text = f"The work of {percent(known)} of the op time of {name_of(arm)} is known"
        if flops.time_covered < known:
            text += f", {percent(flops.time_covered)} by formulas and the rest by its bytes"
        yield Check(NAME, Level.OK, f"{text}.", figures, who)
        return
    named = f" ({', '.join(flops.uncovered)} have none)" if flops.uncovered else ""
    text = (
        f"Formulas cover {percent(flops.time_covered)} of the op time of {name_of(arm)}{named}, "
        f"and the work of {percent(known)} is known in all, so no share of the compute roof is "
        "claimed. Register formulas for them to have one."
    )
    yield Check(NAME, Level.NOTE, text, figures, who)


COVERAGE = FunctionRule(NAME, "R6: no utilisation under 80 % coverage", each_arm(_look))
