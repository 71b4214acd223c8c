"""The estimators of one process."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stats.synthetic import from_turns, measurement, turn
from torchstone.records import UsageError
from torchstone.stats import ESTIMATORS, ProcessData, find_estimator, low_1, process_data


def one_process(*turns: list[int]) -> ProcessData:
    return process_data(from_turns("a", [turn(0, i, list(t)) for i, t in enumerate(turns)]), 0)


def test_samples_are_seconds_per_call() -> None:
    made = from_turns("a", [turn(0, 0, [10_000, 20_000]), turn(1, 0, [30_000])], loops=10)
    assert process_data(made, 0).samples.tolist() == pytest.approx([1e-6, 2e-6])
    assert process_data(made, 1).samples.tolist() == pytest.approx([3e-6])
    assert process_data(made, 2).samples.size == 0


def test_turns_keep_their_index_whatever_their_order_in_the_record() -> None:
    made = from_turns("a", [turn(0, 7, [3, 4]), turn(0, 2, [1])])
    data = process_data(made, 0)
    assert data.turn.tolist() == [2, 7, 7]
    assert (data.samples * 1e9).tolist() == pytest.approx([1, 3, 4])
    assert data.without(7).samples.size == 1


def test_each_sample_gets_the_probes_around_its_block() -> None:
    made = from_turns("a", [turn(0, 0, [5] * 5, [100, 200, 300], probe_every=2)])
    data = process_data(made, 0)
    before, after = data.probe_before * 1e9, data.probe_after * 1e9
    assert before.tolist() == pytest.approx([100, 100, 200, 200, 300])
    assert after[:4].tolist() == pytest.approx([200, 200, 300, 300])
    assert math.isnan(after[4]), "a block cut short has no probe behind it"


def test_no_probes_are_nan() -> None:
    made = from_turns("a", [turn(0, 0, [5] * 8, [], probe_every=0)])
    data = process_data(made, 0)
    assert np.isnan(data.probe_before).all()


def test_known_values() -> None:
    data = one_process([10, 40, 30], [20, 50, 60], [15, 90, 95])
    in_ns = {name: estimator(data) * 1e9 for name, estimator in ESTIMATORS.items()}
    assert in_ns["low1"] == in_ns["floor"] == pytest.approx(15)
    assert in_ns["median"] == in_ns["typical"] == in_ns["pairs"] == pytest.approx(40)


def test_the_floor_survives_bursts_where_the_median_does_not() -> None:
    quiet = process_data(measurement(seed=1, turns=12), 0)
    noisy = process_data(measurement(seed=1, turns=12, burst_share=0.8, burst_sd=0.8), 0)
    assert ESTIMATORS["low1"](noisy) == pytest.approx(ESTIMATORS["low1"](quiet), rel=0.01)
    assert ESTIMATORS["median"](noisy) > 1.2 * ESTIMATORS["median"](quiet)


def test_counting_as_n_removes_the_advantage_of_more_samples() -> None:
    """Pruned to n, many samples give what n samples give; unthinned, a lower floor."""
    plain, thinned, few = [], [], []
    for seed in range(60):
        many_data = process_data(measurement(seed=seed, per_turn=60, sample_sd=0.1), 0)
        few_data = process_data(measurement(seed=1000 + seed, per_turn=6, sample_sd=0.1), 0)
        plain.append(low_1(many_data))
        thinned.append(low_1(many_data, few_data.samples.size))
        few.append(low_1(few_data))
    spread = np.std(few) / math.sqrt(len(few))
    assert abs(np.mean(thinned) - np.mean(few)) < 3 * spread
    assert np.mean(few) - np.mean(plain) > 3 * spread, "the bias that n corrects"


@given(st.integers(0, 10**6), st.floats(0.1, 10.0))
@settings(max_examples=25, deadline=None)
def test_scale(seed: int, factor: float) -> None:
    data = process_data(measurement(seed=seed, replicates=1, burst_share=0.4), 0)
    scaled = replace(data, samples=data.samples * factor)
    for name, estimator in ESTIMATORS.items():
        wanted = factor * estimator(data)
        assert estimator(scaled) == pytest.approx(wanted, nan_ok=True), name
        assert estimator(scaled, 40) == pytest.approx(factor * estimator(data, 40), nan_ok=True)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_order_within_a_turn_does_not_matter(seed: int) -> None:
    data = process_data(measurement(seed=seed, replicates=1, burst_share=0.4), 0)
    order = np.argsort(data.turn + np.random.default_rng(seed).random(data.turn.size) / 2)
    shuffled = ProcessData(
        data.samples[order],
        data.turn[order],
        data.probe_before[order],
        data.probe_after[order],
        data.reading[order],
    )
    for name, estimator in ESTIMATORS.items():
        assert estimator(shuffled) == pytest.approx(estimator(data), nan_ok=True), name
        assert estimator(shuffled, 50) == pytest.approx(estimator(data, 50), nan_ok=True), name


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_estimates_lie_between_the_extremes(walls: list[int]) -> None:
    data = one_process(walls)
    low, high = data.samples.min(), data.samples.max()
    for name, estimator in ESTIMATORS.items():
        for n in (None, 1, 7):
            value = estimator(data, n)
            if not math.isnan(value):
                assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9), (name, n)


def test_an_empty_process_has_no_value() -> None:
    empty = process_data(from_turns("a", []), 0)
    assert all(math.isnan(e(empty)) for e in ESTIMATORS.values())
    assert all(math.isnan(e(empty, 5)) for e in ESTIMATORS.values())


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_estimator("best")
    assert "best" in caught.value.message
    assert "low1" in caught.value.remedy
