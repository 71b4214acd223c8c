"""What is not as it was between two sessions, and what is then not compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import torchstone
from tests.validate.cases import CONTRACT, arm, environment, result
from torchstone.lab.peaks import evaluate_again
from torchstone.lab.repro import (
    RULE,
    Reproduction,
    against,
    changes,
    other_models,
    settings_of,
    speedups,
)
from torchstone.records import Check, GitState, Level, Outcome, Result, Verdict

MODEL = """
def draw(seed):
    return ([(seed * {factor} + i * 7) % 1009 for i in range(400)],)

def squares(values):
    return sum(value * value for value in values)

def make():
    return squares, draw
"""


def session(contract: Any = CONTRACT, seed: int = 1, step: float = 5e-3, **env: Any) -> Result:
    arms = [
        arm(name, time, seed=seed + i, environment=environment(**env), contract=contract)
        for i, (name, time) in enumerate((("eager", step), ("inductor", step * 0.8)))
    ]
    return evaluate_again(result(*arms))


def reproduced(stored: Result, new: Result) -> Reproduction:
    return Reproduction(
        stored,
        new,
        against(stored, new, 0.005),
        speedups(stored, new, 0.005),
        changes(stored, new),
        other_models(stored, new),
    )


def test_what_differs_is_listed_once_for_all_arms() -> None:
    stored = session(
        git=GitState("a" * 40), torch={"version": "2.12.0"}, source="1" * 64, threads={"torch": 1}
    )
    new = session(
        git=GitState("a" * 40, dirty=True),
        torch={"version": "2.13.0"},
        python={"version": "3.12.1"},
        source="2" * 64,
        threads={"torch": 2},
        machine_id="another",
    )
    found = changes(stored, new)
    said = {one.what: one.sentence for one in found}
    assert said["commit"] == "commit was aaaaaaaaaaaa and is aaaaaaaaaaaa with changed files"
    assert said["torch"] == "torch was 2.12.0 and is 2.13.0"
    assert {"the target's file (its hash)", "machine", "threads"} <= set(said)
    assert all(one.arms == ("eager", "inductor") for one in found)
    assert changes(stored, stored) == ()
    old = session(threads={"torch": 1}, torch={"version": "2.12.0"}, git=GitState("a" * 40))
    assert changes(old, stored) == ()  # a record from before sources were kept


def test_another_model_of_the_same_name_is_not_compared() -> None:
    stored = session(replace(CONTRACT, weights_hash="1" * 64, inputs_hash="i"))
    other = session(replace(CONTRACT, weights_hash="2" * 64, inputs_hash="j"), 7, step=9e-3)
    done = reproduced(stored, other)
    for one in (*done.against_stored, *done.speedups):
        assert one.verdict is Verdict.CANNOT_TELL
        assert one.time_ratio is None
        assert "not the same model: from the same seed its weights and inputs differ" in one.reason
    told = [check for check in done.combined.checks if check.rule == RULE]
    assert {check.level for check in told} == {Level.NOTE, Level.FAIL}
    assert any("weights (their hash) was 111111111111" in check.message for check in told)


def test_weights_that_a_factory_draws_anew_each_time_are_no_other_model() -> None:
    def varying(made: Result) -> Result:
        arms = [replace(one, outcome=Outcome.NONDETERMINISTIC) for one in made.arms]
        return replace(made, arms=tuple(arms))

    stored = varying(session(replace(CONTRACT, weights_hash="1")))
    new = varying(session(replace(CONTRACT, weights_hash="2"), 7))
    assert other_models(stored, new) == {}
    assert [one.what for one in changes(stored, new)] == ["weights (their hash)"]
    seeded = session(replace(CONTRACT, weights_hash="2", seed=9), 7)
    assert other_models(session(replace(CONTRACT, weights_hash="1")), seeded) == {}


def failing(made: Result, name: str) -> Result:
    return replace(made, checks=(Check("time-floor", Level.FAIL, "Too fast.", arms=(name,)),))


def test_what_a_rule_withheld_does_not_come_back_as_faster() -> None:
    stored, new = session(), session(seed=7, step=4.5e-3)
    assert [one.verdict for one in against(stored, new, 0.005)] == [Verdict.FASTER] * 2
    for pair in ((stored, failing(new, "inductor")), (failing(stored, "inductor"), new)):
        eager, inductor = against(*pair, 0.005)
        assert eager.verdict is Verdict.FASTER
        assert inductor.verdict is Verdict.CANNOT_TELL
        assert inductor.time_ratio is None
        assert "the check time-floor" in inductor.reason


def test_operations_are_counted_as_bench_does() -> None:
    assert settings_of(session()).count_flops


@pytest.mark.slow
def test_a_file_of_the_same_name_in_another_folder_is_told(tmp_path: Path) -> None:
    for folder, factor in (("one", 31), ("two", 37)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(MODEL.format(factor=factor))
    quick = ("--budget", "0.2s", "--replicates", "2", "--db", str(tmp_path / "kept.db"))
    done = torchstone("bench", "model.py:make", *quick, cwd=tmp_path / "one")
    assert done.returncode == 0, done.stderr
    again = ("repro", "last", "--no-save", "--db", str(tmp_path / "kept.db"))
    same = torchstone(*again, cwd=tmp_path / "one")
    assert same.returncode == 0, same.stderr
    assert "not as it was" not in same.stdout
    other = torchstone(*again, cwd=tmp_path / "two")
    assert other.returncode == 0, other.stderr
    lines = other.stdout.partition("\nagainst ")[2].splitlines()
    assert "not as it was: the target's file (its hash) was " in other.stdout
    assert "not the same model: from the same seed its inputs differ" in lines[-1] + lines[-2]
