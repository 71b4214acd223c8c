"""Changes between two runs: what is planted is found and blamed on the right side, nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from tests.stats.suite_cases import MIRROR, case, measured
from tests.stats.synthetic import clopper_pearson
from torchstone.records import CaseMetrics, Verdict
from torchstone.stats import (
    Change,
    Rules,
    change_floor,
    change_of,
    deciding_budget,
    evaluate,
    geometric_mean_speedup,
    mean_change,
    mean_floor,
)
from torchstone.stats.drift import FREEDOM_STEP, Error, error_of_sum, rounded_down

FLOOR = change_floor(0.005, 0.005)


def test_a_change_is_the_ratio_of_the_speed_ups_with_both_errors() -> None:
    found = change_of(case(log_speedup=0.3, error=0.03), case(log_speedup=0.1, error=0.04))
    assert found is not None
    assert found.error is not None
    ratio = found.ratio()
    assert ratio.value == pytest.approx(math.exp(-0.2))
    assert found.error.size == pytest.approx(0.05)
    # By hand: (9 + 16)**2 / (81 / 3 + 256 / 3) = 5.56, rounded down to eighths.
    assert found.error.freedom == pytest.approx(5.5)
    half = oracle.t.ppf(0.975, 5.5) * 0.05
    assert ratio.interval == pytest.approx((math.exp(-0.2 - half), math.exp(-0.2 + half)))
    assert found.p_value == pytest.approx(2 * oracle.t.sf(4.0, 5.5))


@given(measured, measured)
def test_swapping_the_runs_turns_the_change_round(one: CaseMetrics, other: CaseMetrics) -> None:
    there, back = change_of(one, other), change_of(other, one)
    assert there is not None
    assert back is not None
    assert there.log == -back.log
    assert there.p_value == back.p_value
    first, second = (evaluate([change], [FLOOR])[0].verdict for change in (there, back))
    assert first is MIRROR[second]


@given(measured, measured)
def test_the_interval_leaves_out_one_exactly_where_p_is_small(
    one: CaseMetrics, other: CaseMetrics
) -> None:
    change = change_of(one, other)
    assert change is not None
    ends, p = change.ratio().interval, change.p_value
    assert ends is not None
    assert p is not None
    if abs(p - 0.05) > 1e-6:
        assert (p < 0.05) == (not ends[0] <= 1.0 <= ends[1])


@given(st.floats(1e-6, 1.0), st.floats(1.0, 400.0))
def test_rounding_the_freedom_down_never_narrows_and_hardly_widens(size: float, df: float) -> None:
    exact = Error(size, df)
    rounded = rounded_down(exact)
    assert 0.0 <= exact.freedom * (1 + 1e-9) - rounded.freedom < FREEDOM_STEP * (1 + 1e-6) + 1e-6
    assert rounded.half_width(0.95) >= exact.half_width(0.95) * (1 - 1e-9)
    if df >= 3.0:
        assert rounded.half_width(0.95) < 1.027 * exact.half_width(0.95)


def test_a_case_that_was_looked_at_earlier_counts_with_a_wider_error() -> None:
    plain = change_of(case(), case())
    looked = change_of(case(), replace(case(), level=0.98))
    assert plain is not None
    assert looked is not None
    assert plain.error is not None
    assert looked.error is not None
    assert looked.error.size > 1.15 * plain.error.size


def test_what_cannot_be_known_is_not_made_up() -> None:
    assert change_of(case(log_speedup=None), case()) is None
    assert change_of(case(), case(speedup=math.inf)) is None
    single = change_of(case(), case(error=None, freedom=None))
    assert single is not None
    assert single.error is None
    assert single.ratio().interval is None
    assert single.p_value is None
    assert evaluate([single], [FLOOR])[0].verdict is Verdict.CANNOT_TELL
    # It is no part of the family that is corrected for, either.
    clear = Change(0.1, Error(0.018, 6.0))
    assert clear.p_value is not None
    assert 0.025 / 20 < clear.p_value < 0.05
    crowd = [clear, *[Change(0.5)] * 40]
    assert evaluate(crowd, [FLOOR] * 41)[0].verdict is Verdict.FASTER


@pytest.mark.parametrize(
    ("log", "error", "verdict"),
    [
        (0.0, 0.001, Verdict.SAME),
        (0.015, 0.0005, Verdict.FASTER),  # within the margin, and different beyond doubt
        (0.009, 0.0005, Verdict.SAME),  # less than half the margin, however well known
        (0.0, 0.05, Verdict.CANNOT_TELL),
        (0.05, 0.005, Verdict.FASTER),
        (-0.05, 0.005, Verdict.SLOWER),
        (-0.05, 0.04, Verdict.CANNOT_TELL),
        (-0.05, 0.022, Verdict.NOT_FASTER),  # up to 0.0038, by t at 6 degrees
        (0.05, 0.022, Verdict.NOT_SLOWER),
        (0.05, 0.0, Verdict.FASTER),
    ],
)
def test_verdicts(log: float, error: float, verdict: Verdict) -> None:
    (evaluated,) = evaluate([Change(log, Error(error, 6.0))], [FLOOR])
    assert evaluated.verdict is evaluated.alone is verdict


def test_an_effect_below_what_identical_arms_show_is_not_believed() -> None:
    change = Change(-0.03, Error(0.001, 6.0))
    rules = Rules(margin=0.01)
    assert evaluate([change], [0.02], rules)[0].verdict is Verdict.SLOWER
    assert evaluate([change], [0.04], rules)[0].verdict is Verdict.NOT_FASTER
    assert [evaluate([change], [f], rules)[0].least for f in (0.04, 0.0)] == [0.04, 0.005]
    assert change_floor(0.005, 0.005) == pytest.approx(0.00708, abs=1e-5)
    assert change_floor(0.03, 0.0) == pytest.approx(0.03)
    assert mean_floor([0.01, 0.01]) == pytest.approx(0.01)


def test_among_many_a_lonely_change_loses_its_verdict() -> None:
    change = Change(-0.05, Error(0.013, 6.0))
    assert change.p_value is not None
    assert 0.005 < change.p_value < 0.05
    crowd = [change, *(Change(0.0, Error(0.02, 6.0)) for _ in range(39))]
    evaluated = evaluate(crowd, [FLOOR] * 40)[0]
    assert (evaluated.alone, evaluated.verdict) == (Verdict.SLOWER, Verdict.NOT_FASTER)


def test_an_open_change_says_what_budget_would_decide() -> None:
    rules, error = Rules(), Error(0.02, 6.0)
    change = Change(0.0, error)
    (evaluated,) = evaluate([change], [FLOOR])
    # By hand: (2.447 + 0.906) * 0.02 = 0.067, 6.9 % of a change, against 2 %: 11.5 times as long.
    assert deciding_budget(change, evaluated, 20.0, rules) == 300.0
    assert deciding_budget(change, evaluated, 400.0, rules) is None  # more than an hour
    assert deciding_budget(Change(0.0), evaluated, 20.0, rules) is None
    assert deciding_budget(change, replace(evaluated, verdict=Verdict.SAME), 20.0, rules) is None
    assert deciding_budget(change, replace(evaluated, least=0.03), 20.0, rules) is None
    fine = Change(0.0, Error(0.005, 6.0))
    assert deciding_budget(fine, evaluated, 20.0, rules) is None  # this data could


@given(st.lists(st.tuples(measured, measured), min_size=1, max_size=8))
def test_the_mean_change_is_the_ratio_of_the_means(
    pairs: list[tuple[CaseMetrics, CaseMetrics]],
) -> None:
    found = mean_change([c for c in (change_of(*pair) for pair in pairs) if c is not None])
    assert found is not None
    means = [geometric_mean_speedup(cases).value for cases in zip(*pairs, strict=True)]
    assert means[0] is not None
    assert means[1] is not None
    assert math.exp(found.log) == pytest.approx(means[1] / means[0])
    assert found.error is not None


def test_the_mean_has_no_interval_where_one_case_has_no_error() -> None:
    found = mean_change([Change(0.1, Error(0.01, 3.0)), Change(0.2)])
    assert found is not None
    assert found.error is None
    assert mean_change([]) is None


def test_bad_rules_are_refused() -> None:
    for rules in ({"margin": 0.0}, {"q": 1.0}, {"level": 0.0}):
        with pytest.raises(ValueError, match="need margin"):
            Rules(**rules)


def simulated(
    rng: np.random.Generator, suites: int, cases: int, processes: int, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Log speed-ups' deviations from their truth and their estimated errors."""
    logs = rng.normal(0.0, error * math.sqrt(processes), (suites, cases, processes))
    return logs.mean(axis=2), logs.std(axis=2, ddof=1) / math.sqrt(processes)


def changes_of(base: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray], df: float):
    """The changes of each simulated suite, made as `change_of` makes them."""
    for means, sems, others, errors in zip(*base, *new, strict=True):
        yield [
            Change(b - a, rounded_down(error_of_sum([Error(s, df), Error(e, df)])))
            for a, s, b, e in zip(means, sems, others, errors, strict=True)
        ]


def test_false_discoveries_in_suites_without_any_change() -> None:
    """With nothing to find, every discovery is false: their rate is the share of suites with one.

    A small margin and no floor, so that neither hides what the statistics alone would do.
    """
    rng, suites = np.random.default_rng(7), 500
    base, new = (simulated(rng, suites, 40, 4, 0.004) for _ in range(2))
    rules = Rules(margin=1e-6)
    wrong = sum(
        any(
            one.verdict in (Verdict.FASTER, Verdict.SLOWER)
            for one in evaluate(found, [0.0] * 40, rules)
        )
        for found in changes_of(base, new, 3.0)
    )
    low, high = clopper_pearson(wrong, suites)
    assert low <= rules.q, f"{wrong} of {suites} suites"
    assert high > 0.005, "so few that the test looks at nothing"


def test_small_true_changes_lend_no_certainty_to_what_is_merely_noisy() -> None:
    """Most of a suite is a little faster, well measured and called `same`; the rest is unchanged
    and noisy. Whatever is called different among the rest is false."""
    rng, suites, wrong, called = np.random.default_rng(11), 300, 0, 0
    for _ in range(suites):
        small = [Change(rng.normal(0.006, 0.0015), Error(0.0015, 6.0)) for _ in range(32)]
        noisy = [Change(rng.normal(0.0, 0.03), Error(0.03, 200.0)) for _ in range(8)]
        evaluated = [one.verdict for one in evaluate([*small, *noisy], [FLOOR] * 40)]
        called += evaluated.count(Verdict.SAME)
        wrong += any(one in (Verdict.FASTER, Verdict.SLOWER) for one in evaluated[32:])
    assert called > 20 * suites  # the premise
    assert clopper_pearson(wrong, suites)[0] <= Rules().q, f"{wrong} of {suites} suites"


def test_intervals_of_cases_and_of_means_hold_the_truth() -> None:
    rng, suites = np.random.default_rng(8), 150
    base, new = (simulated(rng, suites, 20, 4, 0.01) for _ in range(2))
    held = total = means_held = 0
    for found in changes_of(base, new, 3.0):
        held += sum(_holds_one(change) for change in found)
        total += len(found)
        mean = mean_change(found)
        assert mean is not None
        means_held += _holds_one(mean)
    assert clopper_pearson(held, total, 0.999)[1] >= 0.95 <= held / total + 0.01
    assert clopper_pearson(means_held, suites, 0.999)[1] >= 0.95
    assert held / total < 0.985, "far too wide"


def _holds_one(change: Change) -> bool:
    ends = change.ratio().interval
    assert ends is not None
    return ends[0] <= 1.0 <= ends[1]
