"""A right answer is not all: modes, parameters and gradients must be as the variant says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets.promises import ASKED
from tests.targets.support import ROOT, run_arms, target
from torchstone.conductor.check_outputs import remarks, undeclared_change
from torchstone.records import ArmSpec, Contract, Leaf, Measurement, Outcome

BASE = Contract(
    inputs=(),
    outputs=(Leaf("output", "torch", "float32", (2, 3)),),
    parameters=10,
    parameter_dtypes={"float32": 10},
    weights_hash="aa",
    determinism={"deterministic_algorithms": False},
)
NOTHING: frozenset[str] = frozenset()
CHANGED = [
    ("training", {"training": True}, "training"),
    ("grad_enabled", {"grad_enabled": True}, "grad_enabled"),
    ("autocast", {"autocast": "amp (bfloat16)"}, "dtype"),
    ("parameters", {"parameters": 11}, "parameters"),
    ("parameter_dtypes", {"parameter_dtypes": {"int8": 10}}, "parameters"),
    ("weights_hash", {"weights_hash": "bb"}, "dtype"),
    ("determinism", {"determinism": {"deterministic_algorithms": True}}, "determinism"),
]


@pytest.mark.parametrize(("field", "change", "declared"), CHANGED)
def test_a_change_is_named_unless_it_was_declared(
    field: str, change: dict[str, object], declared: str
) -> None:
    new = replace(BASE, **change)  # type: ignore[arg-type]
    assert undeclared_change(BASE, new, NOTHING).startswith(f"{field}: expected ")
    assert undeclared_change(BASE, new, frozenset({"container"}))
    assert not undeclared_change(BASE, new, frozenset({declared}))


def test_nothing_is_said_of_what_is_alike() -> None:
    assert undeclared_change(BASE, replace(BASE, seed=5, notes=("x",)), NOTHING) == ""
    assert remarks(BASE, BASE, NOTHING) == []


def leafs(**change: object) -> Contract:
    return replace(BASE, outputs=(replace(BASE.outputs[0], **change),))  # type: ignore[arg-type]


def test_outputs_that_carry_gradients_are_another_promise() -> None:
    words = "output: carries gradients, the baseline's carries no gradients"
    assert undeclared_change(BASE, leafs(requires_grad=True), NOTHING) == words
    assert remarks(BASE, leafs(requires_grad=True), NOTHING) == [words]
    assert not undeclared_change(BASE, leafs(requires_grad=True), frozenset({"requires_grad"}))


def test_another_memory_format_is_worth_a_remark_only() -> None:
    new = leafs(memory_format="channels_last")
    assert undeclared_change(BASE, new, NOTHING) == ""
    assert "contiguous in the baseline, channels_last here" in remarks(BASE, new, NOTHING)[0]
    assert remarks(BASE, new, frozenset({"memory_format"})) == []


def changed(*names: str, factory: str = "make") -> dict[str, Measurement]:
    """Arms that make a change each, beside one that makes none."""
    plain = ArmSpec("plain", target("promises"))
    asked = [ArmSpec(one, target("promises", factory), env=((ASKED, one),)) for one in names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        base, *new = run_arms(plain, *asked, replicates=1).arms
    assert base.outcome is Outcome.OK, base.detail
    return {arm.arm.name: arm for arm in new}


UNSAID = {
    "training": "training: expected False, got True, which eager does not say",
    "parameters": "parameters: expected 1056, got 1061, which eager",
    "requires_grad": "output: carries gradients, the baseline's carries no",
}


@pytest.fixture(scope="module")
def beside_one_another() -> dict[str, Measurement]:
    return changed(*UNSAID, "memory_format")


@pytest.mark.parametrize(("what", "words"), UNSAID.items())
def test_an_arm_that_changes_more_than_it_says_is_wrong(
    beside_one_another: dict[str, Measurement], what: str, words: str
) -> None:
    arm = beside_one_another[what]
    assert arm.outcome is Outcome.WRONG_ANSWER
    assert arm.detail.message.startswith(words)
    assert not arm.turns


def test_strides_are_noted_and_the_arm_is_measured(
    beside_one_another: dict[str, Measurement],
) -> None:
    arm = beside_one_another["memory_format"]
    assert arm.outcome is Outcome.OK, arm.detail
    assert arm.turns
    assert any("strided here" in note for note in arm.notes), arm.notes


@pytest.mark.slow
def test_another_target_may_differ_and_its_modes_are_noted() -> None:
    arm = changed("training", factory="other")["training"]
    assert arm.outcome is Outcome.OK, arm.detail
    assert "training differs from the baseline's: False there, True here" in arm.notes
