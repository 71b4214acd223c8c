"""The one rule of verdicts: total, symmetric, and never blunter where more is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stats.suite_cases import MIRROR
from torchstone.records import Comparison, Verdict
from torchstone.stats import (
    Change,
    by_interval,
    decide,
    evaluate,
    least_effect,
    logs_of,
    with_budget,
)
from torchstone.stats.compare import MOST_BUDGET_S, PLAIN_BUDGETS_S, needed_budget, turned
from torchstone.stats.drift import Error

MARGINS = (0.005, 0.02, 0.1)
centres, halves = st.integers(-30, 30), st.integers(0, 60) | st.just(math.inf)
floors = st.just(0) | st.integers(0, 30)
situations = st.builds(
    lambda margin, *sizes: (*(size / 20 * math.log1p(margin) for size in sizes), margin),
    st.sampled_from(MARGINS),
    centres,
    halves,
    floors,
).map(lambda found: (found[0], found[1], found[3], found[2]))
"""Centre, half-width, margin and floor. In twentieths of the margin, so that all the borders of the
rule, which lie about it, are met."""


def rule(centre: float, half: float, margin: float, floor: float) -> Verdict:
    """As an interval decides by itself: significant where it leaves out 0."""
    ends = (centre - half, centre + half)
    return decide(centre, ends, abs(centre) > half, margin, least_effect(floor, margin))


@settings(max_examples=150)
@given(situations)
def test_every_interval_has_the_verdict_that_its_words_say(
    situation: tuple[float, float, float, float],
) -> None:
    centre, half, margin, floor = situation
    verdict = rule(centre, half, margin, floor)
    low, high, limit = centre - half, centre + half, math.log1p(margin)
    least = math.log1p(max(floor, margin / 2))
    if verdict.different:
        assert abs(centre) > max(half, least)
        assert (centre < 0) == (verdict is Verdict.FASTER)
        return
    assert abs(centre) <= half or abs(centre) <= least
    # What is left says exactly which sides are excluded.
    assert (high <= limit) == verdict.excludes_slower
    assert (low >= -limit) == (verdict in (Verdict.SAME, Verdict.NOT_FASTER))
    assert verdict.undecided == (verdict is not Verdict.SAME)


@settings(max_examples=150)
@given(situations)
def test_swapping_the_arms_mirrors_the_verdict(
    situation: tuple[float, float, float, float],
) -> None:
    centre, half, margin, floor = situation
    there, back = (rule(sign * centre, half, margin, floor) for sign in (1, -1))
    assert back is MIRROR[there]


@settings(max_examples=150)
@given(situations, st.floats(0.0, 1.0))
def test_knowing_more_never_unsays_what_was_known(
    situation: tuple[float, float, float, float], share: float
) -> None:
    """A narrower interval about the same centre: a difference stays one, and no side that was
    excluded is opened again, unless by a difference."""
    centre, half, margin, floor = situation
    narrower = half * share if half < math.inf else share
    before, after = (rule(centre, h, margin, floor) for h in (half, narrower))
    if before.different or after.different:
        assert after.different
        assert not before.different or after is before
        return
    assert after.excludes_slower >= before.excludes_slower
    assert MIRROR[after].excludes_slower >= MIRROR[before].excludes_slower


def test_the_examples_of_the_rule() -> None:
    def seen(speedup: float, low: float, high: float) -> Verdict:
        ends = turned(logs_of((low, high)))
        return decide(-math.log(speedup), ends, not low <= 1.0 <= high, 0.02, 0.01)

    assert seen(1.04, 1.00, 1.08) is Verdict.NOT_SLOWER
    assert seen(1.02, 0.96, 1.09) is Verdict.CANNOT_TELL
    assert seen(1.14, 0.90, 1.45) is Verdict.CANNOT_TELL
    assert seen(1.01, 1.00, 1.03) is Verdict.NOT_SLOWER
    assert seen(0.69, 0.63, 0.75) is Verdict.SLOWER
    assert seen(0.97, 0.93, 1.01) is Verdict.NOT_FASTER


@pytest.mark.parametrize(("half", "many"), [(0.005, 40), (0.008, 1)])
def test_a_precise_small_change_is_one_in_a_suite_and_in_a_case(half: float, many: int) -> None:
    """-1.4 % +-0.5 % (a suite's mean) and -1.4 % +-0.8 % (a case): beyond the threshold of 1 % that
    is shown beside both, so both are slower."""
    freedom = 3.0 * many
    change = Change(math.log(0.986), Error(half / 3.2 if many == 1 else half / 2.0, freedom))
    (evaluated,) = evaluate([change], [0.0071])
    assert (evaluated.verdict, evaluated.least) == (Verdict.SLOWER, 0.01)


def test_intervals_without_ends_exclude_nothing() -> None:
    assert logs_of(None) == logs_of((0.0, math.inf)) == (-math.inf, math.inf)
    assert by_interval(logs_of((0.0, 1.0)), 0.02) is Verdict.NOT_SLOWER
    assert by_interval(logs_of((1.0, math.inf)), 0.02) is Verdict.NOT_FASTER
    assert by_interval(logs_of(None), 0.02) is Verdict.CANNOT_TELL


@given(st.floats(1.0, 600.0), st.floats(0.001, 0.5), st.floats(0.005, 0.1))
def test_the_budget_grows_with_the_square_of_what_is_to_be_gained(
    spent: float, detectable: float, margin: float
) -> None:
    exact = spent * (math.log1p(detectable) / math.log1p(margin)) ** 2
    needed = needed_budget(spent, detectable, margin, margin / 2)
    if exact > MOST_BUDGET_S:
        assert needed == math.inf
        return
    assert needed in PLAIN_BUDGETS_S
    assert needed >= exact
    lower = [plain for plain in PLAIN_BUDGETS_S if plain < needed]
    assert not lower or lower[-1] < exact


def comparison(verdict: Verdict, detectable: float | None, **changes: float) -> Comparison:
    made = Comparison("a", "b", verdict, "low1", reason="Why.", smallest_detectable=detectable)
    return Comparison(**{**vars(made), **changes})


def test_a_comparison_says_what_budget_would_decide() -> None:
    coarse = with_budget(comparison(Verdict.CANNOT_TELL, 0.03), 20.0)
    assert coarse.deciding_budget_s == 45.0
    assert coarse.reason == "Why."
    fine = with_budget(comparison(Verdict.NOT_SLOWER, 0.015), 20.0)
    assert fine.deciding_budget_s is None
    assert fine.reason == "Why."
    unknown = with_budget(comparison(Verdict.CANNOT_TELL, None), 20.0)
    assert unknown.deciding_budget_s is None
    # A difference may lose its verdict among others, and then wants to know it too.
    assert with_budget(comparison(Verdict.FASTER, 0.03), 20.0).deciding_budget_s == 45.0


@pytest.mark.parametrize(("detectable", "floor"), [(0.4, 0.005), (0.03, 0.03)])
def test_what_no_budget_decides_is_called_too_small(detectable: float, floor: float) -> None:
    """Too noisy for an hour, or within what identical arms differ by."""
    found = with_budget(comparison(Verdict.CANNOT_TELL, detectable, aa_floor=floor), 20.0)
    assert found.deciding_budget_s is None
    assert found.reason == "Why. A difference of 2.0% is too small for this machine to tell."
    claimed = with_budget(comparison(Verdict.SLOWER, detectable, aa_floor=floor), 20.0)
    assert claimed.reason == "Why."
