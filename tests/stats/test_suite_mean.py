"""The geometric mean speed-up, and whether its interval keeps its promise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from tests.stats.suite_cases import case, many, measured
from torchstone import stats
from torchstone.records import CaseMetrics, Mean, Outcome, Verdict
from torchstone.stats import geometric_mean_speedup


def test_the_mean_of_one_case_has_that_cases_interval() -> None:
    mean = geometric_mean_speedup([case(log_speedup=0.2, error=0.03, freedom=4.0)])
    half = oracle.t.ppf(0.975, 4) * 0.03
    assert mean.value == pytest.approx(math.exp(0.2))
    assert mean.interval == pytest.approx((math.exp(0.2 - half), math.exp(0.2 + half)))
    assert (mean.n, mean.of, mean.level) == (1, 1, 0.95)


def test_equal_errors_add_their_freedoms() -> None:
    """Welch and Satterthwaite of n equal errors: n times the freedom, error over sqrt(n)."""
    mean = geometric_mean_speedup([case(log_speedup=0.0, error=0.02, freedom=3.0)] * 9, 0.9)
    half = oracle.t.ppf(0.95, 27) * 0.02 / 3
    assert mean.interval == pytest.approx((math.exp(-half), math.exp(half)))


def test_two_cases_against_welchs_test() -> None:
    """The mean of log a and log b is half of what Welch's interval says of log a - log(1/b)."""
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.3, 0.05, 5), rng.normal(-0.1, 0.01, 4)
    welch = oracle.ttest_ind(first, -second, equal_var=False).confidence_interval(0.95)
    cases = [
        case(log_speedup=float(x.mean()), error=float(oracle.sem(x)), freedom=len(x) - 1.0)
        for x in (first, second)
    ]
    mean = geometric_mean_speedup(cases)
    assert mean.interval is not None
    assert np.log(mean.interval) * 2 == pytest.approx([welch.low, welch.high])


@given(st.lists(measured, min_size=1, max_size=15), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_mean_against_scipy(cases: list[CaseMetrics], level: float) -> None:
    mean = geometric_mean_speedup(cases, level)
    speedups = np.array([c.speedup for c in cases])
    squares = np.array([c.log_error for c in cases]) ** 2
    freedom = squares.sum() ** 2 / (squares**2 / np.array([c.log_freedom for c in cases])).sum()
    scale = math.sqrt(squares.sum()) / len(cases)
    low, high = oracle.t.interval(level, freedom, np.log(speedups).mean(), scale)
    assert mean.value == pytest.approx(oracle.gmean(speedups))
    assert mean.interval is not None
    assert np.log(mean.interval) == pytest.approx([low, high], rel=1e-6, abs=1e-9)
    assert min(c.log_freedom or 0 for c in cases) <= freedom * (1 + 1e-9)


@given(st.lists(measured, min_size=1, max_size=8))
def test_swapping_base_and_new_turns_the_mean_over(cases: list[CaseMetrics]) -> None:
    forth = geometric_mean_speedup(cases)
    back = geometric_mean_speedup(
        [
            case(log_speedup=-math.log(c.speedup or 1), error=c.log_error, freedom=c.log_freedom)
            for c in cases
        ]
    )
    assert forth.value is not None
    assert forth.interval is not None
    assert back.value == pytest.approx(1 / forth.value)
    assert back.interval == pytest.approx((1 / forth.interval[1], 1 / forth.interval[0]))


def test_only_passing_cases_with_a_speedup_are_in_the_mean() -> None:
    cases = [
        case(log_speedup=math.log(2.0)),
        case(log_speedup=math.log(8.0)),
        case(log_speedup=None),  # withheld
        case(log_speedup=5.0, outcome=Outcome.WRONG_ANSWER),
        case(log_speedup=5.0, outcome=Outcome.NONDETERMINISTIC),
        case(outcome=Outcome.NOT_RUN),
    ]
    mean = geometric_mean_speedup(cases)
    assert (mean.value, mean.n, mean.of) == (pytest.approx(4.0), 2, 3)
    assert geometric_mean_speedup([]) == Mean(None, 0, 0)
    assert geometric_mean_speedup(cases[2:3]) == Mean(None, 0, 1)


@pytest.mark.parametrize(
    ("error", "freedom"),
    [(None, 3.0), (0.1, None), (math.nan, 3.0), (math.inf, 3.0), (0.1, 0.0), (-0.1, 3.0)],
)
def test_a_case_without_a_measuring_error_leaves_no_interval(
    error: float | None, freedom: float | None
) -> None:
    mean = geometric_mean_speedup([case(), case(error=error, freedom=freedom)])
    assert mean.value == pytest.approx(math.exp(0.1))
    assert mean.n == 2
    assert mean.interval is None


def test_extreme_errors_neither_vanish_nor_overflow() -> None:
    tiny = geometric_mean_speedup([case(log_speedup=0.0, error=1e-90)] * 2)
    assert tiny.interval is not None
    assert tiny.interval[0] <= 1.0 <= tiny.interval[1]
    exact = geometric_mean_speedup([case(log_speedup=0.5, error=0.0)] * 2)
    assert exact.interval == pytest.approx((math.exp(0.5),) * 2)
    huge = geometric_mean_speedup([case(log_speedup=0.0, error=1e4, freedom=1.0)])
    assert huge.interval == (0.0, math.inf)
    known = geometric_mean_speedup([case(log_speedup=0.0, error=0.1, freedom=math.inf)])
    assert known.interval == pytest.approx(np.exp(np.array([-1, 1]) * 0.1 * oracle.norm.ppf(0.975)))
    with pytest.raises(ValueError, match="level"):
        geometric_mean_speedup([case()], 1.0)


def coverage(seed: int, trials: int, freedom: int, spread: float) -> float:
    """How often the interval holds the true mean of a fixed set of models, measured again."""
    rng = np.random.default_rng(seed)
    models = 12
    truth = rng.normal(0.3, 0.4, models)  # the models differ much more than the errors
    sigma = 0.01 * np.exp(rng.normal(0.0, spread, models))
    replicates = rng.normal(truth, sigma, (trials, freedom + 1, models))
    means, sems = replicates.mean(axis=1), oracle.sem(replicates, axis=1)
    held = 0
    for mean, sem in zip(means, sems, strict=True):
        interval = geometric_mean_speedup(many(mean, sem, freedom)).interval
        assert interval is not None
        held += interval[0] <= math.exp(truth.mean()) <= interval[1]
    return held / trials


@pytest.mark.parametrize(("freedom", "spread"), [(3, 0.0), (3, 1.0), (7, 0.5)])
def test_the_interval_holds_the_truth_as_often_as_it_says(freedom: int, spread: float) -> None:
    """Also with 4 processes a case and errors that differ tenfold between models."""
    found = coverage(7, 3000, freedom, spread)
    print(f"\ncoverage {found:.4f}")
    assert 0.935 <= found <= 0.975


def stopped_early(
    rng: np.random.Generator, trials: int, within: float
) -> list[tuple[list[CaseMetrics], list[CaseMetrics]]]:
    """Suites of identical arms that stop when precise: as they are, and without their level."""
    looks, models, sigma = stats.looks(8), 12, 0.004
    alphas = [stats.alpha_at(i, looks) for i in range(len(looks))]
    quantiles = [float(oracle.t.isf(a / 2, k - 1)) for a, k in zip(alphas, looks, strict=True)]
    key, found = case().key, []
    for suite in rng.normal(0.0, sigma, (trials, models, looks[-1])):
        cases = []
        for row in suite:
            for look, k in enumerate(looks):
                sem = float(row[:k].std(ddof=1)) / math.sqrt(k)
                if quantiles[look] * sem <= math.log1p(within):
                    break
            figures = {
                "speedup": math.exp(row[:k].mean()),
                "log_error": sem,
                "log_freedom": k - 1.0,
            }
            cases.append(CaseMetrics(key, Outcome.OK, level=1 - alphas[look], **figures))
        found.append((cases, [replace(one, level=0.95) for one in cases]))
    return found


def test_stopping_when_precise_does_not_spoil_the_interval() -> None:
    suites = stopped_early(np.random.default_rng(2), 800, within=0.01)
    held = [0, 0]
    false = [0, 0]
    for pair in suites:
        for i, cases in enumerate(pair):
            interval = geometric_mean_speedup(cases).interval
            assert interval is not None
            held[i] += interval[0] <= 1.0 <= interval[1]
            false[i] += sum((stats.p_value(one) or 0.0) <= 0.05 for one in cases)
    assert held[0] / 800 >= 0.94
    assert false[0] / (800 * 12) <= 0.05
    # The contrast: the same data, as if nobody had looked before.
    assert held[1] / 800 < 0.935
    assert false[1] / (800 * 12) > 0.06


def test_a_case_counts_with_the_error_of_its_own_interval() -> None:
    one = case(log_speedup=0.2, error=0.03, freedom=4.0, level=0.99375)
    half = float(oracle.t.ppf(0.5 + 0.5 * 0.99375, 4)) * 0.03
    assert geometric_mean_speedup([one]).interval == pytest.approx(
        (math.exp(0.2 - half), math.exp(0.2 + half))
    )
    p = 2 * float(oracle.t.sf(0.2 / 0.03, 4))
    assert stats.p_value(one) == pytest.approx(8 * p)
    lax = geometric_mean_speedup([case(log_speedup=0.2, error=0.03, freedom=4.0, level=0.5)])
    assert lax == geometric_mean_speedup([case(log_speedup=0.2, error=0.03, freedom=4.0)])


def test_an_interval_over_models_would_say_something_else() -> None:
    """The contrast: taken as a sample of models, the same cases give a far wider interval."""
    rng = np.random.default_rng(1)
    cases = [case(log_speedup=x, error=0.01) for x in rng.normal(0.3, 0.4, 12).tolist()]
    fixed = geometric_mean_speedup(cases).interval
    sampled = stats.geometric_mean([c.speedup or 1.0 for c in cases])
    assert fixed is not None
    assert math.log(sampled.hi / sampled.lo) > 20 * math.log(fixed[1] / fixed[0])


@pytest.mark.parametrize("freedom", [5e-324, 1e-9, 0.5])
def test_a_record_with_less_than_one_degree_of_freedom_is_not_believed(freedom: float) -> None:
    (summary,) = stats.summarise([case(log_speedup=0.1, error=0.01, freedom=freedom)])
    assert summary.speedup is not None
    assert summary.speedup.interval is None


WIDE = case(log_speedup=-2.4, error=0.9, freedom=1.0, interval=(0.00178, 4.40))
"""A case of two processes as it was once measured: it made a suite's mean 0.38."""


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_case_known_to_no_better_than_a_factor_is_in_no_mean(verdict: Verdict) -> None:
    known = case(log_speedup=0.51, error=0.02, freedom=3.0, interval=(1.60, 1.74))
    mean = geometric_mean_speedup([replace(WIDE, verdict=verdict), known])
    assert mean == replace(geometric_mean_speedup([known]), of=2)
    assert geometric_mean_speedup([WIDE]) == Mean(None, 0, 1)


@pytest.mark.parametrize(("interval", "wide"), [((0.51, 2.0), False), ((0.49, 2.0), True)])
def test_the_width_alone_decides_wherever_the_interval_lies(
    interval: tuple[float, float], wide: bool
) -> None:
    for factor in (0.01, 1.0, 100.0):
        low, high = (end * factor for end in interval)
        assert case(interval=(low, high)).too_wide is wide
    assert not case(interval=(0.0, math.inf), error=None).too_wide  # one process has no width


def test_leaving_wide_cases_out_does_not_bias_the_mean() -> None:
    """Half of the cases are known badly; over many suites the mean stays at the truth."""
    rng = np.random.default_rng(11)
    logs = []
    for _ in range(300):
        cases = []
        for error in (0.02, 0.02, 0.02, 0.5, 0.5, 0.5):
            log, half = rng.normal(0.1, error), error * rng.uniform(0.5, 4.0)
            ends = math.exp(log - half), math.exp(log + half)
            cases.append(case(log_speedup=log, error=error, interval=ends))
        logs.append(math.log(geometric_mean_speedup(cases).value or math.nan))
    assert np.mean(logs) == pytest.approx(0.1, abs=3 * np.std(logs) / math.sqrt(len(logs)))
