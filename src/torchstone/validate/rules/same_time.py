"""Did the arms run side by side, turn by turn?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Result
from torchstone.validate.base import FunctionRule

NAME = "same-time"


def _judge(result: Result) -> Iterator[Check]:
    measured = [arm for arm in result.arms if arm.replicates]
    if len(measured) < 2:
        return
    processes = [process for arm in measured for process in arm.replicates]
    alone = sum(process.alone for process in processes)
    figures = {"alone": float(alone), "processes": float(len(processes))}
    if not alone:
        yield Check(NAME, Level.OK, "The arms took turns side by side.", figures)
        return
    who = tuple(arm.arm.name for arm in measured if any(p.alone for p in arm.replicates))
    yield Check(
        NAME,
        Level.NOTE,
        f"{alone} of {len(processes)} processes ran alone, because the arms do not fit in memory "
        "together; what changed on the machine between them does not cancel. Free memory or make "
        "the batch smaller to have them take turns.",
        figures,
        who,
    )


SAME_TIME = FunctionRule(NAME, "R16: interleave the arms", _judge)
