"""Verdicts of a suite: each held to what all of them together allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from tests.stats.suite_cases import case, many, measured
from torchstone import stats
from torchstone.records import CaseMetrics, Outcome, Verdict
from torchstone.stats import verdicts


def of_p(p: float, sign: int = 1, **changes: object) -> CaseMetrics:
    """A case whose p-value is `p`."""
    t = float(oracle.t.isf(p / 2, 3))
    return case(log_speedup=sign * t * 0.01, error=0.01, freedom=3.0, **changes)  # type: ignore[arg-type]


def test_p_values_against_scipy() -> None:
    for p in (0.9, 0.05, 1e-4):
        assert stats.p_value(of_p(p)) == pytest.approx(p)
        assert stats.p_value(of_p(p, -1)) == pytest.approx(p)
    assert stats.p_value(case(log_speedup=0.0)) == 1.0
    assert stats.p_value(case(error=0.0)) == 0.0
    assert stats.p_value(case(error=None)) is None
    assert stats.p_value(case(log_speedup=None)) is None
    assert stats.p_value(case(outcome=Outcome.CRASH)) is None


@pytest.mark.parametrize(
    ("interval", "left"),
    [
        ((1.001, 1.08), Verdict.NOT_SLOWER),
        ((0.985, 1.08), Verdict.NOT_SLOWER),
        ((0.92, 0.999), Verdict.NOT_FASTER),
        ((1.001, 1.019), Verdict.SAME),
        ((0.9, 1.1), Verdict.CANNOT_TELL),
        ((0.0, math.inf), Verdict.CANNOT_TELL),
        (None, Verdict.CANNOT_TELL),
    ],
)
def test_a_lost_difference_falls_back_to_what_its_interval_says(
    interval: tuple[float, float] | None, left: Verdict
) -> None:
    """The interval is of the speed-up, so above 1 is faster."""
    alone = Verdict.FASTER if interval is None or interval[1] > 1 else Verdict.SLOWER
    weak = of_p(0.04, verdict=alone, interval=interval)
    assert verdicts([weak, of_p(0.9, verdict=Verdict.SAME)])[0] is left
    wide = of_p(0.04, verdict=alone, interval=(0.92, 1.08), margin=0.1)
    assert verdicts([wide, of_p(0.9, verdict=Verdict.SAME)])[0] is Verdict.SAME


def test_a_verdict_that_does_not_survive_is_lost() -> None:
    """By hand: sorted p 0.001, 0.02, 0.04, 0.9 against 0.0125, 0.025, 0.0375, 0.05."""
    cases = [
        of_p(0.04, verdict=Verdict.FASTER),
        of_p(0.9, verdict=Verdict.SAME),
        of_p(0.001, -1, verdict=Verdict.SLOWER),
        of_p(0.02, verdict=Verdict.FASTER),
        case(outcome=Outcome.CRASH, verdict=Verdict.FASTER),
        case(error=None, verdict=Verdict.FASTER),
        case(verdict=None, log_speedup=None),
    ]
    assert verdicts(cases) == (
        Verdict.CANNOT_TELL,
        Verdict.SAME,
        Verdict.SLOWER,
        Verdict.FASTER,
        None,
        Verdict.CANNOT_TELL,  # nothing to correct it by
        None,
    )
    assert verdicts(cases[:1]) == (Verdict.FASTER,)  # by itself it stands
    assert verdicts([]) == ()
    with pytest.raises(ValueError, match="q must"):
        verdicts(cases, 0.0)


@given(st.lists(measured, max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_verdicts_against_scipy(cases: list[CaseMetrics], q: float) -> None:
    decided = (Verdict.FASTER, Verdict.SLOWER)
    ps = [
        2 * oracle.t.sf(abs(math.log(c.speedup or 1)) / (c.log_error or 1), c.log_freedom)
        if c.verdict in decided
        else 1.0
        for c in cases
    ]
    adjusted = oracle.false_discovery_control(ps, method="bh") if ps else []
    for one, p, verdict in zip(cases, adjusted, verdicts(cases, q), strict=True):
        if abs(p - q) < 1e-9:
            continue
        wanted = Verdict.CANNOT_TELL if one.verdict in decided and p > q else one.verdict
        assert verdict is wanted


def suite_of(
    rng: np.random.Generator, null: int, real: int
) -> tuple[list[CaseMetrics], list[bool]]:
    """Cases of 4 processes each: `null` without a difference, `real` with one of 5 %."""
    truth = np.array([0.0] * null + [0.05] * real)
    replicates = rng.normal(truth, 0.01, (4, truth.size))
    means, sems = replicates.mean(axis=0), replicates.std(axis=0, ddof=1) / 2.0
    found = np.abs(means) / sems >= oracle.t.isf(0.025, 3)
    told = [
        Verdict.CANNOT_TELL if not f else Verdict.FASTER if m > 0 else Verdict.SLOWER
        for f, m in zip(found.tolist(), means.tolist(), strict=True)
    ]
    return many(means, sems, 3, told), (truth != 0.0).tolist()


def test_the_false_discovery_rate_is_kept() -> None:
    """Of the differences called so, the expected share that are none is at most q."""
    rng = np.random.default_rng(11)
    decided = (Verdict.FASTER, Verdict.SLOWER)
    corrected: list[float] = []
    alone: list[float] = []
    found = 0
    for _ in range(400):
        cases, real = suite_of(rng, null=30, real=10)
        for shares, told in ((corrected, verdicts(cases)), (alone, [c.verdict for c in cases])):
            called = [r for r, verdict in zip(real, told, strict=True) if verdict in decided]
            shares.append(called.count(False) / max(1, len(called)))
        found += sum(r and v in decided for r, v in zip(real, verdicts(cases), strict=True))
    assert np.mean(corrected) <= 0.05
    assert np.mean(alone) > 0.10  # the contrast: each case by itself
    assert found > 400 * 10 * 0.6  # and it is not kept by finding nothing


def test_a_suite_of_identical_arms_seldom_shows_anything() -> None:
    rng = np.random.default_rng(12)
    decided = (Verdict.FASTER, Verdict.SLOWER)
    told = [verdicts(suite_of(rng, null=40, real=0)[0]) for _ in range(400)]
    assert sum(any(v in decided for v in one) for one in told) / 400 <= 0.08
