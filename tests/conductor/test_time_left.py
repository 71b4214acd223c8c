"""The time left that a case tells of."""

from __future__ import annotations

import pytest

from torchstone.conductor.turn_scheduler import Plan, seconds_left

START_S = 25.0


@pytest.mark.parametrize("turn_s", [14.0, 0.1])
def test_the_time_left_is_that_of_the_turns_and_starts_to_come(turn_s: float) -> None:
    plan, now, in_turns_s = Plan(4, 4), 0.0, 0.0
    told, ends = [], []
    for index in range(plan.replicates):
        now += START_S
        for turn in range(plan.turns):
            now, in_turns_s = now + turn_s, in_turns_s + turn_s
            told.append(seconds_left(plan, index, turn, in_turns_s, START_S))
            ends.append(now)
    assert told == pytest.approx([ends[-1] - end for end in ends])
    assert told[-1] == 0
