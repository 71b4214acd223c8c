"""Rules about what is claimed: too good, identical, pruned, of another definition (R14-R17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.show.synthetic_result import method
from tests.validate.cases import arm, checks, environment, levels, one, pair, result
from torchstone.records import (
    Integrity,
    Level,
    Remeasurement,
    Result,
    Statement,
    Verdict,
)
from torchstone.validate import evaluate, needs_remeasuring, withhold


def faster(times: float, base_variant: str = "eager", **changes: Any) -> Result:
    base = arm()
    base = replace(base, arm=replace(base.arm, variant=base_variant))
    return pair(arm("new", 5e-3 / times, seed=2, flops=None), base, **changes)


def look(speedup: float | None, **changes: Any) -> Remeasurement:
    ends = None if speedup is None else (0.98 / speedup, 1.02 / speedup)
    return replace(Remeasurement("eager", "new", 7919, 12.0, speedup, ends), **changes)


@pytest.mark.parametrize(
    ("times", "variant", "level"),
    [
        (12, "eager", Level.FAIL),
        (8, "eager", Level.OK),
        (0.1, "eager", Level.OK),
        (3, "inductor", Level.WARN),
        (3, "inductor+dynamic", Level.WARN),
        (1.9, "inductor", Level.OK),
        (3, "aot_eager", Level.OK),
        (12, "inductor", Level.FAIL),
    ],
)
def test_too_good_without_a_second_look(times: float, variant: str, level: Level) -> None:
    made = faster(times, variant)
    (check,) = checks("too-good", made)
    assert check.level is level
    assert check.figures["speedup"] == pytest.approx(times, rel=0.02)
    assert bool(needs_remeasuring(made)) is (level is not Level.OK)


def test_ten_times_is_held_and_two_times_is_not() -> None:
    for times, verdict in ((12, Verdict.CANNOT_TELL), (3, Verdict.FASTER)):
        made = faster(times, "inductor")
        (found,) = withhold(made.comparisons, checks("too-good", made))
        assert found.verdict is verdict


@pytest.mark.parametrize(
    ("second", "level", "words"),
    [
        (look(11.0), Level.OK, "and 11.0 times when measured once more"),
        (look(10.2), Level.OK, "and 10.2 times"),
        (look(4.0), Level.FAIL, "but 4.0 times when measured once more"),
        (look(30.0), Level.FAIL, "but 30.0 times"),
        (
            look(None, outcome="wrong_answer", reason="output differs"),
            Level.FAIL,
            "ended as wrong_answer (output differs)",
        ),
        (look(None), Level.FAIL, "could not tell"),
    ],
)
def test_a_second_look_decides(second: Remeasurement, level: Level, words: str) -> None:
    made = faster(12, remeasurements=(second,))
    (check,) = checks("too-good", made)
    assert check.level is level
    assert words in check.message
    assert needs_remeasuring(made) == []


def test_a_wide_second_look_that_holds_the_first_agrees() -> None:
    wide = look(9.0, interval=(0.05, 0.3))
    assert levels("too-good", faster(12, remeasurements=(wide,))) == [Level.OK]


def test_only_the_comparison_that_was_looked_at_is_confirmed() -> None:
    other = look(12.0, new="another")
    made = faster(12, remeasurements=(other,))
    assert levels("too-good", made) == [Level.FAIL]
    assert [c.new for c in needs_remeasuring(made)] == ["new"]


def test_a_second_look_is_asked_for_even_where_the_ratio_is_withheld() -> None:
    made = faster(12)
    found = evaluate(made)
    held = replace(made, checks=found, comparisons=withhold(made.comparisons, found))
    assert held.comparisons[0].time_ratio is None
    (wanted,) = needs_remeasuring(held)
    assert wanted.speedup == pytest.approx(12, rel=0.02)


def test_no_second_look_for_an_arm_that_failed_otherwise() -> None:
    made = faster(12)
    cheat = replace(made.arms[1], integrity=Integrity(patched_timers=("time.time",)))
    made = replace(made, arms=(made.arms[0], cheat))
    assert needs_remeasuring(replace(made, checks=evaluate(made))) == []


def test_more_threads_than_an_optimised_baseline_may_well_be_twice_as_fast() -> None:
    made = faster(3, "inductor")
    many = replace(made.arms[1], arm=replace(made.arms[1].arm, threads=8))
    assert levels("too-good", replace(made, arms=(made.arms[0], many))) == [Level.OK]


def test_statements_are_not_held() -> None:
    arms = [arm("a", 5e-3), arm("b", 1e-4, seed=2)]
    arms = [
        replace(a, arm=replace(a.arm, target="", statement=Statement(a.arm.name)), flops=None)
        for a in arms
    ]
    made = result(*arms)
    assert levels("too-good", made) == [Level.NOTE]
    assert needs_remeasuring(made) == []


def test_too_good_says_nothing_without_a_ratio() -> None:
    empty = replace(arm("inductor"), turns=())
    assert checks("too-good", pair(empty)) == []


def twins(ratio: float, verdict: Verdict = Verdict.FASTER, aa_floor: float = 0.005) -> Result:
    """A baseline, its twin under another name, and a third arm."""
    made = result(arm(), arm("twin", seed=3), arm("third", 4.8e-3, seed=4))
    first, second = made.comparisons
    first = replace(first, verdict=verdict, time_ratio=ratio, aa_floor=aa_floor)
    second = replace(second, verdict=Verdict.FASTER, time_ratio=0.96, aa_floor=aa_floor)
    return replace(made, comparisons=(first, second))


def test_identical_arms_called_different_fail_and_cast_doubt_on_the_rest() -> None:
    made = twins(0.95)
    phantom = one("identical", made, "twin")
    assert phantom.level is Level.FAIL
    assert "identical and yet called faster by 5.3 %" in phantom.message
    assert one("identical", made, "third").level is Level.WARN
    first, second = withhold(made.comparisons, checks("identical", made))
    assert first.verdict is Verdict.CANNOT_TELL
    assert second.verdict is Verdict.FASTER


def test_identical_arms_called_the_same_are_fine() -> None:
    made = twins(0.999, Verdict.SAME)
    assert levels("identical", made) == [Level.OK]


@pytest.mark.parametrize(
    "changes", [{"threads": 1}, {"env": (("A", "1"),)}, {"variant": "aot_eager"}, {"seed": 3}]
)
def test_arms_that_differ_in_a_setting_are_not_identical(changes: dict[str, Any]) -> None:
    made = twins(0.9)
    other = replace(made.arms[1], arm=replace(made.arms[1].arm, **changes))
    made = replace(made, arms=(made.arms[0], other, made.arms[2]))
    assert Level.FAIL not in levels("identical", made)
    elsewhere = replace(made.arms[1], environment=environment(torch={"version": "2.12.0"}))
    made = replace(made, arms=(made.arms[0], elsewhere, made.arms[2]))
    assert Level.FAIL not in levels("identical", made)


@pytest.mark.parametrize(
    ("ratio", "verdict", "level"),
    [
        (0.985, Verdict.FASTER, Level.WARN),
        (1.015, Verdict.SLOWER, Level.WARN),
        (0.97, Verdict.FASTER, Level.OK),
        (1.03, Verdict.SLOWER, Level.OK),
    ],
)
def test_an_effect_under_twice_the_floor(ratio: float, verdict: Verdict, level: Level) -> None:
    made = pair()
    said = replace(made.comparisons[0], time_ratio=ratio, verdict=verdict, aa_floor=0.01)
    (check,) = checks("identical", replace(made, comparisons=(said,)))
    assert check.level is level
    told = replace(said, verdict=Verdict.CANNOT_TELL)
    assert checks("identical", replace(made, comparisons=(told,))) == []


def test_figures_of_another_definition_are_refused() -> None:
    made = pair(method=method(definition=99))
    (check,) = checks("definition", made)
    assert (check.level, check.arms) == (Level.FAIL, ())
    (found,) = withhold(made.comparisons, [check])
    assert found.verdict is Verdict.CANNOT_TELL


def test_two_clocks_or_schemas_are_not_compared() -> None:
    made = result(arm("a"), arm("b", seed=2))
    clocks = [
        replace(a, arm=replace(a.arm, target="", statement=Statement("x", clock=clock)))
        for a, clock in zip(made.arms, ("wall", "cpu"), strict=True)
    ]
    check = one("definition", result(*clocks), "b")
    assert check.level is Level.FAIL
    assert "cpu clock" in check.message
    old = replace(made.arms[1], schema=0)
    assert one("definition", result(made.arms[0], old), "b").level is Level.FAIL
