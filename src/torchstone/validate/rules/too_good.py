"""Is the speed-up too good to be taken on trust?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchstone.records import Check, Comparison, Level, Result, SecondLook
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import arm_named, threads
from torchstone.validate.words import name_of

NAME = "too-good"
OPTIMISED = 2.0
"""R14: over a baseline that is optimised already, from twice on."""
ANYTHING = 10.0
"""R14: over anything, from ten times on; held until it is confirmed."""
AGREE_WITHIN = 0.10
"""MLPerf's compliance tests allow 5-10 % for other inputs; both intervals are widened by it."""
PLAIN = ("eager", "aot_eager", "export")
"""Variants that run ops one by one. Any other baseline is a compiler's work."""


def suspicious(comparison: Comparison, result: Result) -> bool:
    """Whether the speed-up needs a second look. Statements have no inputs to be changed."""
    base, speedup = arm_named(comparison.base, result), comparison.speedup
    if base is None or base.arm.statement is not None or speedup is None:
        return False
    return speedup >= ANYTHING or (speedup >= OPTIMISED and _optimised(comparison, result))


def _optimised(comparison: Comparison, result: Result) -> bool:
    """A compiled baseline on as much hardware: more threads or another device may well do it."""
    base, new = arm_named(comparison.base, result), arm_named(comparison.new, result)
    if base is None or new is None or base.arm.variant.split("+")[0] in PLAIN:
        return False
    return base.arm.device == new.arm.device and threads(base) == threads(new)


def second_look(comparison: Comparison, result: Result) -> SecondLook | None:
    """The newest second look at a comparison."""
    found = [s for s in result.second_looks if (s.base, s.new) == (comparison.base, comparison.new)]
    return found[-1] if found else None


def _judge(result: Result) -> Iterator[Check]:
    for comparison in result.comparisons:
        if comparison.speedup is not None:
            yield _look(comparison, comparison.speedup, result)


def _look(comparison: Comparison, speedup: float, result: Result) -> Check:
    who = (comparison.new,)
    figures = {"speedup": speedup}
    if not suspicious(comparison, result):
        if speedup >= ANYTHING:
            text = (
                f"{name_of(comparison.new)} reads {speedup:,.0f} times as fast as "
                f"{name_of(comparison.base)}. A statement's result is not checked; look whether "
                "both do what you mean."
            )
            return Check(NAME, Level.NOTE, text, figures, who)
        text = f"{name_of(comparison.new)} is not suspiciously fast."
        return Check(NAME, Level.OK, text, figures, who)
    look = second_look(comparison, result)
    if look is not None:
        figures["second_seed"] = float(look.seed)
    if look is not None and look.speedup is not None:
        figures["second_speedup"] = look.speedup
    level, text = _words(comparison, speedup, look)
    return Check(NAME, level, text, figures, who)


def _words(comparison: Comparison, speedup: float, look: SecondLook | None) -> tuple[Level, str]:
    new, base = name_of(comparison.new), name_of(comparison.base)
    said = f"{new} reads {speedup:,.1f} times as fast as {base}"
    held = Level.FAIL if speedup >= ANYTHING else Level.WARN
    why = "too good to be taken on trust" if held is Level.WARN else "held until it is confirmed"
    if look is None:
        return held, (
            f"{said}: {why}. Measure it again with another --seed, and look for work that the arm "
            "leaves out."
        )
    reason = f" ({look.reason.rstrip('.')})" if look.reason else ""
    if look.outcome != "ok":
        return Level.FAIL, (
            f"{said}, but measured once more with other inputs it ended as {look.outcome}{reason}. "
            "Look for work that the arm leaves out, or for inputs that it was made for."
        )
    if look.speedup is None or look.interval is None:
        return held, (
            f"{said}: {why}, and a second look could not tell{reason}. Give a longer --budget."
        )
    if not agree(comparison, look):
        return Level.FAIL, (
            f"{said}, but {look.speedup:,.1f} times when measured once more in other processes "
            "with other inputs. Look for inputs or moments on which the speed depends."
        )
    return Level.OK, (
        f"{said}, and {look.speedup:,.1f} times when measured once more in other processes with "
        "other inputs."
    )


def agree(comparison: Comparison, look: SecondLook) -> bool:
    """Whether the two intervals of the time ratio overlap once widened."""
    first, second = comparison.interval or _point(comparison.time_ratio), look.interval
    if second is None:
        return False
    slack = (1 + AGREE_WITHIN) ** 2
    return first[0] <= second[1] * slack and second[0] <= first[1] * slack


def _point(ratio: float | None) -> tuple[float, float]:
    return (ratio, ratio) if ratio is not None else (math.nan, math.nan)


TOO_GOOD = FunctionRule(NAME, "R14: verify large speed-ups again, hold the largest", _judge)
