"""Estimators on pairs: planted differences come back, and shared noise cancels where it should."""

from __future__ import annotations

import math

import numpy as np
import pytest
from aa_pairs import ESTIMATORS, PairEstimator, jackknife_variance

TRUTH = math.log(1.05)
ON_PAIRS = [name for name in ESTIMATORS if name.startswith("pair-")]


def planted(seed: int, shared: float = 0.0, own: float = 0.01, pairs: int = 60):
    """Pairs 5 % apart, with noise that both calls share and noise of their own."""
    chance = np.random.default_rng(seed)
    common = chance.normal(0.0, shared, pairs)
    base = 0.03 * np.exp(common + chance.normal(0.0, own, pairs))
    new = 0.03 * 1.05 * np.exp(common + chance.normal(0.0, own, pairs))
    return base, new


def spread(name: str, **noise: float) -> float:
    found = [ESTIMATORS[name](*planted(seed, **noise)) for seed in range(60)]
    return float(np.sqrt(np.mean((np.asarray(found) - TRUTH) ** 2)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_planted_difference_comes_back(name: str) -> None:
    base, new = planted(0, own=0.0)
    assert ESTIMATORS[name](base, new) == pytest.approx(TRUTH)
    assert ESTIMATORS[name](new, base) == pytest.approx(-TRUTH)
    assert spread(name) < 0.01


@pytest.mark.parametrize("name", ON_PAIRS)
def test_what_slows_both_calls_of_a_pair_cancels(name: str) -> None:
    assert spread(name, shared=0.3) < 0.6 * spread("medians", shared=0.3)


@pytest.mark.parametrize("name", ["pair-median", "pair-middle", "pair-centre"])
def test_a_few_wild_pairs_do_not_move_it(name: str) -> None:
    base, new = planted(1)
    wild = new.copy()
    wild[:3] *= 20.0
    assert abs(ESTIMATORS[name](base, wild) - ESTIMATORS[name](base, new)) < 0.005


def test_quiet_pairs_are_those_with_the_lowest_sum() -> None:
    base = np.asarray([1.0, 1.0, 5.0, 5.0])
    new = np.asarray([1.1, 1.1, 9.0, 9.0])
    assert ESTIMATORS["pair-quiet"](base, new) == pytest.approx(math.log(1.1))
    assert ESTIMATORS["pair-quiet-median"](base, new) == pytest.approx(math.log(1.1))


def test_the_middle_half_leaves_out_a_quarter_at_either_end() -> None:
    logs = np.asarray([-9.0, 0.1, 0.3, 7.0])
    assert ESTIMATORS["pair-middle"](np.ones(4), np.exp(logs)) == pytest.approx(0.2)


def test_low_means_take_their_share_but_three_at_least() -> None:
    base, new = np.arange(1.0, 41.0), 2.0 * np.arange(1.0, 41.0)
    new[:3] = 1.0  # the fastest three; the next are 8, 10, ...
    assert ESTIMATORS["floor"](base, new) == pytest.approx(math.log(1.0 / 2.0))
    lowest = [1.0, 1.0, 1.0, 8.0]
    assert ESTIMATORS["low10"](base, new) == pytest.approx(math.log(np.mean(lowest) / 2.5))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_gives_nan(name: str) -> None:
    assert math.isnan(ESTIMATORS[name](np.zeros(0), np.zeros(0)))


def test_the_jackknife_leaves_out_whole_turns() -> None:
    def mean(base, new) -> float:
        return float(np.log(new / base).mean())

    estimator: PairEstimator = mean
    base, new = planted(2, pairs=40)
    logs = np.log(new / base)
    single = jackknife_variance(estimator, base, new, np.arange(40))
    assert single == pytest.approx(logs.var(ddof=1) / 40)  # exact for a mean
    turns = np.repeat(np.arange(10), 4)
    means = logs.reshape(10, 4).mean(axis=1)
    assert jackknife_variance(estimator, base, new, turns) == pytest.approx(means.var(ddof=1) / 10)
    assert math.isnan(jackknife_variance(estimator, base, new, np.zeros(40, dtype=np.int64)))
