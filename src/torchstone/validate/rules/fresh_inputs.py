"""Does a call with a new input take as long as one with an input seen before?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import duration, name_of

NAME = "fresh-inputs"
WARN_RATIO = 1.25
"""R11 takes MLPerf's 10 %; ours is wider, because the figure is the floor of only a few calls."""
WARN_NS = 5_000
"""Ours: smaller differences are clock and cache effects of a few microseconds."""
FAIL_RATIO = 2.0
FAIL_NS = 20_000
"""Ours: looking up a remembered answer takes microseconds, so a real step stands far above it."""
AGAIN_RATIO = 20.0
"""Ours: a call repeated at once finds the processor's caches warm, which can make it several times
faster (memory is about ten times slower than the nearest cache), but not twenty."""


def _look(arm: Measurement) -> Iterator[Check]:
    facts = arm.integrity
    if facts is None or facts.same_input_ns <= 0 or facts.fresh_input_ns <= 0:
        return
    same, fresh = facts.same_input_ns, facts.fresh_input_ns
    if facts.again_ns > 0 and fresh > AGAIN_RATIO * facts.again_ns:
        same = min(same, facts.again_ns)  # a memory of the last input only
    ratio, more = fresh / same, fresh - same
    figures = {"same_input_s": same / 1e9, "fresh_input_s": fresh / 1e9, "ratio": ratio}
    who = (arm.arm.name,)
    found = (
        f"{name_of(arm)} takes {duration(fresh / 1e9)} for a new input and {duration(same / 1e9)} "
        f"for one it has seen ({ratio:.2f} times as long)"
    )
    if ratio > FAIL_RATIO and more > FAIL_NS:
        text = (
            f"{found}: it remembers its last input. Take the cache out, or clear it in every call."
        )
        yield Check(NAME, Level.FAIL, text, figures, who)
    elif ratio > WARN_RATIO and more > WARN_NS:
        text = (
            f"{found}. Look for a cache in the model; where each input touches other memory, as "
            "in a large embedding table, it may be the processor's caches."
        )
        yield Check(NAME, Level.WARN, text, figures, who)
    else:
        text = f"{name_of(arm)} takes as long for a new input as for one it has seen."
        yield Check(NAME, Level.OK, text, figures, who)


FRESH_INPUTS = FunctionRule(NAME, "R11: fresh inputs for every timed call", each_arm(_look))
