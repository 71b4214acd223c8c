"""Ratios and times over processes."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stats.synthetic import Model, from_turns, measurement, turn
from torchstone.records import Measurement, UsageError
from torchstone.stats import (
    ESTIMATORS,
    ProcessData,
    absolute,
    combine,
    fit_ratio,
    process_data,
    ratio,
    student_t_quantile,
    with_jackknife,
)

NAMES = sorted(ESTIMATORS)
NOISY = Model(process_sd=0.01, burst_share=0.3, turn_sd=0.003, turn_ar=0.5)
seeds = st.integers(0, 10**6)


def constant(name: str, *levels: int, turns: int = 3) -> Measurement:
    """One replicate a level; every sample of it takes exactly that long."""
    return from_turns(
        name, [turn(r, t, [level] * 6) for r, level in enumerate(levels) for t in range(turns)]
    )


def scaled(made: Measurement, factor: int) -> Measurement:
    turns = [replace(t, wall_ns=tuple(factor * w for w in t.wall_ns)) for t in made.turns]
    return replace(made, turns=tuple(turns))


def test_a_hand_worked_interval() -> None:
    base = constant("a", 1000, 1000, 1000)
    new = constant("b", 1100, 1200, 1300)
    logs = np.log([1.1, 1.2, 1.3])
    half = student_t_quantile(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    got = ratio(base, new, "low1")
    assert got.time_ratio == pytest.approx(math.exp(logs.mean()))
    assert got.interval == pytest.approx(
        (math.exp(logs.mean() - half), math.exp(logs.mean() + half))
    )
    assert (got.estimator, got.level, got.replicates) == ("low1", 0.95, 3)


def test_one_process_has_no_interval_and_two_have_one_degree() -> None:
    one = ratio(constant("a", 1000), constant("b", 1100), "low1")
    assert one.time_ratio == pytest.approx(1.1)
    assert one.interval == (0.0, math.inf)
    two = ratio(constant("a", 1000, 1000), constant("b", 1100, 1200), "low1")
    assert two.replicates == 2
    spread = math.log(1.2 / 1.1) / 2
    assert math.log(two.interval[1] / two.interval[0]) / 2 == pytest.approx(
        student_t_quantile(0.975, 1) * spread
    )


def test_only_common_replicates_count() -> None:
    base = from_turns("a", [turn(r, 0, [1000] * 5) for r in (0, 1, 2)])
    new = from_turns("b", [turn(r, 0, [2000] * 5) for r in (1, 2, 3)] + [turn(0, 0, [])])
    got = ratio(base, new, "low1")
    assert got.replicates == 2
    assert got.time_ratio == pytest.approx(2.0)
    nothing = ratio(base, from_turns("c", [turn(9, 0, [1])]), "low1")
    assert nothing.replicates == 0
    assert math.isnan(nothing.time_ratio)
    assert nothing.interval == (0.0, math.inf)


def test_processes_without_a_value_drop_out() -> None:
    assert combine([(0.1, 0.0), (math.nan, 0.0), (0.2, math.nan)]).replicates == 2


@given(seeds, st.sampled_from(NAMES), st.integers(2, 9))
@settings(max_examples=25, deadline=None)
def test_scaling_the_new_arm_scales_the_ratio(seed: int, name: str, factor: int) -> None:
    base, new = (measurement(seed=seed + i, replicates=3, turns=4, model=NOISY) for i in (0, 1))
    plain, big = ratio(base, new, name), ratio(base, scaled(new, factor), name)
    assert big.time_ratio == pytest.approx(factor * plain.time_ratio, rel=1e-6)
    assert big.interval == pytest.approx([factor * end for end in plain.interval], rel=1e-6)
    both = ratio(scaled(base, factor), scaled(new, factor), name)
    assert both.interval == pytest.approx(plain.interval, rel=1e-6)


@given(seeds, st.sampled_from(NAMES), st.integers(2, 8))
@settings(max_examples=25, deadline=None)
def test_swapping_the_arms_inverts_the_ratio(seed: int, name: str, replicates: int) -> None:
    base = measurement(seed=seed, replicates=replicates, turns=4, model=NOISY)
    new = measurement(seed=seed + 1, replicates=replicates, turns=4, per_turn=7, model=NOISY)
    there, back = ratio(base, new, name), ratio(new, base, name)
    assert back.time_ratio == pytest.approx(1 / there.time_ratio)
    low, high = there.interval
    assert back.interval == pytest.approx((1 / high, 1 / low))


@given(seeds, st.sampled_from(NAMES))
@settings(max_examples=15, deadline=None)
def test_the_order_of_records_does_not_matter(seed: int, name: str) -> None:
    base, new = (measurement(seed=seed + i, replicates=3, turns=4, model=NOISY) for i in (0, 1))
    turned = replace(new, turns=tuple(reversed(new.turns)))
    assert ratio(base, turned, name) == ratio(base, new, name)


@given(seeds, st.floats(0.5, 0.98))
@settings(max_examples=15, deadline=None)
def test_a_higher_level_is_wider(seed: int, level: float) -> None:
    base, new = (measurement(seed=seed + i, replicates=4, turns=4, model=NOISY) for i in (0, 1))
    narrow, wide = ratio(base, new, "low1", level), ratio(base, new, "low1", level + 0.01)
    assert wide.interval[0] < narrow.interval[0] < narrow.interval[1] < wide.interval[1]


def test_equal_sample_counts_are_compared() -> None:
    """Ten times the samples must not make identical code look faster."""
    fair, naive = [], []
    for seed in range(40):
        base = measurement(seed=seed, replicates=1, per_turn=5, sample_sd=0.1)
        new = measurement(seed=seed + 500, replicates=1, per_turn=50, sample_sd=0.1)
        fair.append(math.log(ratio(base, new, "low1").time_ratio))
        naive.append(math.log(absolute(new, "low1").value / absolute(base, "low1").value))
    error = np.std(fair) / math.sqrt(len(fair))
    assert abs(np.mean(fair)) < 3 * error
    assert np.mean(naive) < -3 * error


def mean_log_ratio(arms: Sequence[ProcessData]) -> float:
    base, new = (math.log(data.samples.mean()) for data in arms)
    return new - base


def test_agreeing_processes_do_not_make_a_tiny_interval() -> None:
    """Means that agree to the digit by chance, while turns differ by 20 %."""
    levels = [900, 1000, 1100, 1200]
    base = from_turns("a", [turn(r, t, [w] * 5) for r in range(3) for t, w in enumerate(levels)])
    shifted = [950, 1100, 1050, 1300]
    new = from_turns("b", [turn(r, t, [w] * 5) for r in range(3) for t, w in enumerate(shifted)])
    pairs = [(process_data(base, r), process_data(new, r)) for r in range(3)]
    fit = combine([with_jackknife([mean_log_ratio], pair)[0] for pair in pairs])
    changes = np.log(shifted) - np.log(levels)
    over_turns = changes.std(ddof=1) / math.sqrt(len(levels))
    assert fit.std_error == pytest.approx(over_turns / math.sqrt(3), rel=0.15)


def test_shared_weather_does_not_lift_the_floor() -> None:
    """What slows both arms' neighbouring turns alike cancels in the jackknife too."""
    changes = {"weather_sd": 0.1, "sample_sd": 0.001, "replicates": 4}
    base, new = (measurement(seed=i, **changes) for i in (1, 2))  # type: ignore[arg-type]
    assert fit_ratio(base, new, "median").std_error < 0.001
    lo, hi = absolute(base, "median")[1:]
    assert math.log(hi / lo) > 0.02


def test_absolute_is_the_geometric_mean_over_processes() -> None:
    value, lo, hi = absolute(constant("a", 1000, 4000), "median")
    assert value == pytest.approx(2e-6)
    assert lo < value < hi
    assert absolute(constant("a", 1000), "low1") == pytest.approx((1e-6, 0.0, math.inf))
    assert math.isnan(absolute(from_turns("a", []), "low1").value)


def test_p_value_agrees_with_the_interval() -> None:
    for seed in range(20):
        base, new = (measurement(seed=2 * seed + i, turns=4, model=NOISY) for i in (0, 1))
        fit = fit_ratio(base, new, "low1")
        low, high = fit.interval(1 - fit.p_value())
        assert min(abs(low - 1), abs(high - 1)) == pytest.approx(0, abs=1e-9)


def test_an_unknown_estimator_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no estimator named 'best'"):
        ratio(constant("a", 1), constant("b", 1), "best")


def test_the_jackknife_holds_the_samples_a_few_times_and_not_once_a_turn() -> None:
    base, new = (measurement(name, replicates=2, turns=80, per_turn=100) for name in "ab")
    once = 2 * 5 * 8 * 80 * 100  # two arms, five arrays, of one process
    fit_ratio(base, new, "floor")  # numpy itself is loaded
    tracemalloc.start()
    try:
        fit_ratio(base, new, "floor")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * once
