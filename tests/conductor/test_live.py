"""A case while it runs: its steps, first figures, an estimate; early answers; what --total ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conductor.test_case_flow import solo
from tests.stats.synthetic import measurement
from tests.targets.support import HONEST, settings
from torchstone import stats
from torchstone.conductor import ArmNow, CaseSpec, Settings, run, run_case
from torchstone.conductor.case import EFFORTS
from torchstone.conductor.run import NO_TIME, too_many_threads, within_time
from torchstone.conductor.state import MEASURING, ArmState, expected, steps_of
from torchstone.conductor.turn_scheduler import make_plan
from torchstone.conductor.worker import OutOfTime
from torchstone.records import ArmSpec, Outcome, Statement

SLEEPS = """
import time

def draw(seed):
    return (float(seed),)

def make():
    return (lambda value: time.sleep({call}) or value), draw

def make_slow_build():
    time.sleep(600)
    return make()
"""


class Watching:
    """Writes everything down, with the time it was told."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.told: list[tuple[str, object]] = []

    def phase(self, text: str) -> None:
        self.told.append(("phase", text))

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        self.told.append(("update", fraction))

    def note(self, text: str) -> None:
        self.told.append(("note", text))

    def provisional(self, arms: Sequence[ArmNow]) -> None:
        self.told.append(("provisional", tuple(arms)))

    def expect(self, seconds_left: float, why: str) -> None:
        self.told.append(("expect", seconds_left))

    def doing(self, text: str) -> None:
        self.told.append(("doing", text))

    def tick(self) -> None:
        pass

    def of(self, kind: str) -> list[object]:
        return [what for name, what in self.told if name == kind]


def test_figures_come_before_the_end_and_say_what_they_rest_on() -> None:
    watching = Watching()
    arms = (ArmSpec("honest", HONEST), ArmSpec("again", HONEST))
    case = run_case(CaseSpec(arms, settings()), watching)
    assert case.stopped_by == "replicates"
    phases = watching.of("phase")
    assert phases[0] == "importing libraries (step 1 of 5)"
    assert phases[-1] == "measuring: process 1 (step 5 of 5)"
    kinds = [kind for kind, _ in watching.told]
    first = kinds.index("provisional")
    assert first < kinds.index("expect") < kinds.index("update")
    rows = [rows for rows in watching.of("provisional") if isinstance(rows, tuple)]
    assert [row.name for row in rows[0]] == ["honest", "again"]
    assert rows[0][0].seconds is not None
    assert rows[0][0].seconds > 0
    assert rows[0][1].seconds is None
    assert {row.processes for row in rows[0]} == {0}
    last = rows[-1]
    assert [row.processes for row in last] == [2, 2]
    final = stats.ratio(*case.arms, stats.estimator_of(case.arms[0]))
    assert last[1].speedup == pytest.approx(1 / final.time_ratio)
    assert last[1].interval == pytest.approx((1 / final.interval[1], 1 / final.interval[0]))
    doing = [str(text) for text in watching.of("doing")]
    assert any("again: warming up (step 4 of 5)" in text for text in doing)


def test_a_statement_has_no_reference_among_its_steps() -> None:
    pair = [ArmSpec("eager", "x.py:make"), ArmSpec("inductor", "x.py:make", "inductor")]
    usual = ["importing libraries", "eager", "reference eager", "inductor", MEASURING]
    assert steps_of(pair, Settings()) == usual
    assert steps_of(pair, Settings(independent=True))[-2] == "reference inductor"
    timed = [ArmSpec("a", statement=Statement("pass"))]
    assert steps_of(timed, Settings()) == ["importing libraries", "a", MEASURING]


def test_the_estimate_knows_what_compiling_costs() -> None:
    states = [ArmState(ArmSpec("eager")), ArmState(ArmSpec("inductor", variant="inductor"))]
    steps = steps_of([state.spec for state in states], Settings())
    parts = expected(states, Settings(), steps, {"importing libraries": 2.0, "eager": 2.0})
    assert parts["measuring"] == 30.0
    assert parts["compiling"] > 10.0
    done = {"importing libraries": 2.0, "eager": 2.0, "reference eager": 1.0, "inductor": 40.0}
    later = expected(states, Settings(), steps, done)
    assert later["compiling"] == later["checks"] == 0.0
    assert later["starting processes"] > parts["starting processes"]
    fast = expected(states, Settings(effort="fast", budget_s=5.0), steps, done)
    assert sum(fast.values()) < 0.5 * sum(later.values())


def test_total_ends_a_build_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "sleeps.py"
    path.write_text(SLEEPS.format(call=0.001))
    began = time.monotonic()
    spec = CaseSpec((ArmSpec("a", f"{path}:make_slow_build"),), settings(), began + 2.0)
    case = run_case(spec)
    assert time.monotonic() - began < 300  # the build alone takes 600
    assert case.stopped_by == "total"
    assert case.arms[0].outcome is Outcome.NOT_RUN
    assert case.arms[0].detail.message == NO_TIME


def test_total_keeps_what_was_measured_by_then(tmp_path: Path) -> None:
    path = tmp_path / "sleeps.py"
    path.write_text(SLEEPS.format(call=0.02))

    class Ends(Watching):
        """As a worker that is waited for does when the time is over."""

        def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
            super().update(fraction, text, seconds_left)
            if len(self.of("update")) == 3:
                raise OutOfTime

    asked = settings(budget_s=600.0, replicates=3, check_outputs=False)
    case = run_case(CaseSpec((ArmSpec("a", f"{path}:make"),), asked), Ends())
    assert case.stopped_by == "total"
    assert len(case.arms[0].turns) == 3
    assert case.arms[0].outcome is Outcome.OK


def test_the_plan_fits_what_is_left_of_the_whole_time() -> None:
    asked = Settings(budget_s=30.0)
    assert within_time(asked, None, 5.0) is asked
    left = within_time(asked, time.monotonic() + 40.0, 5.0)
    assert 18.0 < left.budget_s < 22.0  # 0.9 of 40 s less three starts
    assert within_time(asked, time.monotonic() - 1.0, 5.0).budget_s > 0


def clear(ratio: float) -> list[ArmState]:
    states = []
    for seed, name in enumerate(("base", "new")):
        state = ArmState(ArmSpec(name), solo=solo())
        made = measurement(name, seed=seed, replicates=3, turns=8)
        scale = ratio if name == "new" else 1.0
        state.turns = [
            replace(turn, wall_ns=tuple(int(ns * scale) for ns in turn.wall_ns))
            for turn in made.turns
        ]
        states.append(state)
    return states


def test_a_clear_difference_ends_it_only_where_that_was_asked() -> None:
    fast, usual = Settings(effort="fast", margin=0.05), Settings(margin=0.05)
    assert run._is_decided(clear(1.4), 0.025, fast)
    assert run._is_decided(clear(1 / 1.4), 0.025, fast)
    assert not run._is_decided(clear(1.05), 0.025, fast)
    assert not run._is_decided(clear(1.4), 0.025, usual)
    assert not run._is_decided(clear(1.4)[:1], 0.025, fast)


def test_fast_plans_fewer_processes_and_rigorous_more() -> None:
    plans = {
        name: make_plan(Settings(effort=name, budget_s=does.budget_s), 1.0, 0.13)
        for name, does in EFFORTS.items()
    }
    assert plans["fast"].replicates == 3
    assert plans["fast"].replicates < plans["usual"].replicates < plans["rigorous"].replicates


def test_more_threads_than_cores_are_named() -> None:
    arms = [ArmSpec("a", threads=99), ArmSpec("b", threads=2), ArmSpec("c")]
    said = too_many_threads(arms, 2)
    assert said.startswith("99 threads on 2 cores")
    assert "--threads 2" in said
    assert too_many_threads(arms[1:], 2) == ""
    assert too_many_threads([replace(arms[0], device="cuda")], 2) == ""
