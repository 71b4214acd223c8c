"""Steps are found where they are; spikes, drift and correlated noise are none."""

from __future__ import annotations

import numpy as np
import pytest

from torchstone.stats.changepoints import calibrate, find_changes, level_of, scan

N, TRIALS = 100, 200


def noise(kind: str, lot: np.random.Generator, trials: int = TRIALS) -> list[np.ndarray]:
    plain = lot.normal(size=(trials, N))
    if kind == "log-normal":
        plain = np.exp(plain)
    elif kind == "correlated":
        for place in range(1, N):
            plain[:, place] = 0.5 * plain[:, place - 1] + plain[:, place] * np.sqrt(0.75)
    elif kind == "spiky":
        plain += (lot.random((trials, N)) < 0.05) * lot.exponential(10, size=(trials, N))
    elif kind == "drifting":
        plain += 2 * np.linspace(-0.5, 0.5, N)
    elif kind == "bimodal":
        plain = 0.25 * plain + np.where(lot.random((trials, N)) < 0.5, 1, -1)
    return list(plain + 100)


@pytest.mark.parametrize(
    "kind", ["normal", "log-normal", "correlated", "spiky", "drifting", "bimodal"]
)
def test_noise_is_no_change(kind: str) -> None:
    """At most 2 % are meant; of 200 series up to 9 are then likely enough (one in 50)."""
    flagged = sum(bool(places) for places in find_changes(noise(kind, np.random.default_rng(1))))
    assert flagged <= 9


def test_steps_are_found_where_they_are() -> None:
    lot = np.random.default_rng(2)
    many, places = noise("normal", lot), lot.integers(10, N - 10, size=TRIALS)
    for values, place in zip(many, places, strict=True):
        values[place:] += 3
    found = find_changes(many)
    near = [any(abs(one - p) <= 2 for one in f) for f, p in zip(found, places, strict=True)]
    assert sum(near) >= 0.93 * TRIALS


def test_intervals_hold_the_true_size() -> None:
    lot = np.random.default_rng(3)
    held = []
    for values in noise("normal", lot):
        values[60:] += 3
        level = level_of(values, 0, 60, N)
        held.append(level.interval[0] <= 1.03 <= level.interval[1])
    assert sum(held) >= 0.9 * TRIALS


def test_a_level_that_comes_and_goes_has_two_changes() -> None:
    values = np.random.default_rng(4).normal(size=60) + 100
    values[20:30] += 20
    assert find_changes([values]) == [(20, 30)]


def test_two_values_are_a_spike_and_four_are_not() -> None:
    for length, expected in ((2, []), (6, [30, 36])):
        values = np.random.default_rng(5).normal(size=80) + 100
        values[30 : 30 + length] += 40
        assert list(find_changes([values])[0]) == expected


def test_steady_values_that_step_are_found() -> None:
    values = np.array([5.0] * 20 + [6.0] * 20)
    assert find_changes([values]) == [(20,)]
    level = level_of(values, 0, 20, 40)
    assert level.ratio == pytest.approx(1.2)
    assert find_changes([np.full(40, 5.0)]) == [()]


def test_short_and_empty_series_have_none() -> None:
    assert find_changes([np.array([1.0, 2.0]), np.array([])]) == [(), ()]


def test_zero_and_negative_levels_have_a_size() -> None:
    values = np.array([0.0] * 20 + [4.0] * 20)
    assert level_of(values, 0, 20, 40).ratio == np.inf
    values = np.array([-2.0] * 20 + [-1.0] * 20)
    assert level_of(values, 0, 20, 40).ratio == pytest.approx(1.5)


@pytest.mark.slow
def test_thresholds_are_raised_for_noise_that_looks_like_steps() -> None:
    """Modes that stay for a while: the usual thresholds flag too many, the calibrated ones few."""
    lot = np.random.default_rng(6)
    many = []
    for _ in range(80):
        modes = np.cumsum(lot.random(150) < 0.08) % 2
        many.append(100 + 5.0 * modes + lot.normal(size=150))
    looked = scan(many)
    tried = calibrate(many, lambda row: (), lambda some, f: [bool(x) for x in some.changes(f)])
    assert tried.factor > 1.0
    assert tried.rate is not None
    assert tried.tested == 400
    usual = sum(map(bool, looked.changes()))
    assert sum(map(bool, looked.changes(tried.factor))) < usual


def test_calibration_of_plain_noise_keeps_the_thresholds() -> None:
    many = noise("normal", np.random.default_rng(7), 60)
    tried = calibrate(many, lambda row: (), lambda some, f: [bool(x) for x in some.changes(f)])
    assert tried.factor == 1.0
    assert tried.rate is not None
    assert tried.rate <= 0.02
    assert tried.interval[0] <= tried.rate <= tried.interval[1]
