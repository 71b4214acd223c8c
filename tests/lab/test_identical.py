"""The duplicate of the baseline that runs along now and then: what of it is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.validate.cases import arm
from torchstone.conductor import CaseResult
from torchstone.lab.bench import DUPLICATE, aa_floor, conditions, observe
from torchstone.lab.recording import Recorder
from torchstone.records import CompileCost, Measurement, Statement
from torchstone.track.compare import DEFAULT_AA_FLOOR, step_class

STEP = CompileCost(cold_ns=0, first_call_ns=5_000_000, steady_ns=5_000_000)


def remembered(tmp_path: Path, twin: Measurement) -> float | None:
    recorder = Recorder(str(tmp_path / "kept.db"))
    base = arm("eager", compile=STEP)
    other = arm("inductor", 4e-3, seed=3)
    case = CaseResult((base, other, twin), 4, (4,), 0.05, "budget", 1.0)
    assert observe(recorder, case).arms == (base, other)
    assert base.environment is not None
    return recorder.aa_floor(base.environment.machine_id, conditions(base))


def spread(by: float) -> Measurement:
    """The duplicate with processes that differ by so much from one to the next."""
    twin = arm(DUPLICATE, seed=2)
    turns = (
        replace(t, wall_ns=tuple(round(ns * (1 + by * t.replicate)) for ns in t.wall_ns))
        for t in twin.turns
    )
    return replace(twin, turns=tuple(turns))


def test_what_identical_arms_differ_by_is_remembered(tmp_path: Path) -> None:
    assert remembered(tmp_path, arm(DUPLICATE, 5.1e-3, seed=2)) == pytest.approx(0.02, abs=0.002)


def test_a_moment_in_which_nothing_could_be_seen_is_not(tmp_path: Path) -> None:
    assert remembered(tmp_path, spread(0.01)) == pytest.approx(0.015, abs=0.005)
    (tmp_path / "kept.db").unlink()
    assert remembered(tmp_path, spread(0.3)) is None


def statement(name: str, step: float, seed: int = 1, loops: int = 1) -> Measurement:
    """Timed as `timeit` does; statements have no compile cost."""
    made = arm(name, step * loops, seed=seed)
    return replace(made, arm=replace(made.arm, statement=Statement("pass")), loops=loops)


@pytest.mark.parametrize(("step", "loops"), [(0.5, 1), (5e-3, 1), (2e-5, 1000)])
def test_a_statement_is_filed_under_its_own_length(step: float, loops: int) -> None:
    assert conditions(statement("base", step, loops=loops)) == (
        2,
        "default",
        step_class(step * 1e9),
    )


def test_the_floor_of_a_long_statement_is_not_that_of_a_short_one(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "kept.db"))
    base, twin = statement("base", 0.5), statement(DUPLICATE, 0.51, seed=2)
    observe(recorder, CaseResult((base, twin), 4, (4,), 0.05, "budget", 1.0))
    assert aa_floor(recorder, statement("other", 0.3)) == pytest.approx(0.02, abs=0.002)
    assert aa_floor(recorder, statement("short", 2e-5, loops=1000)) == DEFAULT_AA_FLOOR


def test_the_length_is_that_of_the_samples_as_for_a_runs_cases() -> None:
    """`track.floors` looks a case's floor up by its time; it must be filed by the same."""
    assert conditions(arm("eager", 2e-3, compile=replace(STEP, steady_ns=12_000_000))) == (
        2,
        "default",
        "1-10 ms",
    )
