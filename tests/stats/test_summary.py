"""Figures over many comparisons."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from torchstone.stats import benjamini_hochberg, geometric_mean, holm

pvalues = st.lists(st.floats(0.0, 1.0), max_size=12)
ratios = st.lists(st.floats(0.05, 20.0), min_size=2, max_size=20)


def test_geometric_mean_by_hand() -> None:
    value, lo, hi = geometric_mean([0.5, 2.0], 0.95)
    assert value == pytest.approx(1.0)
    assert math.log(hi) == pytest.approx(12.706204736 * math.log(2.0))
    assert lo == pytest.approx(1 / hi)
    assert geometric_mean([1.5]) == pytest.approx((1.5, 0.0, math.inf))
    assert math.isnan(geometric_mean([]).value)
    with pytest.raises(ValueError, match="positive"):
        geometric_mean([1.0, 0.0])


@given(ratios, st.sampled_from([0.8, 0.95]))
@settings(max_examples=40, deadline=None)
def test_geometric_mean_against_scipy(values: list[float], level: float) -> None:
    got = geometric_mean(values, level)
    assert got.value == pytest.approx(oracle.gmean(values))
    logs = np.log(values)
    if logs.std() > 1e-9:
        wanted = oracle.t.interval(level, len(logs) - 1, logs.mean(), oracle.sem(logs))
        assert (got.lo, got.hi) == pytest.approx(np.exp(wanted).tolist())
    turned = geometric_mean([1 / v for v in values], level)
    assert turned.hi == pytest.approx(1 / got.lo)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([]) == ()


@given(pvalues)
@settings(max_examples=50, deadline=None)
def test_adjusted_values_keep_order_and_never_shrink(values: list[float]) -> None:
    for adjust in (holm, benjamini_hochberg):
        adjusted = adjust(values)
        assert all(a >= p or a == pytest.approx(p) for a, p in zip(adjusted, values, strict=True))
        assert all(a <= 1.0 for a in adjusted)
        by_p = [adjusted[i] for i in np.argsort(values, kind="stable")]
        assert by_p == sorted(by_p)
    assert all(
        h >= b or h == pytest.approx(b)
        for h, b in zip(holm(values), benjamini_hochberg(values), strict=True)
    )


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.data())
@settings(max_examples=50, deadline=None)
def test_holm_is_monotone(values: list[float], data: st.DataObject) -> None:
    """A smaller p-value anywhere makes no adjusted value larger."""
    where = data.draw(st.integers(0, len(values) - 1))
    smaller = list(values)
    smaller[where] *= data.draw(st.floats(0.0, 1.0))
    assert all(a <= b + 1e-12 for a, b in zip(holm(smaller), holm(values), strict=True))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_benjamini_hochberg_against_scipy(values: list[float]) -> None:
    wanted = oracle.false_discovery_control(values, method="bh")
    assert benjamini_hochberg(values) == pytest.approx(wanted.tolist())


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm([0.5, 1.5])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        benjamini_hochberg([math.nan])
