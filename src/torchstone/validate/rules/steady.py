"""Did every process settle before it was timed?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import count, name_of

NAME = "steady"
MOST_REASONS = 2


def _look(arm: Measurement) -> Iterator[Check]:
    processes = arm.replicates
    if not processes:
        return
    restless = [p.warm_up for p in processes if not p.warm_up.steady]
    figures = {"unsteady": float(len(restless)), "processes": float(len(processes))}
    who = (arm.arm.name,)
    if not restless:
        yield Check(NAME, Level.OK, f"{name_of(arm)} was steady.", figures, who)
        return
    reasons = list(dict.fromkeys(w.reason for w in restless if w.reason))[:MOST_REASONS]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    yield Check(
        NAME,
        Level.WARN,
        f"{name_of(arm)} had not settled when timing began in {len(restless)} of "
        f"{count(len(processes), 'process', 'processes')}{why}. Run it on a quieter machine, or "
        "look for work that changes from call to call: shapes that recompile, growing state.",
        figures,
        who,
    )


STEADY = FunctionRule(NAME, "the design: warm up until steady, else say so", each_arm(_look))
