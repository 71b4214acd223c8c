"""Preset looks and what they spend."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.records import Estimate
from torchstone.stats import alpha_at, looks, stop


def estimate(low: float, high: float) -> Estimate:
    return Estimate("min", 1.0, (low, high), 0.95, 5)


def test_the_usual_looks() -> None:
    assert looks(1) == (1,)
    assert looks(4) == (4,)
    assert looks(5) == (3, 5)
    assert looks(10) == (3, 5, 8, 10)


@given(st.integers(1, 200), st.floats(0.001, 0.2))
def test_looks_grow_and_keep_alpha(replicates: int, alpha: float) -> None:
    at = looks(replicates)
    assert at[-1] == replicates
    assert list(at) == sorted(set(at))
    assert all(look >= 3 for look in at[:-1])
    spent = [alpha_at(i, at, alpha) for i in range(len(at))]
    assert sum(spent) <= alpha * (1 + 1e-12)
    assert spent[-1] >= 0.7 * alpha
    assert all(s > 0 for s in spent)


def test_impossible_looks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one replicate"):
        looks(0)
    with pytest.raises(ValueError, match="no look 2"):
        alpha_at(2, (3, 5))
    with pytest.raises(ValueError, match="no look -1"):
        alpha_at(-1, (3, 5))


def test_stop_needs_every_interval_within() -> None:
    good, bad = estimate(1.05 / 1.0099, 1.05 * 1.0099), estimate(0.98, 1.02)
    assert stop([good], 0.01)
    assert not stop([good, bad], 0.01)
    assert stop([good, bad], 0.03)


def test_nothing_is_never_precise() -> None:
    assert not stop([], 0.5)
    assert not stop([estimate(0.0, math.inf)], 10.0)
    assert not stop([estimate(math.nan, math.nan)], 10.0)


@given(st.floats(1e-4, 0.5), st.floats(0.2, 5.0))
def test_stop_looks_at_width_not_place(within: float, place: float) -> None:
    assert stop([estimate(place / (1 + within * 0.999), place * (1 + within * 0.999))], within)
    assert not stop([estimate(place / (1 + within * 1.001), place * (1 + within * 1.001))], within)
