"""What goes wrong while a reference is made costs as little of the check as it must."""

from __future__ import annotations

import pytest

from tests.targets.support import ROOT, run_arms, target
from torchstone.records import Agreement, ArmSpec, Measurement, Outcome


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def measured(*names: str, **more: object) -> tuple[Measurement, ...]:
    arms = [ArmSpec(name, target("touchy", name), threads=1) for name in names]
    return run_arms(*arms, replicates=1, **more).arms


def agreement(arm: Measurement) -> Agreement:
    assert arm.agreement is not None
    return arm.agreement


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("only_float32", "float64 failed: AssertionError"),
        ("dies_in_float64", "float64 failed: killed by SIGKILL"),
    ],
)
def test_a_model_without_float64_is_still_compared_with_the_baseline(
    name: str, reason: str
) -> None:
    base, form, values = measured(name, "another_form", "other_values", count_flops=True)
    assert base.outcome is Outcome.OK, base.detail
    assert agreement(base).method == "eager"
    assert agreement(base).reason == reason
    # Another process counts where the one that would have is gone.
    assert not [note for note in base.notes if "FLOPs" in note]
    assert form.outcome is Outcome.WRONG_ANSWER
    assert form.detail.message == "output: expected float32[4,8], got int64[1]"
    assert values.outcome is Outcome.WRONG_ANSWER
    assert "differs from the baseline" in values.detail.message


@pytest.mark.slow
def test_inputs_that_cannot_be_nudged_cost_no_reference() -> None:
    (arm,) = measured("labels")
    assert arm.outcome is Outcome.OK, arm.detail
    assert agreement(arm).method == "fp64"
    assert agreement(arm).rmse_baseline > 0
    (note,) = (note for note in arm.notes if "nudged" in note)
    assert "RuntimeError" in note


def test_without_any_reference_the_form_of_an_answer_still_counts() -> None:
    base, form, kind, values = measured("no_copies", "another_form", "another_type", "other_values")
    assert base.outcome is Outcome.OK, base.detail
    assert agreement(base).method == "none"
    assert agreement(base).reason == "no reference: killed by SIGABRT"
    assert form.outcome is Outcome.WRONG_ANSWER
    assert form.detail.message == "output: expected float32[4,8], got int64[1]"
    assert kind.outcome is Outcome.WRONG_ANSWER
    assert kind.detail.message == "output: expected float32[4,8], got float64[4,8]"
    assert values.outcome is Outcome.OK  # nobody can tell, and the agreement says so
    assert agreement(values).method == "none"


@pytest.mark.slow
def test_without_any_reference_a_variant_is_held_to_its_promises() -> None:
    name = target("touchy", "keeps_no_promise")
    changed = ArmSpec("changed", name, env=(("TORCHSTONE_TEST_CHANGE", "grad_enabled"),))
    base, other = run_arms(ArmSpec("base", name), changed, replicates=1).arms
    assert base.outcome is Outcome.OK, base.detail
    assert other.outcome is Outcome.WRONG_ANSWER
    assert "grad_enabled: expected False, got True" in other.detail.message
