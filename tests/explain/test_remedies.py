"""Remedies applied for real, and what is said of a prediction afterwards."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.explain.ledger_synthetic import ARM, ledger
from tests.show import synthetic_result
from torchstone.explain.findings.base import apply_remedy, untested, verdict
from torchstone.explain.findings.python import garbage_collection
from torchstone.records import (
    Comparison,
    Estimate,
    Outcome,
    OutcomeDetail,
    Prediction,
    Remedy,
    Verdict,
)
from torchstone.records.format import times
from torchstone.variants import check_variant


def prediction(low: float = 0.5, high: float = 0.8) -> Prediction:
    found = garbage_collection.look(ledger({"interpreter": 0.6, "collector": 0.4}))
    assert found is not None
    return replace(found, time_ratio=(low, high))


def test_a_remedy_is_an_arm_like_any_other() -> None:
    changed = apply_remedy(Remedy(variant="inductor", threads=2, allocator="keep"), ARM, "x")
    assert (changed.variant, changed.threads, changed.allocator) == ("inductor", 2, "keep")
    assert changed.target == ARM.target
    changed = apply_remedy(Remedy(technique="no_grad"), ARM, "x")
    assert (changed.target, changed.variant) == (ARM.target, "eager+no_grad")
    check_variant(changed.variant, tuple)


@pytest.mark.parametrize(
    ("measured", "interval", "held"),
    [
        (0.6, (0.55, 0.65), True),
        (0.6, (0.45, 0.75), None),  # the point is inside, but who knows
        (0.78, (0.74, 0.82), None),
        (0.6, None, None),
        (0.9, (0.85, 0.95), False),
        (0.85, (0.75, 0.95), None),
        (0.3, (0.25, 0.35), False),
    ],
)
def test_whether_it_held(
    measured: float, interval: tuple[float, float] | None, held: bool | None
) -> None:
    comparison = Comparison("a", "b", Verdict.FASTER, "floor", measured, interval)
    found = verdict(prediction(), replace(synthetic_result.single(), comparisons=(comparison,)))
    assert found.held is held
    assert f"measured {times(1 / measured)}" in found.sentence


def test_typical_steps_are_held_against_it_because_the_ledger_is_of_those() -> None:
    """Pages that are mapped in every third step are in none of the quickest."""
    typical = Estimate("typical", 0.6, (0.55, 0.65), 0.95, 4)
    comparison = Comparison("a", "b", Verdict.SAME, "floor", 1.0, (0.99, 1.01), typical=typical)
    result = replace(synthetic_result.single(), comparisons=(comparison,))
    assert verdict(prediction(), result).held is True
    one = replace(comparison, typical=replace(typical, interval=(0.0, math.inf), replicates=1))
    assert verdict(prediction(), replace(result, comparisons=(one,))).held is None


def test_an_arm_that_fails_tests_nothing() -> None:
    result = synthetic_result.single()
    bad = replace(result.arms[0], outcome=Outcome.WRONG_ANSWER, detail=OutcomeDetail("off by one"))
    found = verdict(prediction(), replace(result, arms=(result.arms[0], bad)))
    assert found.held is None
    assert "off by one" in found.sentence
    assert "Not tested" in untested(prediction()).sentence
