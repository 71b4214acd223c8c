"""The expected order statistics, against the mean over all subsets."""

from __future__ import annotations

import tracemalloc
from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.stats.estimators import (
    _low_weights,
    expected_low_mean,
    rank_weights,
    smallest,
)

few = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8).map(sorted).map(np.asarray)


@given(few, st.data())
@settings(max_examples=80, deadline=None)
def test_agrees_with_all_subsets(samples: np.ndarray, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, samples.size))
    rank = data.draw(st.integers(1, n))
    kept = [sorted(subset) for subset in combinations(samples, n)]
    wanted = np.mean([s[rank - 1] for s in kept])
    assert rank_weights(samples.size, n, rank) @ samples == pytest.approx(wanted)
    wanted = np.mean([np.mean(s[:rank]) for s in kept])
    assert expected_low_mean(samples, n, rank) == pytest.approx(wanted)


def test_large_samples_neither_overflow_nor_drift() -> None:
    samples = np.arange(1.0, 20_001.0)
    # The expected minimum of n out of 1..N is (N + 1) / (n + 1).
    minimum = rank_weights(samples.size, 7_000, 1) @ samples
    assert minimum == pytest.approx(20_001 / 7_001, rel=1e-12)
    assert expected_low_mean(samples, 7_000, 3) == pytest.approx(2 * 20_001 / 7_001, rel=1e-12)


def exact_low_weights(size: int, n: int, lowest: int) -> list[float]:
    """Of i-1 smaller ones rank-1 are kept, of size-i larger ones n-rank: summed over the ranks."""
    return [
        sum(comb(i - 1, rank - 1) * comb(size - i, n - rank) for rank in range(1, lowest + 1))
        / comb(size, n)
        / lowest
        for i in range(1, size + 1)
    ]


@pytest.mark.parametrize(
    ("size", "n", "lowest"),
    [
        *(
            (size, n, k)
            for size in range(1, 9)
            for n in range(1, size + 1)
            for k in range(1, n + 1)
        ),
        (60, 37, 5),
        (500, 480, 5),
        (500, 20, 19),
        (200, 100, 50),
    ],
)
def test_low_weights_are_the_sum_of_the_ranks(size: int, n: int, lowest: int) -> None:
    found = _low_weights(size, n, lowest)
    wanted = np.asarray(exact_low_weights(size, n, lowest))
    assert found == pytest.approx(wanted[: found.size], rel=1e-12)
    assert wanted[found.size :].sum() < 1e-300


def test_samples_may_stand_in_any_order() -> None:
    samples = np.arange(1.0, 5001.0)
    mixed = np.random.default_rng(1).permutation(samples)
    assert expected_low_mean(mixed, 4000, 40) == expected_low_mean(samples, 4000, 40)
    assert smallest(mixed, 7).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert smallest(mixed, 5000).tolist() == samples.tolist()


def test_the_floor_of_very_many_samples_is_exact_and_nothing_of_it_is_kept() -> None:
    """One pass over the samples: a pass for each of the lowest 1 % took minutes and gigabytes."""
    size = 300_000
    samples = np.arange(1.0, size + 1.0)
    tracemalloc.start()
    try:
        for n in range(size - 40_000, size, 10_000):
            lowest = n // 100
            wanted = (lowest + 1) / 2 * (size + 1) / (n + 1)
            assert expected_low_mean(samples, n, lowest) == pytest.approx(wanted, rel=1e-11)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < samples.nbytes
    assert most < 20 * samples.nbytes


@given(few)
@settings(max_examples=50, deadline=None)
def test_minimum_falls_as_n_grows(samples: np.ndarray) -> None:
    minima = [expected_low_mean(samples, n, 1) for n in range(1, samples.size + 1)]
    assert all(a >= b * (1 - 1e-12) for a, b in pairwise(minima))
    assert minima[0] == pytest.approx(samples.mean())
    assert minima[-1] == samples[0]


@pytest.mark.parametrize(("n", "rank"), [(0, 1), (4, 1), (2, 3), (2, 0)])
def test_impossible_choices_are_refused(n: int, rank: int) -> None:
    with pytest.raises(ValueError, match="rank <= n <= size"):
        expected_low_mean(np.asarray([1.0, 2.0, 3.0]), n, rank)
