"""How a tuning divides its wall time: no stage takes what the ones after it need."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchstone.records import Decision, Experiment, Stage

LEDGER_SHARE = 0.2
"""Of the budget, at most, for the ledger: without one only the order of experiments is worse."""
SELECT_SHARE, CONFIRM_SHARE = 0.3, 0.15
"""Of the budget, kept for the selection while techniques are screened (half of it until one of them
is promising), and for the confirmation."""
MOST_CONFIRM_SHARE = 0.3
"""The confirmation compiles like the tests before it: where those took long, more is kept."""
REPEATED = 1.2
"""What a case takes, by one like it."""
CASE_SHARE, USUAL_CASE_S = 0.5, 20.0
"""One of several cases has half of what its stage has left, or this long: what hangs must not take
everything, and a small budget is not worth dividing."""
LEAST_CASE_S = 3.0
"""What starts with less than this cannot come to a sample."""
TURNS_SHARE = 0.35
"""Of a case's time that is planned for turns: compiling, starting and measuring again take the
rest."""
TURNS_S = {Stage.SCREEN: (1.5, 8.0), Stage.SELECT: (3.0, 30.0), Stage.CONFIRM: (4.0, 40.0)}
"""Least and most time in turns of a case of two arms."""


@dataclass(frozen=True)
class Clock:
    """The wall time of a tuning, from its first moment."""

    budget_s: float
    began: float
    now: Callable[[], float] = time.monotonic

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return self.now() - self.began

    @property
    def left_s(self) -> float:
        """Seconds until it must be over."""
        return max(0.0, self.budget_s - self.spent_s)


@dataclass(frozen=True)
class Allowance:
    """What a case may take."""

    total_s: float
    """With starting, compiling, checks and measuring again."""
    turns_s: float


def allow(
    clock: Clock, stage: Stage, cases: int, arms: int, seen: Sequence[Experiment]
) -> Allowance | None:
    """Of the next of so many cases of a stage, with so many arms beside the baseline; None where
    no time is left for it."""
    left = clock.left_s
    if stage is not Stage.CONFIRM:
        left -= _for_confirmation(clock.budget_s, seen)
    if stage is Stage.SCREEN:
        promising = any(one.decision is Decision.PROMISING for one in seen)
        left -= (SELECT_SHARE if promising else SELECT_SHARE / 2) * clock.budget_s
    total = left if cases < 2 else min(left, max(CASE_SHARE * left, USUAL_CASE_S))
    if total < LEAST_CASE_S:
        return None
    least, most = TURNS_S[stage]
    turns = min(most, max(least, TURNS_SHARE * left / cases)) * (1 + arms) / 2
    return Allowance(total, min(turns, TURNS_SHARE * total))


def _for_confirmation(budget_s: float, seen: Sequence[Experiment]) -> float:
    """By the longest case of two arms that could become a part of the recipe."""
    tests = [one.seconds for one in seen if one.stage is Stage.SELECT]
    longest = REPEATED * max(tests, default=0.0)
    return min(MOST_CONFIRM_SHARE * budget_s, max(CONFIRM_SHARE * budget_s, longest))
