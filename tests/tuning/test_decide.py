"""What is decided from a measured case: the rules, without measuring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.validate.cases import arm as with_samples
from torchstone.records import (
    Agreement,
    ArmSpec,
    Check,
    Comparison,
    CompileCost,
    Decision,
    Estimate,
    Experiment,
    Level,
    Measurement,
    Memory,
    Method,
    Outcome,
    OutcomeDetail,
    Remeasurement,
    Result,
    Stage,
    Verdict,
)
from torchstone.tuning import decide

RULE = decide.Rule("speed", "tolerance", margin=0.02, alpha=0.05)
SCREEN = Experiment(Stage.SCREEN, "compile", Decision.NOT_RUN)
SELECT = replace(SCREEN, stage=Stage.SELECT)


def measured(name: str, step: float, seed: int = 1) -> Measurement:
    """An arm with samples."""
    made = with_samples("eager", step, seed)
    return replace(made, arm=replace(made.arm, name=name))


def arm(name: str, **more: Any) -> Measurement:
    usual: dict[str, Any] = {
        "agreement": Agreement("fp64", checked=2, timed=1, identical=False),
        "memory": Memory("VmHWM", tensor_peak_bytes=1000),
        "compile": CompileCost(cold_ns=0, steady_ns=1_000_000),
    }
    return Measurement(ArmSpec(name, "x.py:make"), Outcome.OK, **{**usual, **more})


def case(new: Measurement, verdict: Verdict, ratio: float | None = 0.8) -> Result:
    interval = None if ratio is None else (0.95 * ratio, 1.05 * ratio)
    found = Comparison("baseline", "new", verdict, "floor", ratio, interval, reason="why")
    method = Method(1.0, 0.01, 0.02, 0, 60.0, 600.0)
    arms = (arm("baseline"), new)
    return Result("r1", "2026-11-18T05:00:00+00:00", (), arms, (found,), (), method)


@pytest.mark.parametrize(
    ("verdict", "ratio", "screened", "selected"),
    [
        (Verdict.FASTER, 0.8, Decision.PROMISING, Decision.ADOPTED),
        (Verdict.SLOWER, 1.3, Decision.REJECTED, Decision.REJECTED),
        (Verdict.SAME, 0.995, Decision.REJECTED, Decision.REJECTED),
        (Verdict.NOT_FASTER, 1.01, Decision.REJECTED, Decision.REJECTED),
        (Verdict.NOT_SLOWER, 0.95, Decision.PROMISING, Decision.CANNOT_TELL),
        (Verdict.CANNOT_TELL, 0.9, Decision.PROMISING, Decision.CANNOT_TELL),
        (Verdict.CANNOT_TELL, 1.1, Decision.CANNOT_TELL, Decision.CANNOT_TELL),
        (Verdict.CANNOT_TELL, None, Decision.CANNOT_TELL, Decision.CANNOT_TELL),
    ],
)
def test_only_a_proven_gain_is_adopted(
    verdict: Verdict, ratio: float | None, screened: Decision, selected: Decision
) -> None:
    result = case(arm("new"), verdict, ratio)
    assert decide.decide(SCREEN, result, "new", RULE).decision is screened
    assert decide.decide(SELECT, result, "new", RULE).decision is selected


@pytest.mark.parametrize(
    ("outcome", "message", "decision"),
    [
        (Outcome.WRONG_ANSWER, "zeros", Decision.WRONG_ANSWER),
        (Outcome.CRASH, "SIGSEGV", Decision.FAILED),
        (Outcome.OOM, "killed", Decision.FAILED),
        (Outcome.TIMEOUT, "hung", Decision.FAILED),
        (Outcome.ERROR, "raised", Decision.FAILED),
        (Outcome.NOT_SUPPORTED, "no convolution", Decision.NOT_APPLICABLE),
        (Outcome.NOT_RUN, "stopped early: 20 times", Decision.STOPPED),
        (Outcome.NONDETERMINISTIC, "random", Decision.CANNOT_TELL),
    ],
)
def test_an_arm_that_fails_is_a_row_and_never_adopted(
    outcome: Outcome, message: str, decision: Decision
) -> None:
    bad = replace(arm("new"), outcome=outcome, detail=OutcomeDetail(message))
    found = decide.decide(SELECT, case(bad, Verdict.FASTER), "new", RULE)
    assert found.decision is decision
    assert message in found.reason
    assert found.result_id == "r1"


def test_a_baseline_that_failed_lets_nothing_be_adopted() -> None:
    result = case(arm("new"), Verdict.FASTER)
    broken = replace(result.arms[0], outcome=Outcome.NONDETERMINISTIC)
    result = replace(result, arms=(broken, result.arms[1]))
    assert decide.decide(SELECT, result, "new", RULE).decision is Decision.CANNOT_TELL


def test_bitwise_means_every_bit_that_was_seen() -> None:
    strict = replace(RULE, allow="bitwise")
    found = decide.decide(SELECT, case(arm("new"), Verdict.FASTER), "new", strict)
    assert found.decision is Decision.REJECTED
    assert "bit for bit" in found.reason
    same = arm("new", agreement=Agreement("fp64", checked=2, identical=True))
    found = decide.decide(SELECT, case(same, Verdict.FASTER), "new", strict)
    assert (found.decision, found.shown_tier) == (Decision.ADOPTED, "bitwise")


def test_an_answer_that_nobody_could_check_is_not_called_right() -> None:
    unseen = arm("new", agreement=Agreement("none", "no reference"))
    assert decide.decide(SELECT, case(unseen, Verdict.FASTER), "new", RULE).shown_tier == ""


def test_compiling_must_pay() -> None:
    compiled = arm("new", compile=CompileCost(cold_ns=2_000_000_000, steady_ns=800_000))
    found = decide.decide(SELECT, case(compiled, Verdict.FASTER, 0.8), "new", RULE)
    assert found.compile_s == pytest.approx(2.0)
    assert found.break_even_calls == pytest.approx(2.0 / (0.2 * 1e-3))
    slower = decide.decide(SELECT, case(compiled, Verdict.SLOWER, 1.2), "new", RULE)
    assert slower.break_even_calls is None


def test_a_huge_gain_seen_twice_is_one_even_where_the_looks_differ() -> None:
    """Else twenty times as fast would be worth less than 5 %."""
    withheld = case(arm("new"), Verdict.CANNOT_TELL, None)
    again = Remeasurement("baseline", "new", 7, 20.0, 14.0, (0.06, 0.09))
    found = decide.decide(SELECT, replace(withheld, remeasurements=(again,)), "new", RULE)
    assert found.decision is Decision.ADOPTED
    assert found.speedup == pytest.approx(14.0)
    vanished = replace(again, speedup=1.1, interval=(0.7, 1.2))
    found = decide.decide(SELECT, replace(withheld, remeasurements=(vanished,)), "new", RULE)
    assert found.decision is Decision.CANNOT_TELL
    broken = replace(again, outcome="wrong_answer")
    found = decide.decide(SELECT, replace(withheld, remeasurements=(broken,)), "new", RULE)
    assert found.decision is Decision.CANNOT_TELL


def test_a_huge_gain_that_screening_saw_too_needs_no_third_look() -> None:
    """A budget of minutes has no time to compile once more."""
    base, new = measured("baseline", 5e-3), measured("new", 1.4e-4, seed=2)
    seen = 5e-3 / 1.4e-4
    text = "compile reads 36 times as fast"
    check = Check("too-good", Level.FAIL, text, {"speedup": seen}, ("new",))
    late = Remeasurement("baseline", "new", 7, seen, None, reason="the time was over")
    withheld = replace(case(arm("new"), Verdict.CANNOT_TELL, None), arms=(base, new))
    withheld = replace(withheld, checks=(check,), remeasurements=(late,))
    screened = decide.decide(SCREEN, withheld, "new", RULE)
    assert screened.decision is Decision.PROMISING
    found = decide.decide(SELECT, withheld, "new", RULE, screened)
    assert found.decision is Decision.ADOPTED
    assert found.speedup == pytest.approx(seen, rel=0.05)
    assert found.interval is not None
    for other in (None, replace(screened, time_ratio=1 / 20)):
        found = decide.decide(SELECT, withheld, "new", RULE, other)
        assert found.decision is Decision.CANNOT_TELL
    wrong = replace(check, rule="constant-output")
    worse = replace(withheld, checks=(check, wrong))
    assert decide.decide(SELECT, worse, "new", RULE, screened).decision is Decision.CANNOT_TELL


def test_memory_is_decided_by_the_peak_of_tensors() -> None:
    rule = replace(RULE, goal="memory")
    less = arm("new", memory=Memory("VmHWM", tensor_peak_bytes=500))
    found = decide.decide(SELECT, case(less, Verdict.SLOWER, 1.3), "new", rule)
    assert (found.decision, found.memory_ratio) == (Decision.ADOPTED, 0.5)
    assert decide.decide(SELECT, case(less, Verdict.SLOWER, 2.5), "new", rule).decision is (
        Decision.REJECTED
    )
    same = decide.decide(SELECT, case(arm("new"), Verdict.FASTER), "new", rule)
    assert same.decision is Decision.REJECTED
    unknown = decide.decide(SELECT, case(arm("new", memory=None), Verdict.FASTER), "new", rule)
    assert unknown.decision is Decision.CANNOT_TELL


def test_latency_is_decided_by_typical_steps() -> None:
    rule = replace(RULE, goal="latency")
    result = case(arm("new"), Verdict.FASTER, 0.7)
    typical = Estimate("typical", 1.0, (0.99, 1.01), 0.95, 4)
    result = replace(result, comparisons=(replace(result.comparisons[0], typical=typical),))
    found = decide.decide(SELECT, result, "new", rule)
    assert (found.decision, found.time_ratio) == (Decision.REJECTED, 1.0)


def test_a_known_limit_is_told_and_does_not_refuse() -> None:
    said = {"changed weights": "output: error 0.2", "second shape": ""}
    limited = arm("new", agreement=Agreement("fp64", checked=1, adversarial=said))
    one = replace(SELECT, technique="compile_freezing")
    found = decide.decide(one, case(limited, Verdict.FASTER), "new", RULE)
    assert found.decision is Decision.ADOPTED
    assert found.conditions == ("not with changed weights: output: error 0.2",)


def screened(name: str, ratio: float, decision: Decision, memory: float = 1.0) -> Experiment:
    return Experiment(Stage.SCREEN, name, decision, time_ratio=ratio, memory_ratio=memory)


def test_the_largest_gain_is_tested_first() -> None:
    some = [
        screened("a", 0.9, Decision.PROMISING, 0.5),
        screened("b", 0.7, Decision.PROMISING, 0.9),
        screened("c", 0.5, Decision.WRONG_ANSWER),
    ]
    assert decide.queue(some, "speed") == ["b", "a"]
    assert decide.queue(some, "memory") == ["a", "b"]


def test_the_front_has_no_arm_that_another_beats() -> None:
    some = [
        screened("fast", 0.5, Decision.PROMISING, 1.2),
        screened("small", 1.1, Decision.REJECTED, 0.6),
        screened("beaten", 0.6, Decision.PROMISING, 1.3),
        screened("wrong", 0.1, Decision.WRONG_ANSWER, 0.1),
    ]
    assert [one.technique for one in decide.pareto(some)] == ["fast", "small"]


@pytest.mark.parametrize(
    ("technique", "ratio", "steps", "decision"),
    [
        ("optimizer_adamw", 1.0, 0.5, Decision.ADOPTED),
        ("optimizer_adamw", 0.8, 1.5, Decision.REJECTED),
        ("larger_batch_8", 4.0, 1.0, Decision.ADOPTED),
        ("larger_batch_8", 8.8, 1.0, Decision.REJECTED),
    ],
)
def test_time_is_that_of_the_same_work(
    technique: str, ratio: float, steps: float, decision: Decision
) -> None:
    """Of as many rows, of training to the same loss; and it is not called neutral."""
    agreed = Agreement("fp64", checked=2, timed=1, quality={"steps ratio": steps})
    verdict = Verdict.FASTER if ratio < 1 else Verdict.SAME if ratio == 1 else Verdict.SLOWER
    one = replace(SELECT, technique=technique)
    found = decide.decide(one, case(arm("new", agreement=agreed), verdict, ratio), "new", RULE)
    assert found.decision is decision, found
    work = 8 if technique == "larger_batch_8" else 1
    assert found.time_ratio == pytest.approx(ratio * steps / work)
    assert found.interval is not None
    assert found.interval[0] < found.time_ratio < found.interval[1]
    if decision is Decision.ADOPTED:
        assert ("it trains otherwise" if work == 1 else "8 times as large") in found.reason
