"""The time left that a case tells of, by a clock that the test turns."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torchstone.conductor import Settings, turn_scheduler
from torchstone.conductor.case import CaseProgress
from torchstone.conductor.launch import Launcher
from torchstone.conductor.state import ArmState
from torchstone.conductor.turn_scheduler import Plan, TurnScheduler, WorkerSlots
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
    monkeypatch: pytest.MonkeyPatch, folder: Path, plan: Plan, turn_s: float
) -> tuple[list[float], list[float]]:
    """What is said after every turn, and what was then really left of all processes and turns."""
    clock, told = Clock(), Told()
    monkeypatch.setattr(turn_scheduler, "time", clock)
    arm = ArmState(ArmSpec("a", "model.py:make"))
    slots = WorkerSlots(Launcher(folder), Settings(), forked=False)
    made = TurnScheduler(slots, Settings(), random.Random(0), {}, arm, told, CaseProgress())
    ends = []

    def start(*_: object) -> list[turn_scheduler.WorkerSlot]:
        clock.now += START_S
        return [turn_scheduler.WorkerSlot(arm, None)]  # type: ignore[arg-type]

    def turn(*_: object, **__: object) -> None:
        clock.now += turn_s

    def turns(worker_slots: object, index: int, plan: Plan, alone: bool) -> None:
        for number in range(plan.turns):
            turn()
            made.in_turns_s += turn_s
            made._tell_progress(index, plan, number)
            ends.append(clock.now)
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "_start", start)
    monkeypatch.setattr(made, "_turns", turns)
    monkeypatch.setattr(turn_scheduler, "kill_all", lambda worker_slots: None)
    for index in range(plan.replicates):
        with pytest.raises(KeyboardInterrupt):  # the way out without a worker to stop
            made.replicate([arm], index, lambda _: plan)
    return told.left, [ends[-1] - end for end in ends]


@pytest.mark.parametrize("turn_s", [14.0, 0.1])
def test_the_time_left_is_that_of_the_turns_and_starts_to_come(
    turn_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told, true = told_and_true(monkeypatch, tmp_path, Plan(4, 4), turn_s)
    assert told == pytest.approx(true)
    assert told[-1] == 0
