"""Does the interval rest on enough processes?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Result
from torchstone.stats import replicates_with_samples
from torchstone.validate.base import FunctionRule
from torchstone.validate.words import count

NAME = "replicates"
FEWEST = 3
"""Ours: with two processes Student's t is 12.7 wide and one odd process decides; from three on
(4.3) an interval begins to mean something."""


def _judge(result: Result) -> Iterator[Check]:
    counts = {arm.arm.name: len(replicates_with_samples(arm)) for arm in result.arms if arm.turns}
    if result.method.stopped_by == "interrupt":
        yield Check(
            NAME,
            Level.NOTE,
            f"The measurement was interrupted after {count(max(counts.values(), default=0), *_P)}. "
            "What is shown rests on what was measured till then; run it again for the rest.",
            {"processes": float(max(counts.values(), default=0))},
        )
    if not counts:
        return
    least = min(counts.values())
    figures = {"processes": float(least), "needed": float(FEWEST)}
    if least >= FEWEST:
        yield Check(NAME, Level.OK, f"Each arm ran in {least} or more processes.", figures)
        return
    short = tuple(name for name, found in counts.items() if found < FEWEST)
    # Some of the arms: each by itself, because what is said of the baseline is every case's.
    for who in [short] if len(short) == len(counts) else [(name,) for name in short]:
        fewest = min(counts[name] for name in who)
        yield Check(
            NAME,
            Level.WARN,
            f"The interval rests on {count(fewest, *_P)} only, too few to know how much processes "
            "differ. Give a longer --budget, or more --replicates.",
            {**figures, "processes": float(fewest)},
            who,
        )


_P = ("process", "processes")

REPLICATES = FunctionRule(NAME, "the method: replicates are fresh processes", _judge)
