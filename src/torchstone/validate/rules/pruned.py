"""Was an arm given up without being measured once?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Outcome, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.words import count, name_of

NAME = "pruned"
PHASE = "pruned"
"""The phase by which a record says that an arm was left out on purpose."""


def _judge(result: Result) -> Iterator[Check]:
    pruned = [
        arm
        for arm in result.arms
        if arm.outcome is Outcome.NOT_RUN and arm.detail.phase == PHASE and not arm.turns
    ]
    for arm in pruned:
        proxy = arm.detail.message.rstrip(".") or "no reason is given"
        yield Check(
            NAME,
            Level.FAIL,
            f"{name_of(arm)} was left out without one measurement of it ({proxy}). Measure it at "
            "least once: a proxy may rule out the fastest.",
            arms=(arm.arm.name,),
        )
    if result.arms and not pruned:
        text = f"None of {count(len(result.arms), 'arm')} was left out by a proxy."
        yield Check(NAME, Level.OK, text)


PRUNED = FunctionRule(NAME, "R17: no pruning by proxy without measuring", _judge)
