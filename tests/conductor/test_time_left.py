"""The time left that a case tells of, by a clock that the test turns."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torchstone.conductor import Settings, rounds
from torchstone.conductor.launch import Launcher
from torchstone.conductor.plan import Plan
from torchstone.conductor.rounds import Budget, Rounds
from torchstone.conductor.state import ArmState
from torchstone.records import ArmSpec

START_S = 25.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Told:
    """Keeps what was said of the time left."""

    def __init__(self) -> None:
        self.left: list[float] = []

    def phase(self, text: str) -> None:
        pass

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        assert seconds_left is not None
        self.left.append(seconds_left)


def told_and_true(
    monkeypatch: pytest.MonkeyPatch, folder: Path, plan: Plan, turn_s: float, budget_s: float
) -> tuple[list[float], list[float]]:
    """What is said after every turn, and what was then really left of all processes and turns."""
    clock, told = Clock(), Told()
    monkeypatch.setattr(rounds, "time", clock)
    arm = ArmState(ArmSpec("a", "model.py:make"))
    made = Rounds(Launcher(folder), Settings(), random.Random(0), {}, arm, told, Budget(budget_s))
    ends = []

    def start(*_: object) -> list[rounds.Seat]:
        clock.now += START_S
        return [rounds.Seat(arm, None)]  # type: ignore[arg-type]

    def turn(*_: object, **__: object) -> None:
        clock.now += turn_s

    def turns(seats: object, index: int, plan: Plan) -> None:
        made.budget.start()
        for number in range(plan.turns):
            turn()
            made._tell_progress(index, plan, number)
            ends.append(clock.now)
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "_start", start)
    monkeypatch.setattr(made, "_turns", turns)
    monkeypatch.setattr(rounds, "_kill", lambda seats: None)
    for index in range(plan.replicates):
        with pytest.raises(KeyboardInterrupt):  # the way out without a worker to stop
            made.replicate([arm], index, lambda _: plan)
    return told.left, [ends[-1] - end for end in ends]


def test_a_slow_step_is_told_by_the_work_and_not_by_the_budget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Steps of 2 s: a turn of seven takes 14 s, four times in each of four processes.
    told, true = told_and_true(monkeypatch, tmp_path, Plan(4, 4), 14.0, budget_s=30.0)
    assert told == pytest.approx(true)
    assert told[0] > 250
    assert told[-1] == 0


def test_what_the_budget_has_left_is_the_least(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told, true = told_and_true(monkeypatch, tmp_path, Plan(4, 4), 1.0, budget_s=500.0)
    assert told[0] == 499.0
    assert all(said > left for said, left in zip(told, true, strict=True))
