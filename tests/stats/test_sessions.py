"""One arm in two sessions: all processes count, whatever their numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as oracle

from tests.stats import synthetic
from torchstone.records import Measurement, Verdict
from torchstone.stats import FLOOR_ESTIMATOR, TYPICAL_ESTIMATOR, absolute, compare_sessions
from torchstone.stats.drift import fit_sessions

BOTH = (FLOOR_ESTIMATOR, TYPICAL_ESTIMATOR)


def constant(levels_ns: list[int]) -> Measurement:
    """A process for each level, in which all samples are alike."""
    turns = [
        synthetic.turn(process, index, [level] * 5)
        for process, level in enumerate(levels_ns)
        for index in range(4)
    ]
    return synthetic.from_turns("arm", turns)


def test_against_welchs_test() -> None:
    rng = np.random.default_rng(5)
    old = [round(5e6 * math.exp(x)) for x in rng.normal(0.0, 0.03, 12)]
    new = [round(5e6 * math.exp(x)) for x in rng.normal(0.05, 0.005, 4)]
    welch = oracle.ttest_ind(np.log(new), np.log(old), equal_var=False)
    ends = welch.confidence_interval(0.95)
    for fit in fit_sessions(constant(old), constant(new), BOTH).values():
        assert fit.centre == pytest.approx(np.log(new).mean() - np.log(old).mean())
        assert np.log(fit.interval(0.95)) == pytest.approx([ends.low, ends.high])
        assert fit.p_value() == pytest.approx(welch.pvalue)
        assert fit.replicates == 4


def test_which_process_came_first_does_not_matter() -> None:
    """Between sessions the number of a process means nothing."""
    old = synthetic.measurement(seed=1, replicates=6, process_sd=0.02)
    new = synthetic.measurement(seed=2, replicates=4, process_sd=0.02)
    turned = replace(old, turns=tuple(replace(t, replicate=9 - t.replicate) for t in old.turns))
    there, again = (fit_sessions(one, new, BOTH) for one in (old, turned))
    back = fit_sessions(new, old, BOTH)
    for name in BOTH:
        assert again[name].centre == pytest.approx(there[name].centre)
        assert again[name].std_error == pytest.approx(there[name].std_error)
        assert back[name].centre == pytest.approx(-there[name].centre)
        assert back[name].df == pytest.approx(there[name].df)


def test_a_session_with_more_samples_is_not_faster_for_it() -> None:
    """A floor falls with the number of samples."""
    few = synthetic.measurement(seed=1, replicates=12, per_turn=6, sample_sd=0.5)
    many = synthetic.measurement(seed=2, replicates=12, per_turn=60, sample_sd=0.5)
    low, high = (absolute(one, FLOOR_ESTIMATOR).value for one in (many, few))
    naive = math.log(high / low)
    assert naive > 0.01
    assert abs(fit_sessions(few, many, BOTH)[FLOOR_ESTIMATOR].centre) < naive / 3


def test_a_process_that_was_cut_short_does_not_cost_the_others_their_floors() -> None:
    """At its one sample the floor would be the mean, which noise lifts in one of the sessions."""
    quiet = synthetic.measurement(seed=1, replicates=12, sample_sd=0.1)
    noisy = synthetic.measurement(seed=2, replicates=12, sample_sd=0.5)
    whole = tuple(t for t in quiet.turns if t.replicate > 0)
    stub = replace(quiet, turns=(synthetic.turn(0, 0, [5_000_000]), *whole))
    assert abs(fit_sessions(stub, noisy, BOTH)[FLOOR_ESTIMATOR].centre) < 0.05


def test_a_single_process_tells_nothing() -> None:
    one = compare_sessions(
        constant([5_350_000] * 12), constant([5_000_000]), margin=0.02, alpha=0.05, aa_floor=0.0
    )
    assert one.verdict is Verdict.CANNOT_TELL
    assert one.time_ratio == pytest.approx(5.0 / 5.35)
    assert one.interval == (0.0, math.inf)
    assert "Only one process of one session" in one.reason
