"""An arm must compute what the baseline computes; a mismatch names the leaf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.targets.support import ROOT, run_arms, target
from torchstone.conductor import CaseResult, solo
from torchstone.conductor.check_outputs import (
    Output,
    combine,
    compare_leaves,
    evaluate,
    read_evidence,
)
from torchstone.measure.evidence import write_evidence
from torchstone.records import (
    Agreement,
    ArmSpec,
    Leaf,
    Measurement,
    Outcome,
    from_data,
    to_data,
)

ARM = ArmSpec("arm", "x.py:make")
WRONG = {
    "wrong_dtype": "output.logits: expected float32[8,128], got float16[8,128]",
    "wrong_shape": "output.logits: expected float32[8,128], got float32[8,127]",
    "extra_key": "output.hidden: not in the baseline's output",
    "missing_key": "output.best: missing",
    "nan": "output.logits: ",
    "wrong_values": "output.logits: error ",
    "wrong_integers": "output.best: ",
    "wrong_text": "output.note: 'poor' is not 'fine'",
}
RIGHT = ["other_order", "nearly_the_same"]


@pytest.fixture(scope="module")
def case() -> CaseResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        names = ["base", *RIGHT, *WRONG]
        return run_arms(*(ArmSpec(name, target("outputs", name)) for name in names))


def arm_of(case: CaseResult, name: str) -> Measurement:
    return next(arm for arm in case.arms if arm.arm.name == name)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_names_the_leaf(case: CaseResult, name: str) -> None:
    arm = arm_of(case, name)
    assert arm.outcome is Outcome.WRONG_ANSWER
    assert arm.detail.message.startswith(WRONG[name])
    assert arm.detail.phase == "contract"
    assert not arm.turns


@pytest.mark.parametrize("name", ["base", *RIGHT])
def test_what_agrees_is_measured(case: CaseResult, name: str) -> None:
    arm = arm_of(case, name)
    assert arm.outcome is Outcome.OK, arm.detail
    assert arm.turns
    assert arm.agreement is not None
    assert arm.agreement.method == "fp64"
    assert (arm.agreement.checked, arm.agreement.timed, arm.agreement.mismatch) == (3, 2, "")


@pytest.mark.parametrize(
    ("name", "words", "remedy"),
    [
        ("random_output", "two runs from one seed differ: output", "seeds itself"),
        ("random_weights", "two processes with one seed differ: output", "default_rng(0)"),
        ("counts_its_calls", "two runs from one seed differ: output", "seeds itself"),
    ],
)
def test_a_baseline_without_a_fixed_answer_is_nondeterministic(
    name: str, words: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    arms = [ArmSpec(name, target("outputs", name)), ArmSpec("again", target("outputs", name))]
    first, second = run_arms(*arms, replicates=1).arms
    assert first.outcome is Outcome.NONDETERMINISTIC
    assert first.detail.message.startswith(words)
    assert remedy in first.detail.remedy
    assert first.turns  # its time can still be known
    assert second.outcome is Outcome.NONDETERMINISTIC


def test_seeded_randomness_is_a_fixed_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (arm,) = run_arms(ArmSpec("seeded", target("outputs", "seeded_randomness"))).arms
    assert arm.outcome is Outcome.OK, arm.detail
    assert arm.agreement is not None
    assert arm.agreement.timed == 2


def test_independent_arms_are_each_checked_against_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = ("base", "wrong_shape", "random_output")
    arms = [ArmSpec(name, target("outputs", name)) for name in names]
    base, other, unsteady = run_arms(*arms, independent=True, replicates=1).arms
    assert (base.outcome, other.outcome) == (Outcome.OK, Outcome.OK)
    assert other.agreement is not None
    assert other.agreement.checked == 2
    assert unsteady.outcome is Outcome.NONDETERMINISTIC


def test_an_output_that_cannot_be_compared_is_not_called_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (arm,) = run_arms(ArmSpec("nothing", target("outputs", "nothing")), replicates=1).arms
    assert arm.outcome is Outcome.OK
    assert arm.agreement is not None
    assert (arm.agreement.method, arm.agreement.checked) == ("none", 0)
    assert "nothing that can be compared" in arm.agreement.reason


def _leaf(dtype: str, path: str = "output.logits", shape: tuple[int, ...] = (8, 128)) -> Leaf:
    return Leaf(path, "torch", dtype, shape, type_name="torch.Tensor")


def test_the_form_of_a_mismatch() -> None:
    found = compare_leaves([_leaf("float32")], [_leaf("bfloat16")], frozenset())
    assert found == "output.logits: expected float32[8,128], got bfloat16[8,128]"
    assert not compare_leaves([_leaf("float32")], [_leaf("bfloat16")], frozenset({"dtype"}))


def test_a_container_may_change_only_where_declared() -> None:
    want, got = [_leaf("float32", "output.a")], [_leaf("float32", "output[0]")]
    assert compare_leaves(want, got, frozenset()) == "output.a: missing, got output[0] instead"
    assert not compare_leaves(want, got, frozenset({"container"}))
    assert compare_leaves(want, [], frozenset({"container"})) == (
        "output: expected 1 tensors, got 0"
    )


def _floats(values: list[float], path: str = "output.logits") -> Output:
    array = np.asarray(values, dtype=np.float64)
    return Output(_leaf("float32", path, array.shape), "f8", array)


@pytest.mark.parametrize(
    ("fp64", "method", "reason"),
    [
        ([_floats([1.0, 2.0])], "fp64", ""),
        ([_floats([1.0, 2.0, 3.0])], "eager", "in float64 its shape is [3], not [2]"),
        ([_floats([1.0, 2.0]), _floats([1.0])], "eager", "gives 2 outputs, not 1"),
    ],
)
def test_a_float64_run_of_another_form_is_no_reference_and_that_is_said(
    fp64: list[Output], method: str, reason: str
) -> None:
    eager, found = [_floats([1.0, 2.0])], [_floats([1.0, 2.00005])]
    agreed = evaluate(ARM, found, eager, fp64, frozenset())
    assert agreed.method == method
    assert reason in agreed.reason
    # An error of 2e-5 is within what a check against eager allows, and beyond float64's.
    assert bool(agreed.mismatch) == (method == "fp64")
    strict = evaluate(ARM, [_floats([1.0, 2.0005])], eager, fp64, frozenset())
    assert strict.mismatch.startswith("output.logits: ")


def test_whole_numbers_alone_are_compared_exactly_and_that_is_said() -> None:
    def numbers(values: list[int], path: str = "output") -> Output:
        array = np.asarray(values, dtype=np.int64)
        return Output(_leaf("int64", path, array.shape), "i8", array)

    want = [numbers([1, 2])]
    assert evaluate(ARM, [numbers([1, 2])], want, want, frozenset()).method == "exact"
    assert evaluate(ARM, [numbers([1, 3])], want, want, frozenset()).mismatch
    mixed = [*want, _floats([1.0])]
    assert evaluate(ARM, mixed, mixed, mixed, frozenset()).method == "fp64"


def test_the_weakest_check_of_several_is_the_one_on_record() -> None:
    good, weak = Agreement("fp64", checked=1), Agreement("eager", "it is too large", checked=1)
    for first, second in ((good, weak), (weak, good)):
        both = combine(first, second, timed=True)
        assert (both.method, both.reason, both.checked) == ("eager", "it is too large", 2)
    assert combine(good, good, timed=True).method == "fp64"


def test_many_leaves_take_no_square_of_their_number() -> None:
    leaves = [_leaf("float32", f"output[{i}]") for i in range(20_000)]
    assert not compare_leaves(leaves, list(leaves), frozenset())  # minutes, were it quadratic


@pytest.mark.parametrize(
    ("base", "new", "agrees"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, float("nan")], [1.0, float("nan")], True),
        ([1.0, float("inf")], [1.0, float("-inf")], False),
        ([1.0, float("nan")], [1.0, 2.0], False),
        ([0.0, 0.0], [0.0, 1e-3], False),
        ([1e30, 1e30], [1e30, 1e30], True),
        ([], [], True),
    ],
)
def test_special_values(tmp_path: Path, base: list[float], new: list[float], agrees: bool) -> None:
    for name, values in (("base", base), ("new", new)):
        write_evidence(str(tmp_path / name), np.array(values))
    eager, found = read_evidence(tmp_path / "base"), read_evidence(tmp_path / "new")
    for fp64 in (None, eager):
        assert (not evaluate(ARM, found, eager, fp64, frozenset()).mismatch) == agrees


def test_an_error_is_set_against_the_baselines_own_of_the_same_output() -> None:
    def outputs(a: float, b: float) -> list[Output]:
        return [_floats([1.0 + a], "output.a"), _floats([1.0 + b], "output.b")]

    agreed = evaluate(ARM, outputs(9e-6, 1e-3), outputs(1e-9, 1e-3), outputs(0, 0), frozenset())
    assert agreed.mismatch == ""
    assert agreed.error_ratio == pytest.approx(9000, rel=1e-3)
    # How far a rounding moves the baseline is its own error too.
    moved = {"output.a": 3e-6}
    nudged = evaluate(
        ARM, outputs(9e-6, 1e-3), outputs(1e-9, 1e-3), outputs(0, 0), frozenset(), moved=moved
    )
    assert nudged.error_ratio == pytest.approx(3, rel=1e-3)
    assert combine(nudged, agreed, timed=True).error_ratio == agreed.error_ratio
    without = evaluate(ARM, outputs(0, 0), outputs(0, 0), outputs(0, 0), frozenset())
    assert without.error_ratio is None
    assert combine(without, nudged, timed=True).error_ratio == nudged.error_ratio


def test_a_gradient_that_is_nothing_but_rounding_makes_no_check_blunt() -> None:
    """As that of a bias which softmax cancels: 0 in float64 to its last bit."""
    paths = ("output.grad.weight", "output.grad.key_bias")
    truth = [_floats(v, p) for v, p in zip(([1.0, 2.0], [1e-17, -2e-17]), paths, strict=True)]
    eager = [_floats(v, p) for v, p in zip(([1.0, 2.0], [1e-9, 1e-9]), paths, strict=True)]
    right = [_floats(v, p) for v, p in zip(([1.0, 2.0], [-1e-9, 1e-9]), paths, strict=True)]
    wrong = [_floats(v, p) for v, p in zip(([1.0, 2.0], [1e-4, 1e-4]), paths, strict=True)]
    agreed = evaluate(ArmSpec("arm", "m.py:make"), right, eager, truth, frozenset())
    assert not agreed.mismatch
    assert agreed.rmse_baseline < 1e-8
    assert agreed.rmse < 1e-8
    assert agreed.cosine > 0.99
    found = evaluate(ArmSpec("arm", "m.py:make"), wrong, eager, truth, frozenset())
    assert found.mismatch.startswith("output.grad.key_bias")


def test_rounding_of_another_order_of_a_sum_is_no_wrong_answer() -> None:
    """The mean of what a normalisation has centred: 0, and one sum leaves more of it than another.
    One that is small but can be computed has to be right all the same."""
    var, mean = "output.state.bn.running_var", "output.state.bn.running_mean"

    def evaluated(truth: float, eager: float, found: float) -> str:
        values = ([_floats([0.9], var), _floats([mean_], mean)] for mean_ in (found, eager, truth))
        return evaluate(ARM, *values, frozenset()).mismatch

    assert evaluated(1e-17, 1e-10, 1e-8) == ""
    assert evaluated(1e-17, 1e-10, -3e-7) == ""
    assert evaluated(1e-17, 1e-10, 1e-4).startswith(mean)
    assert evaluated(1e-17, 1e-10, float("nan")).startswith(mean)
    assert evaluated(1e-9, 1.000001e-9, 1.1e-9).startswith(mean)
    assert evaluated(1e-3, 1.000001e-3, 1.1e-3).startswith(mean)


def test_an_agreement_of_before_the_ratio_still_loads() -> None:
    old = to_data(Agreement("fp64", rmse=1e-6, rmse_baseline=2e-6))
    del old["error_ratio"]
    assert from_data(Agreement, old).error_ratio is None


@pytest.mark.slow
def test_what_a_rounding_moves_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch at its edge goes the other way for a last bit: eager itself would, so may an arm."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = ("switch", "switch_rounded_up", "switch_wrong")
    arms = [ArmSpec(name, target("kinks", name)) for name in names]
    base, rounded, wrong = run_arms(*arms, replicates=1).arms
    assert base.outcome is Outcome.OK, base.detail
    assert rounded.outcome is Outcome.OK, rounded.detail
    assert rounded.agreement is not None
    assert rounded.agreement.rmse > 0.5  # half of all values are another
    assert wrong.outcome is Outcome.WRONG_ANSWER


@pytest.mark.slow
@pytest.mark.parametrize("closer", [True, False])
def test_before_an_arm_is_called_wrong_by_a_little_the_baseline_is_looked_at_closer(
    monkeypatch: pytest.MonkeyPatch, closer: bool
) -> None:
    """A jump that comes once in sixteen roundings: five of them do not show it, forty do."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    if not closer:
        monkeypatch.setattr(solo, "MOST_JUMP", 0.0)
    arms = [ArmSpec(name, target("kinks", name)) for name in ("rare", "rare_rounded_up")]
    base, rounded = run_arms(*arms, replicates=1).arms
    assert base.outcome is Outcome.OK, base.detail
    assert rounded.agreement is not None
    assert 0.01 < rounded.agreement.rmse < 0.1
    assert rounded.outcome is (Outcome.OK if closer else Outcome.WRONG_ANSWER), rounded.detail


@pytest.mark.slow
def test_a_closer_look_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    arms = [ArmSpec(name, target("kinks", name)) for name in ("rare_but_dies", "rare_rounded_up")]
    base, rounded = run_arms(*arms, replicates=1).arms
    assert base.outcome is Outcome.OK, base.detail
    assert rounded.outcome is Outcome.WRONG_ANSWER
    assert any("no closer look" in note and "code 5" in note for note in rounded.notes)


@pytest.mark.slow
def test_where_a_rounding_moves_little_little_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    arms = [ArmSpec(name, target("kinks", name)) for name in ("smooth", "smooth_wrong")]
    base, wrong = run_arms(*arms, replicates=1).arms
    assert base.outcome is Outcome.OK, base.detail
    assert wrong.outcome is Outcome.WRONG_ANSWER
    assert "error 2.0" in wrong.detail.message
