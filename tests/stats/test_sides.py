"""Which side moved, and costs: evaluated by the drift and the spread of the others."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stats.synthetic import clopper_pearson
from torchstone.records import Verdict
from torchstone.stats import CostThresholds, Drift, cost_thresholds, drift_of
from torchstone.stats.drift import ARM, BASELINE, BOTH, CANNOT_TELL, CHANCE, NEITHER, side_moved

STEADY = Drift(0.0, 0.005, 40)
DRIFTED = Drift(math.log(1.08), 0.005, 40)
FLOOR = 0.007


@pytest.mark.parametrize("drift", [STEADY, DRIFTED])
@pytest.mark.parametrize(
    ("verdict", "baseline", "arm", "said"),
    [
        (Verdict.SLOWER, 0.0, 0.05, ARM),
        (Verdict.FASTER, 0.0, -0.05, ARM),
        (Verdict.SLOWER, -0.05, 0.0, BASELINE),
        (Verdict.FASTER, 0.05, 0.0, BASELINE),
        (Verdict.SLOWER, -0.05, 0.05, BOTH),
        (Verdict.SAME, 0.05, 0.05, BOTH),
        (Verdict.SAME, 0.0, 0.0, NEITHER),
        (Verdict.CANNOT_TELL, 0.005, -0.005, NEITHER),
        (Verdict.SLOWER, -0.008, 0.008, CANNOT_TELL),  # a change, but within the drift's spread
        (Verdict.CANNOT_TELL, 0.0, 0.05, CANNOT_TELL),
        (None, 0.0, 0.05, CANNOT_TELL),
    ],
)
def test_the_side_that_left_the_drift_has_moved(
    drift: Drift, verdict: Verdict | None, baseline: float, arm: float, said: str
) -> None:
    assert side_moved(verdict, drift.log + baseline, drift.log + arm, drift, FLOOR) == said


def test_few_baselines_tell_nothing() -> None:
    few = Drift(0.0, 0.001, 7)
    assert side_moved(Verdict.SLOWER, 0.0, 0.5, few, FLOOR) == CANNOT_TELL
    assert side_moved(Verdict.SLOWER, 0.0, 0.5, None, FLOOR) == CANNOT_TELL
    assert drift_of([]) is None


def test_identical_times_have_no_spread_and_the_floor_decides() -> None:
    drift = drift_of([0.0] * 20)
    assert drift == Drift(0.0, 0.0, 20)
    assert side_moved(Verdict.SLOWER, 0.0, 0.006, drift, FLOOR) == CANNOT_TELL
    assert side_moved(Verdict.SLOWER, 0.0, 0.008, drift, FLOOR) == ARM


@given(
    st.lists(st.floats(-0.5, 0.5), min_size=8, max_size=40),
    st.floats(-1.0, 1.0),
    st.sampled_from(Verdict),
    st.floats(-0.3, 0.3),
    st.floats(-0.3, 0.3),
)
def test_the_machines_drift_changes_no_attribution(
    baselines: list[float], shift: float, verdict: Verdict, baseline: float, arm: float
) -> None:
    here, there = drift_of(baselines), drift_of([log + shift for log in baselines])
    assert here is not None
    assert there is not None
    assert there.log == pytest.approx(here.log + shift)
    assert there.spread == pytest.approx(here.spread, abs=1e-12)
    widened = math.sqrt(1 + math.pi / 2 / here.n) * here.reach(CHANCE)
    limit = max(widened, math.log1p(FLOOR))
    far = [abs(abs(log - here.log) - limit) for log in (baseline, arm)]
    if min(far) > 1e-9:  # not where rounding decides
        said = side_moved(verdict, baseline, arm, here, FLOOR)
        assert side_moved(verdict, baseline + shift, arm + shift, there, FLOOR) == said


def test_a_few_models_that_changed_do_not_move_the_drift() -> None:
    rng = random.Random(3)
    clean = [math.log(1.03) + rng.gauss(0, 0.005) for _ in range(40)]
    mixed = [*clean[:35], *(log + 0.5 for log in clean[35:])]
    one, other = drift_of(clean), drift_of(mixed)
    assert one is not None
    assert other is not None
    assert other.log == pytest.approx(one.log, abs=0.003)
    assert other.spread == pytest.approx(one.spread, rel=0.6)


def test_costs_that_differ_by_chance_alone_are_seldom_called_changed() -> None:
    rng, groups, cases, means = random.Random(5), 400, 0, 0
    for _ in range(groups):
        logs = [rng.gauss(0.0, 0.04) for _ in range(30)]
        limits = cost_thresholds(logs, 0.0)
        assert limits is not None
        cases += any(limits.case_changed(math.exp(log)) for log in logs)
        means += limits.mean_changed(math.exp(sum(logs) / len(logs)))
    assert clopper_pearson(cases, groups)[0] <= 0.05, cases
    assert clopper_pearson(means, groups)[0] <= 0.0027, means


def test_a_mean_is_not_called_changed_for_a_few_cases_that_are_noisy() -> None:
    """Three of thirty whose compile times are off by half: the middle half sees none of it."""
    rng, groups, means = random.Random(8), 400, 0
    for _ in range(groups):
        logs = [rng.gauss(0.0, 0.03 if place < 27 else 0.5) for place in range(30)]
        limits = cost_thresholds(logs, 0.0)
        assert limits is not None
        means += limits.mean_changed(math.exp(sum(logs) / len(logs)))
    assert clopper_pearson(means, groups)[0] <= 0.0027, means


def test_a_group_of_quiet_and_noisy_cases_is_judged_by_the_noisy_ones() -> None:
    rng, groups, now = random.Random(9), 200, 0
    for _ in range(groups):
        logs = [rng.gauss(0.0, 0.002 if place < 20 else 0.03) for place in range(30)]
        limits = cost_thresholds(logs, 0.05)
        assert limits is not None
        now += any(limits.case_changed(math.exp(log)) for log in logs)
    assert now < 0.3 * groups, now  # all but one of two hundred, by the middle half alone


def test_a_planted_cost_is_found_and_the_drift_is_allowed_for() -> None:
    rng = random.Random(6)
    logs = [rng.gauss(0.0, 0.02) for _ in range(30)]
    limits = cost_thresholds(logs, 0.05)
    assert limits is not None
    assert limits.case_changed(1.3)
    assert not limits.case_changed(1.04)
    moved = [log + math.log(1.15) for log in logs]  # all of them alike: a new pass of the compiler
    found = cost_thresholds(moved, 0.05)
    assert found is not None
    assert found.mean_changed(1.15)
    slow_machine = cost_thresholds(moved, 0.05, Drift(math.log(1.15), 0.01, 30))
    assert slow_machine is not None
    assert not slow_machine.mean_changed(1.15)


@pytest.mark.parametrize("n", [8, 9, 10, 30])
def test_one_cost_that_stands_out_is_found_in_a_small_group_too(n: int) -> None:
    rng = random.Random(n)
    logs = [rng.gauss(0.0, 0.02) for _ in range(n - 1)] + [math.log(3.0)]
    limits = cost_thresholds(logs, 0.05)
    assert limits is not None
    assert limits.case_changed(3.0)


def test_few_costs_are_not_judged() -> None:
    assert cost_thresholds([0.0] * 7, 0.05) is None
    assert cost_thresholds([0.0] * 8, 0.05) == CostThresholds(
        pytest.approx(0.05), pytest.approx(0.05)
    )
