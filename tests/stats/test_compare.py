"""Verdicts, their reasons, and the correction for several arms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stats.suite_cases import MIRROR
from tests.stats.synthetic import Model, from_turns, measurement, turn
from torchstone.records import Comparison, Measurement, Outcome, UsageError, Verdict
from torchstone.records import from_data as decode
from torchstone.records import to_data as encode
from torchstone.stats import ESTIMATORS, FLOOR_ESTIMATOR, compare, compare_all, ratio

QUIET = Model(process_sd=0.002)


def evaluate(base: Measurement, new: Measurement, **changes: object) -> Comparison:
    settings_ = {"margin": 0.02, "alpha": 0.05, "aa_floor": 0.0, **changes}
    if "decide_by" in changes:
        return compare_all((base, new), **settings_)[0]  # type: ignore[arg-type]
    return compare(base, new, **settings_)  # type: ignore[arg-type]


def levels(name: str, *values: int) -> Measurement:
    """One replicate a value, every sample alike."""
    return from_turns(name, [turn(r, t, [v] * 6) for r, v in enumerate(values) for t in (0, 1)])


def test_the_verdicts() -> None:
    base = measurement("base", seed=1, model=QUIET)
    same = evaluate(base, measurement("same", seed=2, model=QUIET))
    slower = evaluate(base, measurement("slow", seed=3, model=QUIET, step=5.5e-3))
    faster = evaluate(base, measurement("fast", seed=4, model=QUIET, step=4.5e-3))
    unclear = evaluate(base, measurement("wild", seed=5, process_sd=0.1))
    no_slower = evaluate(levels("a", 1000, 1000, 1000), levels("b", 940, 960, 980))
    no_faster = evaluate(levels("a", 1000, 1000, 1000), levels("b", 1020, 1041, 1063))
    assert same.verdict is Verdict.SAME
    assert slower.verdict is Verdict.SLOWER
    assert faster.verdict is Verdict.FASTER
    assert unclear.verdict is Verdict.CANNOT_TELL
    assert no_slower.verdict is Verdict.NOT_SLOWER
    assert no_faster.verdict is Verdict.NOT_FASTER
    assert "excludes more than 2.0% slower, but not faster" in no_slower.reason
    assert "excludes more than 2.0% faster, but not slower" in no_faster.reason
    assert same.reason == slower.reason == faster.reason == ""
    assert "wider than the margin of 2.0%" in unclear.reason
    assert (slower.base, slower.new) == ("base", "slow")


def test_the_record_shows_both_estimates_and_who_decided() -> None:
    base, new = (measurement(n, seed=i, model=QUIET) for i, n in enumerate("ab"))
    got = evaluate(base, new, alpha=0.1)
    assert got.floor == ratio(base, new, "low1", 0.9)
    assert got.typical == ratio(base, new, "median", 0.9)
    assert got.decided_by == FLOOR_ESTIMATOR
    assert got.interval == ratio(base, new, FLOOR_ESTIMATOR, 0.9).interval
    by_median = evaluate(base, new, decide_by="median")
    assert by_median.decided_by == "median"
    assert by_median.time_ratio == ratio(base, new, "median").time_ratio
    assert decode(Comparison, encode(got)) == got


def test_a_certain_difference_is_one_from_half_the_margin_on() -> None:
    base, new = levels("a", 10000, 10010, 10020), levels("b", 10150, 10160, 10170)
    certain = evaluate(base, new, margin=0.02)
    assert certain.interval is not None
    assert certain.interval[1] < 1.02  # all of it within the margin
    assert (certain.verdict, certain.threshold) == (Verdict.SLOWER, 0.01)
    small = evaluate(base, new, margin=0.04)
    assert (small.verdict, small.threshold, small.reason) == (Verdict.SAME, 0.02, "")


def test_the_aa_floor_withholds_a_verdict() -> None:
    base, new = levels("a", 10000, 10010, 10020), levels("b", 10300, 10310, 10320)
    assert evaluate(base, new).verdict is Verdict.SLOWER
    held = evaluate(base, new, aa_floor=0.05)
    assert held.verdict is Verdict.NOT_FASTER
    assert "identical arms" in held.reason
    assert "5.00%" in held.reason
    assert held.smallest_detectable == held.threshold == 0.05


def test_the_correction_withholds_a_verdict() -> None:
    base, new = levels("a", 1000, 1000, 1000), levels("b", 1040, 1060, 1080)
    assert evaluate(base, new).verdict is Verdict.SLOWER
    noise = [levels(f"noise{i}", 900, 1000, 1100) for i in range(9)]
    held = compare_all([base, new, *noise], 0.02, 0.05, 0.0)[0]
    assert held.verdict is Verdict.NOT_FASTER
    assert "correction for 10 comparisons" in held.reason
    assert held.interval == evaluate(base, new).interval
    assert (held.smallest_detectable or 0) > (evaluate(base, new).smallest_detectable or 0)


def test_floor_and_typical_that_contradict_decide_nothing() -> None:
    base = from_turns("a", [turn(r, t, [1000 + r] * 30) for r in range(3) for t in (0, 1)])
    new = from_turns(
        "b", [turn(r, t, [900 + r] * 5 + [1200 + r] * 25) for r in range(3) for t in (0, 1)]
    )
    got = evaluate(base, new)
    assert got.verdict is Verdict.CANNOT_TELL
    assert "contradict" in got.reason
    assert got.floor is not None
    assert got.floor.interval[1] < 1.0


def test_same_floor_with_a_slower_typical_time_says_so() -> None:
    base = from_turns("a", [turn(r, t, [1000 + r] * 30) for r in range(3) for t in (0, 1)])
    new = from_turns(
        "b", [turn(r, t, [1000 + r] * 5 + [1200 + r] * 25) for r in range(3) for t in (0, 1)]
    )
    got = evaluate(base, new)
    assert got.verdict is Verdict.SAME
    assert "typical time does differ: +19." in got.reason


@pytest.mark.parametrize(
    "outcome", [o for o in Outcome if o.value not in ("ok", "nondeterministic")]
)
def test_a_failed_arm_has_no_verdict(outcome: Outcome) -> None:
    good = measurement("good", seed=1)
    bad = measurement("bad", seed=2, outcome=outcome)
    for pair in ((good, bad), (bad, good)):
        got = evaluate(*pair)
        assert got.verdict is Verdict.CANNOT_TELL
        assert "bad" in got.reason
        assert outcome.value in got.reason
        assert got.time_ratio is None


def test_nondeterministic_arms_are_compared_and_empty_ones_are_not() -> None:
    good = measurement("good", seed=1, model=QUIET)
    varies = measurement("varies", seed=2, model=QUIET, outcome=Outcome.NONDETERMINISTIC)
    assert evaluate(good, varies).verdict is Verdict.SAME
    empty = evaluate(good, from_turns("empty", []))
    assert empty.verdict is Verdict.CANNOT_TELL
    assert "no samples" in empty.reason


def test_too_few_processes() -> None:
    one = evaluate(levels("a", 1000), levels("b", 2000))
    assert one.verdict is Verdict.CANNOT_TELL
    assert "Only one process" in one.reason
    assert one.time_ratio == pytest.approx(2.0)
    assert one.smallest_detectable is None
    apart = evaluate(levels("a", 1000), from_turns("b", [turn(7, 0, [9])]))
    assert "No process in which both arms ran" in apart.reason
    assert apart.time_ratio is None


def test_holm_over_several_arms() -> None:
    """An arm at p = 0.035 passes alone and after two clear ones, not after two noisy ones."""
    base = levels("base", 1000, 1000, 1000)
    weak = levels("weak", 1040, 1060, 1080)
    clear = [levels(f"clear{i}", 1500 + i, 1501 + i, 1502 + i) for i in range(2)]
    noise = [levels(f"noise{i}", 900, 1000, 1100) for i in range(2)]
    verdicts = {c.new: c.verdict for c in compare_all([base, weak, *clear], 0.02, 0.05, 0.0)}
    assert set(verdicts.values()) == {Verdict.SLOWER}
    verdicts = {c.new: c.verdict for c in compare_all([base, weak, *noise], 0.02, 0.05, 0.0)}
    assert verdicts["weak"] is Verdict.NOT_FASTER
    assert evaluate(base, weak).verdict is Verdict.SLOWER


def test_failed_arms_keep_their_place_and_cost_no_correction() -> None:
    base = levels("base", 1000, 1000, 1000)
    weak = levels("weak", 1040, 1060, 1080)
    crashed = replace(levels("crashed", 1), outcome=Outcome.CRASH)
    got = compare_all([base, crashed, weak, crashed], 0.02, 0.05, 0.0)
    assert [c.new for c in got] == ["crashed", "weak", "crashed"]
    assert got[1].verdict is Verdict.SLOWER
    assert "crash" in got[0].reason


def test_a_failed_base_and_no_arms() -> None:
    bad = measurement("base", outcome=Outcome.TIMEOUT)
    got = compare_all([bad, measurement("new", seed=1)], 0.02, 0.05, 0.0)
    assert "base ended as timeout" in got[0].reason
    assert compare_all([bad], 0.02, 0.05, 0.0) == ()
    assert compare_all([], 0.02, 0.05, 0.0) == ()


@given(st.integers(0, 10**6), st.floats(0.9, 1.1), st.sampled_from(sorted(ESTIMATORS)))
@settings(max_examples=30, deadline=None)
def test_swapping_the_arms_turns_the_verdict_round(seed: int, speed: float, name: str) -> None:
    base = measurement("a", seed=seed, replicates=3, turns=4, process_sd=0.01)
    new = measurement("b", seed=seed + 1, replicates=3, turns=4, step=5e-3 * speed)
    there = evaluate(base, new, decide_by=name, aa_floor=0.01)
    back = evaluate(new, base, decide_by=name, aa_floor=0.01)
    assert back.verdict is MIRROR[there.verdict]
    assert back.smallest_detectable == pytest.approx(there.smallest_detectable)


def test_an_effect_of_the_detectable_size_is_found_four_times_in_five() -> None:
    model = Model(process_sd=0.01)
    # The true standard error of 5 log ratios is 0.01 * sqrt(2 / 5); t quantiles at 4 df.
    slower = model.step * (1.0 + (2.776 + 0.941) * 0.01 * (2 / 5) ** 0.5)
    found = 0
    for seed in range(0, 200, 2):
        base = measurement("a", seed=seed, turns=3, per_turn=6, model=model)
        new = measurement("b", seed=seed + 1, turns=3, per_turn=6, model=model, step=slower)
        found += evaluate(base, new).verdict is Verdict.SLOWER
    assert 0.7 < found / 100 < 0.95


def test_nonsense_is_refused() -> None:
    base, new = levels("a", 1, 2), levels("b", 1, 2)
    for wrong in ({"margin": 0.0}, {"alpha": 1.0}, {"aa_floor": -0.1}):
        with pytest.raises(ValueError, match="need margin > 0"):
            evaluate(base, new, **wrong)
    with pytest.raises(UsageError, match="no estimator named 'best'"):
        evaluate(base, new, decide_by="best")
