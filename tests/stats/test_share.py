"""The interval of a share of samples."""

from __future__ import annotations

import random

import pytest

from torchstone.stats.drift import share_interval


def test_known_figures() -> None:
    # Wilson's interval as published tables give it.
    assert share_interval(10, 100) == pytest.approx((0.05523, 0.17437), abs=1e-5)
    assert share_interval(0, 20) == pytest.approx((0.0, 0.16113), abs=1e-5)
    assert share_interval(20, 20) == pytest.approx((0.83887, 1.0), abs=1e-5)


def test_nothing_seen_says_nothing() -> None:
    assert share_interval(0, 0) == (0.0, 1.0)


def test_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for part, whole in ((1, 7), (33, 1000), (999, 1000)):
        ours = share_interval(part, whole)
        theirs = stats.binomtest(part, whole).proportion_ci(method="wilson")
        assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_it_covers_the_true_share_about_as_often_as_it_says() -> None:
    chance = random.Random(3)
    tries, true, samples = 2000, 0.12, 300
    hits = 0
    for _ in range(tries):
        seen = sum(chance.random() < true for _ in range(samples))
        low, high = share_interval(seen, samples)
        hits += low <= true <= high
    assert 0.93 < hits / tries < 0.975
