"""Is the speed-up too good to be taken on trust?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.words import name_of

NAME = "too-good"
SPEEDUP = 10.0
"""R14: from ten times on, a result is held until it is confirmed."""


def _judge(result: Result) -> Iterator[Check]:
    for comparison in result.comparisons:
        speedup = comparison.speedup
        if speedup is None:
            continue
        figures, who = {"speedup": speedup}, (comparison.new,)
        if speedup < SPEEDUP:
            text = f"{name_of(comparison.new)} is not suspiciously fast."
            yield Check(NAME, Level.OK, text, figures, who)
            continue
        yield Check(
            NAME,
            Level.WARN,
            f"{name_of(comparison.new)} reads {speedup:,.0f} times as fast as "
            f"{name_of(comparison.base)}: too good to be taken on trust. "
            "Re-run with another --seed, and look for work that the arm leaves out.",
            figures,
            who,
        )


TOO_GOOD = FunctionRule(NAME, "R14: verify large speed-ups again", _judge)
