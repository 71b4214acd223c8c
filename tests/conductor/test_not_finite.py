"""NaN and infinities: whose they are decides who is wrong, and nothing else is called checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.support import ROOT, run_arms, target
from torchstone.conductor.check_outputs import Output, combine, evaluate, out_of_range
from torchstone.records import Agreement, ArmSpec, Leaf, Measurement, Outcome

ARM = ArmSpec("arm", "x.py:make", precision="fp16")
NAN, INF = float("nan"), float("inf")


def _floats(values: list[float], path: str = "output.logits") -> Output:
    array = np.asarray(values, dtype=np.float64)
    leaf = Leaf(path, "torch", "float16", array.shape, type_name="torch.Tensor")
    return Output(leaf, "f8", array)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ([NAN] * 4, "4 of 4 values are NaN or infinite here and finite in float64"),
        ([1.0, 2.0, 3.0, INF], "1 of 4 values are NaN or infinite here and finite in float64"),
    ],
)
def test_what_only_the_baseline_and_the_arm_lose_is_no_right_answer(
    base: list[float], words: str
) -> None:
    eager, fp64 = [_floats(base)], [_floats([1.0, 2.0, 3.0, 4.0])]
    assert out_of_range(eager, fp64)
    agreed = evaluate(ARM, eager, eager, fp64, frozenset())
    assert agreed.mismatch.startswith(f"output.logits: {words}; the baseline itself is not finite")


def test_a_right_answer_is_right_where_the_baseline_is_not_finite() -> None:
    eager, fp64 = [_floats([1.0, 2.0, 3.0, INF])], [_floats([1.0, 2.0, 3.0, 7e4])]
    agreed = evaluate(ARM, fp64, eager, fp64, frozenset())
    assert (agreed.method, agreed.mismatch, agreed.rmse) == ("fp64", "", 0.0)
    wrong = evaluate(ARM, [_floats([1.0, 2.0, 3.0, 6e4])], eager, fp64, frozenset())
    assert wrong.mismatch.startswith("output.logits: error 1.4")


def test_a_float64_run_that_is_not_finite_is_no_reference() -> None:
    eager, fp64 = [_floats([1.0, 2.0, 3.0, 1e7])], [_floats([1.0, 2.0, 3.0, INF])]
    assert not out_of_range(eager, fp64)
    agreed = evaluate(ARM, eager, eager, fp64, frozenset())
    assert (agreed.method, agreed.mismatch, agreed.rmse) == ("eager", "", 0.0)
    assert agreed.reason == (
        "output.logits: 1 of 4 values are NaN or infinite in float64 and finite in the baseline"
    )
    assert evaluate(ARM, [_floats([1.0, 2.0, 3.0, 2e7])], eager, fp64, frozenset()).mismatch


def test_one_output_without_a_reference_leaves_the_others_theirs() -> None:
    eager = [_floats([1.0], "output.a"), _floats([1.0], "output.b")]
    fp64 = [_floats([INF], "output.a"), _floats([1.0], "output.b")]
    # 1e-2 is within what a check against eager allows, and beyond float64's.
    for path, wrong in (("output.a", False), ("output.b", True)):
        found = [_floats([1.0 + 1e-2 * (o.leaf.path == path)], o.leaf.path) for o in eager]
        agreed = evaluate(ARM, found, eager, fp64, frozenset())
        assert agreed.method == "eager"
        assert agreed.mismatch.startswith(f"{path}: error") == wrong


@pytest.mark.parametrize("truth", [True, False])
def test_a_mask_of_infinities_that_all_runs_have_is_fine(truth: bool) -> None:
    masked = [_floats([0.5, 0.25, -INF, -INF])]
    agreed = evaluate(ARM, masked, masked, masked if truth else None, frozenset())
    assert agreed.method == ("fp64" if truth else "eager")
    assert (agreed.mismatch, agreed.reason) == ("", "")
    filled = [_floats([0.5, 0.25, -INF, 0.0])]
    words = "1 of 4 values are NaN or infinite in"
    assert words in evaluate(ARM, filled, masked, masked if truth else None, frozenset()).mismatch
    empty = [_floats([-INF] * 4)]
    assert evaluate(ARM, empty, empty, empty, frozenset()).method == "fp64"


@pytest.mark.parametrize(
    ("values", "truth", "method", "odd"),
    [
        ([NAN] * 4, False, "none", "4 of 4"),
        ([-INF] * 4, False, "none", "4 of 4"),
        ([NAN] * 4, True, "none", "4 of 4"),
        ([1.0, *[NAN] * 99], False, "eager", "99 of 100"),
        ([1.0, *[NAN] * 99], True, "fp64", "99 of 100"),
    ],
)
def test_what_is_mostly_not_finite_is_hardly_checked_and_that_is_said(
    values: list[float], truth: bool, method: str, odd: str
) -> None:
    same = [_floats(values)]
    agreed = evaluate(ARM, same, same, same if truth else None, frozenset())
    where = "float64" if truth else "the baseline"
    assert (agreed.method, agreed.mismatch) == (method, "")
    assert agreed.checked == (method != "none")
    assert agreed.reason == f"output.logits: {odd} values are NaN or infinite in {where}"


def test_an_output_of_nan_beside_a_good_one_is_named() -> None:
    same = [_floats([NAN], "output.a"), _floats([1.0], "output.b"), _floats([NAN], "output.c")]
    agreed = evaluate(ARM, same, same, same, frozenset())
    assert (agreed.method, agreed.mismatch) == ("fp64", "")
    assert agreed.reason.startswith("output.a: 1 of 1 values are NaN")
    assert agreed.reason.endswith("(and 1 more of its outputs)")


def test_an_output_that_was_not_checked_is_not_counted_among_the_checked() -> None:
    good, none = Agreement("fp64", checked=1), Agreement("none", "all NaN")
    both = combine(good, none, timed=True)
    assert (both.method, both.reason, both.checked, both.timed) == ("none", "all NaN", 1, 0)
    said = combine(good, replace(good, reason="mostly NaN"), timed=True)
    assert (said.method, said.reason, said.timed) == ("fp64", "mostly NaN", 1)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> dict[str, Measurement]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = {"base": "overflows", "same": "overflows", "sound": "stays_in_range"}
    arms = [ArmSpec(name, target("outputs", made)) for name, made in names.items()]
    return {arm.arm.name: arm for arm in run_arms(*arms, replicates=1).arms}


def test_a_baseline_out_of_range_is_wrong_and_an_arm_within_it_is_not(
    case: dict[str, Measurement],
) -> None:
    for name in ("base", "same"):
        assert case[name].outcome is Outcome.WRONG_ANSWER
        assert "the baseline itself is not finite" in case[name].detail.message
        assert "choose another precision" in case[name].detail.remedy
        assert not case[name].turns
    assert case["sound"].outcome is Outcome.OK, case["sound"].detail


def test_a_mask_of_the_least_number_there_is_is_fine_and_a_wrong_one_is_not() -> None:
    """In float64 it is another number than in float32, and overflows when squared."""
    eager = [_floats([float(np.finfo(np.float32).min), 1.0])]
    fp64 = [_floats([float(np.finfo(np.float64).min), 1.0])]
    agreed = evaluate(ARM, eager, eager, fp64, frozenset())
    assert (agreed.mismatch, agreed.method) == ("", "fp64")
    assert agreed.rmse == pytest.approx(agreed.rmse_baseline)
    wrong = evaluate(
        ARM, [_floats([float(np.finfo(np.float64).max), 1.0])], fp64, fp64, frozenset()
    )
    assert "error 2.0" in wrong.mismatch
