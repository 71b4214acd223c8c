"""Did the arm leave the clocks alone?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import name_of

NAME = "timer"


def _look(arm: Measurement) -> Iterator[Check]:
    if arm.integrity is None:
        return
    patched = arm.integrity.patched_timers
    figures, who = {"patched": float(len(patched))}, (arm.arm.name,)
    if not patched:
        yield Check(NAME, Level.OK, f"{name_of(arm)} left the timers alone.", figures, who)
        return
    yield Check(
        NAME,
        Level.FAIL,
        f"{name_of(arm)} replaces {', '.join(patched)} while it is timed. "
        "Take the patch out; code that changes the clock cannot be timed.",
        figures,
        who,
    )


TIMER = FunctionRule(NAME, "R13: timer functions unpatched", each_arm(_look))
