"""Calls with new and with known inputs: what counts as their time on a crowded machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from torchstone.machine.noise import waited_ns
from torchstone.measure import warmup
from torchstone.measure.arm import build
from torchstone.records import ArmSpec, Integrity

TARGET = """
def make():
    return (lambda values: sum(values)), (lambda seed: (list(range(seed % 7, 400)),))
"""


class Clocks:
    """Clocks that move only when they are told to: by each call, as given."""

    def __init__(self, wall: int, ran: int, waited: int) -> None:
        self.step = {"wall": wall, "ran": ran, "waited": waited}
        self.now = dict.fromkeys(self.step, 0)

    def call(self, inputs: object) -> None:
        for name, by in self.step.items():
            self.now[name] += by


@pytest.mark.parametrize(
    ("wall", "ran", "waited", "time"),
    [
        (3000, 3000, 0, 3000),
        (9000, 3000, 6000, 3000),  # the core was lost for 6000
        (9000, 3000, 0, 9000),  # asleep: a call that waits for a disk takes that long
        (3000, 3000, 6000, 3000),  # the core was lost before or after the call
        (9000, 9000, 6000, 9000),
    ],
)
def test_time_without_a_core_is_not_the_calls(
    wall: int, ran: int, waited: int, time: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(TARGET)
    built = build(ArmSpec("a", f"{tmp_path / 'plain.py'}:make"), lambda name: None)
    clocks = Clocks(wall, ran, waited)
    monkeypatch.setattr(type(built), "call", lambda self, inputs: clocks.call(inputs))
    monkeypatch.setattr(warmup, "wall_clock", lambda: clocks.now["wall"])
    monkeypatch.setattr(warmup, "thread_clock", lambda: clocks.now["ran"])
    monkeypatch.setattr(warmup, "waited_ns", lambda: clocks.now["waited"])
    found = warmup.look_for_memory(built, lambda: None, wall)
    assert found == Integrity(same_input_ns=time, fresh_input_ns=time, again_ns=time)


@pytest.mark.parametrize(("step_s", "calls"), [(0.001, 30), (0.04, 12), (0.1, 5), (5.0, 5)])
def test_long_calls_are_made_a_few_times_only(
    step_s: float, calls: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(TARGET)
    built = build(ArmSpec("a", f"{tmp_path / 'plain.py'}:make"), lambda name: None)
    step = round(step_s * 1e9)
    clocks = Clocks(step, step, 0)
    made: list[object] = []
    monkeypatch.setattr(
        type(built), "call", lambda self, inputs: (made.append(inputs), clocks.call(inputs))
    )
    monkeypatch.setattr(warmup, "wall_clock", lambda: clocks.now["wall"])
    monkeypatch.setattr(warmup, "thread_clock", lambda: clocks.now["ran"])
    monkeypatch.setattr(warmup, "waited_ns", lambda: clocks.now["waited"])
    found = warmup.look_for_memory(built, lambda: None, step)
    assert len(made) == calls
    assert found.fresh_input_ns == found.same_input_ns == found.again_ns == step


SLOW, FAST, ROUND = 11_800_000, 575_000, 30


@pytest.mark.parametrize(
    ("takes", "ratio"),
    [
        # A neighbour slows the first two walks of the first round; calls at once again are quick.
        (lambda number, known, last: SLOW if number < 24 else FAST, 1.0),
        # It remembers every input: in each round new ones are slow, known ones are not.
        (lambda number, known, last: FAST if known else SLOW, SLOW / FAST),
    ],
    ids=["weather", "memory"],
)
def test_who_remembers_does_so_in_every_round(
    takes: Any, ratio: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(TARGET)
    built = build(ArmSpec("a", f"{tmp_path / 'plain.py'}:make"), lambda name: None)
    clocks, seen = Clocks(0, 0, 0), list[int]()

    def call(self: object, inputs: object) -> None:
        took = takes(len(seen), id(inputs) in seen, seen[-1:] == [id(inputs)])
        seen.append(id(inputs))
        clocks.now["wall"] += took
        clocks.now["ran"] += took

    monkeypatch.setattr(type(built), "call", call)
    monkeypatch.setattr(warmup, "wall_clock", lambda: clocks.now["wall"])
    monkeypatch.setattr(warmup, "thread_clock", lambda: clocks.now["ran"])
    monkeypatch.setattr(warmup, "waited_ns", lambda: clocks.now["waited"])
    found = warmup.look_for_memory(built, lambda: None, FAST)
    assert len(seen) >= 2 * ROUND  # a doubt is looked at again
    assert found.fresh_input_ns / found.same_input_ns == pytest.approx(ratio)
    assert found.fresh_input_ns / found.again_ns == pytest.approx(ratio)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say")
def test_waiting_is_read_and_never_shrinks() -> None:
    first = waited_ns()
    sum(range(1_000_000))
    assert 0 <= first <= waited_ns()
