"""Did the compiler run inside timed turns?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import count, name_of

NAME = "recompiles"


def _look(arm: Measurement) -> Iterator[Check]:
    if arm.graphs is None or not arm.turns:
        return
    late = arm.graphs.late_recompiles
    figures, who = {"late_recompiles": float(late)}, (arm.arm.name,)
    if not late:
        yield Check(NAME, Level.OK, f"{name_of(arm)} compiled nothing late.", figures, who)
        return
    again = f"{name_of(arm)} was compiled again {count(late, 'time')} inside timed turns"
    if arm.arm.shapes > 1:
        message = (
            f"{again}, where every process meets {arm.arm.shapes} new input shapes. The first "
            "pass through them is a turn's first sample, which is kept apart."
        )
    else:
        message = (
            f"{again}. Keep shapes and Python values fixed from call to call, or try the variant "
            "with +dynamic."
        )
    yield Check(NAME, Level.WARN, message, figures, who)


RECOMPILES = FunctionRule(NAME, "the method: nothing recompiles once steady", each_arm(_look))
