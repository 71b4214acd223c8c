"""Is the time shorter than the work can take?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import estimator, seconds_per_call
from torchstone.validate.roofs import fullest, reached
from torchstone.validate.words import duration, name_of, percent

NAME = "time-floor"
BELOW = 0.9
"""R10: the floor is calibrated, so a tenth is left for its own error."""


def _judge(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        seconds = seconds_per_call(arm, estimator(result))
        if seconds is not None:
            yield from _look(arm, result, seconds)


def _look(arm: Measurement, result: Result, seconds: float) -> Iterator[Check]:
    who, name = (arm.arm.name,), name_of(arm)
    timer = result.calibration.costs.get("timer") if result.calibration else None
    if timer is not None and 0 < seconds * arm.loops < timer.value:
        yield Check(
            NAME,
            Level.FAIL,
            f"A sample of {name} ({duration(seconds * arm.loops)}) is shorter than reading the "
            f"clock takes ({duration(timer.value)}). Let the target do more in a "
            "call, or give timeit a larger -n.",
            {"sample_s": seconds * arm.loops, "timer_s": timer.value},
            who,
        )
        return
    found = reached(arm, result)
    if found is None:
        return
    floor = fullest(found) * seconds
    figures = {"seconds": seconds, "floor_s": floor}
    if seconds >= BELOW * floor:
        text = f"{name} takes no less than its work needs."
        yield Check(NAME, Level.OK, text, figures, who)
        return
    yield Check(
        NAME,
        Level.FAIL,
        f"{name} takes {duration(seconds)} where the roofs of this machine allow no less than "
        f"{duration(floor)} ({percent(seconds / floor)} of it). Look for work that is left out, "
        "remembered or done after the clock has stopped.",
        figures,
        who,
    )


TIME_FLOOR = FunctionRule(NAME, "R10: time below the roofline floor", _judge)
