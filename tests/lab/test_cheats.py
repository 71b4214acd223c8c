"""An arm that does not do its work, in its time, by itself, is caught and never called faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets.support import ROOT, settings, target
from torchstone.lab.bench import measure
from torchstone.lab.peaks import evaluate_again
from torchstone.records import ArmSpec, Level, Outcome, Result, Statement, Verdict

# name, how it is caught: an outcome or the rule of a failed check
CHEATS = [
    ("by_attribute", "fresh-inputs"),
    ("by_id", "fresh-inputs"),
    ("by_value", "fresh-inputs"),
    ("skips_after_first_calls", "wrong_answer"),
    ("mostly_stale", "wrong_answer"),
    ("constant", "wrong_answer"),
    ("patches_perf_counter_ns", "timer"),
    ("patches_perf_counter", "timer"),
    ("thread_works_later", "wrong_answer or late-work"),
    ("thread_works_on_the_last_only", "wrong_answer or late-work"),
]
ALONE = [
    ("by_id", "fresh-inputs"),
    ("by_value", "fresh-inputs"),
    ("patches_perf_counter_ns", "timer"),
    ("thread_works_later", "nondeterministic or wrong_answer or late-work"),
]


SLOW = ("by_value", "thread_works_later")


def bench(*arms: ArmSpec) -> Result:
    return measure(arms, settings(), None, None, (), "bench")


def arm(name: str) -> ArmSpec:
    return ArmSpec(name, target("cheats", name))


@pytest.fixture(scope="module")
def together() -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return bench(arm("honest"), *(arm(name) for name, _ in CHEATS))


def caught_by(result: Result, name: str) -> set[str]:
    found = next(m for m in result.arms if m.arm.name == name)
    failed = {c.rule for c in result.checks if c.level is Level.FAIL and name in c.arms}
    return failed | ({found.outcome.value} - {"ok"})


@pytest.mark.parametrize(("name", "how"), CHEATS)
def test_a_cheat_beside_an_honest_arm_is_caught(together: Result, name: str, how: str) -> None:
    assert caught_by(together, name) & {*how.split(" or ")}
    comparison = next(c for c in together.comparisons if c.new == name)
    assert comparison.verdict is Verdict.CANNOT_TELL
    assert comparison.time_ratio is None
    assert comparison.reason


def test_the_honest_arm_is_not_blamed(together: Result) -> None:
    assert not caught_by(together, "honest")
    assert together.arms[0].outcome is Outcome.OK
    assert together.arms[0].turns


@pytest.mark.parametrize(
    ("name", "how"),
    [pytest.param(*one, marks=pytest.mark.slow) if one[0] in SLOW else one for one in ALONE],
)
def test_a_cheat_is_caught_without_anything_to_compare_it_with(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert caught_by(bench(arm(name)), name) & {*how.split(" or ")}


@pytest.mark.slow
def test_a_baseline_whose_output_does_not_depend_on_its_input_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = bench(arm("constant_and_slow"), arm("constant"))
    rules = {c.rule: c.level for c in result.checks if "constant" in c.arms}
    assert rules["constant-output"] in (Level.WARN, Level.FAIL)


@pytest.mark.slow
def test_a_lazy_tensor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = bench(arm("torch_honest"), arm("torch_lazy"))
    honest, lazy = result.arms
    assert honest.outcome is Outcome.OK, honest.detail
    assert lazy.outcome is Outcome.WRONG_ANSWER
    assert "expected a plain tensor, got tests.targets.cheats" in lazy.detail.message or (
        "expected a plain tensor, got cheats" in lazy.detail.message
    )
    assert result.comparisons[0].verdict is Verdict.CANNOT_TELL


NUMPY = "import numpy, threading; x = numpy.random.rand(600, 600)"
LATER = "threading.Thread(target=lambda: [x.dot(x) for _ in range(4)]).start()"


def timed(statement: str) -> Result:
    spec = ArmSpec("statement", statement=Statement(statement, NUMPY))
    return measure([spec], settings(), None, None, (), "timeit")


def late_work(result: Result) -> Level:
    return next(check.level for check in result.checks if check.rule == "late-work")


def test_the_spinning_threads_of_openblas_are_no_cheat() -> None:
    result = timed("x.dot(x)")
    assert late_work(result) is Level.OK
    (arm,) = result.arms
    if arm.integrity is not None and arm.integrity.late_without_spin_ns is not None:
        # Where they did spin: only the look with spinning off tells them from work done late.
        blind = replace(arm, integrity=replace(arm.integrity, late_without_spin_ns=None))
        assert late_work(evaluate_again(replace(result, arms=(blind,)))) is not Level.OK


def test_a_matrix_product_left_to_a_thread_is_caught() -> None:
    assert late_work(timed(LATER)) is Level.FAIL
