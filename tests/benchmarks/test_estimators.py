"""The estimators that compete with those of `stats`."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from aa_estimators import (
    COMPETING,
    expected_order_statistic,
    expected_ranks_of_minima,
    process_ratio,
)
from aa_peers import mann_whitney
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stats.synthetic import from_turns, measurement, turn
from torchstone.stats import ESTIMATORS, ProcessData, process_data

FLOORS = ("min", "p05", "low5", "turn-min-median", "turn-min-low")
few = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8).map(sorted).map(np.asarray)
groups = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(sorted), min_size=1, max_size=3
)


def one_process(*turns: list[int]) -> ProcessData:
    return process_data(from_turns("a", [turn(0, i, list(t)) for i, t in enumerate(turns)]), 0)


def test_known_values() -> None:
    data = one_process([10, 40, 30], [20, 50, 60], [15, 90, 95])
    in_ns = {name: COMPETING[name](data) * 1e9 for name in COMPETING}
    assert in_ns["min"] == pytest.approx(10)
    assert in_ns["low1"] == in_ns["low5"] == pytest.approx(15)
    assert in_ns["turn-min-median"] == in_ns["turn-min-low"] == pytest.approx(15)
    assert in_ns["median"] == in_ns["gated"] == pytest.approx(40)
    assert in_ns["mean"] == pytest.approx(410 / 9)
    assert in_ns["p05"] == pytest.approx(12)


def test_gate_keeps_only_samples_between_two_quiet_probes() -> None:
    quiet, loud = [100_000] * 6, [100_000, 104_000, 100_000]
    made = from_turns("a", [turn(0, 0, [10, 11, 12, 13, 14], quiet), turn(0, 1, [90, 91], loud)])
    assert COMPETING["gated"](process_data(made, 0)) == pytest.approx(12e-9)
    four = from_turns("a", [turn(0, 0, [10, 11, 12, 13], quiet[:5]), turn(0, 1, [90], loud[:2])])
    assert math.isnan(COMPETING["gated"](process_data(four, 0)))
    without = from_turns("a", [turn(0, 0, [5] * 8, [], probe_every=0)])
    assert math.isnan(COMPETING["gated"](process_data(without, 0)))


@pytest.mark.parametrize("name", FLOORS)
def test_counting_as_n_removes_the_advantage_of_more_samples(name: str) -> None:
    """Pruned to n, many samples give what n samples give."""
    thinned, few = [], []
    for seed in range(60):
        many_data = process_data(measurement(seed=seed, per_turn=60, sample_sd=0.1), 0)
        few_data = process_data(measurement(seed=1000 + seed, per_turn=6, sample_sd=0.1), 0)
        thinned.append(COMPETING[name](many_data, few_data.samples.size))
        few.append(COMPETING[name](few_data))
    assert abs(np.mean(thinned) - np.mean(few)) < 3 * np.std(few) / math.sqrt(len(few))


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_estimates_lie_between_the_extremes(walls: list[int]) -> None:
    data = one_process(walls)
    low, high = data.samples.min(), data.samples.max()
    for name, estimator in COMPETING.items():
        for n in (None, 1, 7):
            value = estimator(data, n)
            if not math.isnan(value):
                assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9), (name, n)


def test_an_empty_process_has_no_value() -> None:
    empty = process_data(from_turns("a", []), 0)
    assert all(math.isnan(e(empty)) and math.isnan(e(empty, 5)) for e in COMPETING.values())


def test_every_estimator_of_ours_competes() -> None:
    aliases = {"floor", "typical"}
    assert ESTIMATORS.keys() - aliases <= COMPETING.keys()
    base, new = (process_data(measurement(seed=seed), 0) for seed in (1, 2))
    for name in COMPETING:
        log, variance = process_ratio(name, base, new)
        assert abs(log) < 0.1, name
        assert variance >= 0.0, name


@given(few, st.data())
@settings(max_examples=80, deadline=None)
def test_order_statistics_agree_with_all_subsets(samples: np.ndarray, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, samples.size))
    rank = data.draw(st.integers(1, n))
    wanted = np.mean([sorted(subset)[rank - 1] for subset in combinations(samples, n)])
    assert expected_order_statistic(samples, n, rank) == pytest.approx(wanted)


@given(groups, st.data())
@settings(max_examples=60, deadline=None)
def test_ranks_of_minima_agree_with_all_subsets(
    groups: list[list[int]], data: st.DataObject
) -> None:
    draws = [data.draw(st.integers(1, len(group))) for group in groups]
    rank = data.draw(st.integers(1, len(groups)))
    subsets = [list(combinations(g, n)) for g, n in zip(groups, draws, strict=True)]
    wanted = np.mean([sorted(min(kept) for kept in way)[rank - 1] for way in product(*subsets)])
    arrays = [np.asarray(group, float) for group in groups]
    assert expected_ranks_of_minima(arrays, draws, [rank]) == pytest.approx(wanted)


def test_values_that_are_all_alike_are_no_difference() -> None:
    assert mann_whitney([1.0, 1.0], [1.0]) == 1.0
    assert mann_whitney([1.0, 2.0, 3.0] * 9, [4.0, 5.0, 6.0] * 9) < 1e-6
