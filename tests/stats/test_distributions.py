"""Our distributions against scipy's, over wide ranges."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import special

from torchstone.stats.estimators import (
    normal_cdf,
    normal_quantile,
    student_t_cdf,
    student_t_quantile,
)

RELATIVE = 1e-9
degrees = st.floats(-0.3, 5.0).map(lambda e: 10.0**e)
tails = st.floats(-60.0, math.log10(0.5)).map(lambda e: 10.0**e)


def close(ours: float, theirs: float, absolute: float = 1e-290) -> bool:
    return math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=absolute)


@given(st.floats(-200.0, 200.0), degrees)
@settings(max_examples=100, deadline=None)
def test_student_cdf(t: float, df: float) -> None:
    assert close(student_t_cdf(t, df), float(special.stdtr(df, t)))


@given(tails, degrees, st.booleans())
@example(0.025, 1.0, False)
@example(0.025, 2.0, True)
@settings(max_examples=100, deadline=None)
def test_student_quantile(tail: float, df: float, upper: bool) -> None:
    p = 1.0 - tail if upper else tail
    assume(p < 1.0)
    theirs = float(special.stdtrit(df, p))
    # The oracle itself inverts poorly in some corners: evaluate it by the cdf it came from.
    assume(close(float(special.stdtr(df, -abs(theirs))), min(p, 1.0 - p)))
    # Near the centre the oracle is exact only to the last bit of p: see the closed form below.
    assert close(student_t_quantile(p, df), theirs, absolute=1e-12)


@given(st.floats(1e-3, 0.5, exclude_min=True))
@example(0.49999999999999994)
@settings(max_examples=100, deadline=None)
def test_student_quantile_of_one_degree_is_a_tangent(p: float) -> None:
    assert close(student_t_quantile(p, 1.0), math.tan(math.pi * (p - 0.5)))


@given(tails, degrees)
@settings(max_examples=100, deadline=None)
def test_student_quantile_inverts_cdf(tail: float, df: float) -> None:
    assert math.isclose(student_t_cdf(student_t_quantile(tail, df), df), tail, rel_tol=1e-9)


@pytest.mark.parametrize("df", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("p", [0.9, 0.975, 0.995])
def test_student_quantile_at_common_points(df: int, p: float) -> None:
    assert close(student_t_quantile(p, df), float(special.stdtrit(df, p)))


@given(st.floats(1e-300, 1.0, exclude_max=True))
@settings(max_examples=100, deadline=None)
def test_normal(p: float) -> None:
    theirs = float(special.ndtri(p))
    assert close(normal_quantile(p), theirs, absolute=1e-15)
    assert close(normal_cdf(theirs), float(special.ndtr(theirs)))


def test_infinite_degrees_of_freedom_are_normal() -> None:
    assert student_t_cdf(1.3, math.inf) == normal_cdf(1.3)
    assert student_t_quantile(0.975, math.inf) == normal_quantile(0.975)


def test_ends() -> None:
    assert normal_quantile(0.0) == -math.inf
    assert normal_quantile(1.0) == math.inf
    assert student_t_quantile(0.0, 3) == -math.inf
    assert student_t_quantile(1.0, 3) == math.inf
    assert student_t_quantile(0.5, 3) == 0.0
    assert student_t_cdf(-math.inf, 3) == 0.0
    assert student_t_cdf(math.inf, 3) == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: normal_quantile(1.5),
        lambda: student_t_quantile(-0.1, 3),
        lambda: student_t_cdf(0.0, 0.0),
        lambda: student_t_quantile(math.nan, 3),
    ],
)
def test_nonsense_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        call()
