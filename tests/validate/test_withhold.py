"""A number from an arm that cheated or is broken is never presented as faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.validate.cases import arm, pair, result
from torchstone.records import Check, Integrity, Level, Verdict
from torchstone.validate import evaluate, withhold


def test_a_cheat_loses_its_verdict_and_its_figures() -> None:
    cheat = arm("cheat", 3e-3, seed=2, integrity=Integrity(patched_timers=("time.perf_counter",)))
    made = pair(cheat)
    assert made.comparisons[0].verdict is Verdict.FASTER
    (found,) = withhold(made.comparisons, evaluate(made))
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.time_ratio is None
    assert found.interval is None
    assert found.floor is None
    assert found.reason == "Withheld: cheat fails the check timer."


def test_other_arms_keep_theirs() -> None:
    cheat = arm("cheat", 3e-3, seed=2, integrity=Integrity(patched_timers=("time.time",)))
    made = result(arm(), cheat, arm("honest", 4e-3, seed=3))
    first, second = withhold(made.comparisons, evaluate(made))
    assert first.verdict is Verdict.CANNOT_TELL
    assert second == made.comparisons[1]
    assert second.verdict is Verdict.FASTER


def test_a_broken_baseline_takes_all_with_it() -> None:
    made = result(arm(), arm("one", 4e-3, seed=2), arm("two", 3e-3, seed=3))
    found = withhold(made.comparisons, [Check("x", Level.FAIL, "Bad.", {}, ("eager",))])
    assert [c.verdict for c in found] == [Verdict.CANNOT_TELL] * 2
    assert all("eager fails the check x" in c.reason for c in found)


def test_a_failed_check_of_the_whole_result_takes_all_with_it() -> None:
    made = pair()
    (found,) = withhold(made.comparisons, [Check("x", Level.FAIL, "Bad.")])
    assert found.verdict is Verdict.CANNOT_TELL
    assert "the check x" in found.reason


@pytest.mark.parametrize("level", [Level.OK, Level.NOTE, Level.WARN])
def test_anything_less_than_a_fail_withholds_nothing(level: Level) -> None:
    made = pair()
    assert withhold(made.comparisons, [Check("x", level, "So so.")]) == made.comparisons


def test_several_reasons_are_all_named_once() -> None:
    made = pair()
    fail = Check("x", Level.FAIL, "Bad.", {}, ("inductor",))
    (found,) = withhold(made.comparisons, [fail, fail, replace(fail, rule="y")])
    assert found.reason == ("Withheld: inductor fails the check x and inductor fails the check y.")
