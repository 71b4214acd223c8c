"""Rules about peaks: what they are, and what arms reach of them (R1-R7, R9, R10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.validate.cases import (
    GIGA,
    MIB,
    PEAK,
    arm,
    calibration,
    checks,
    environment,
    flops,
    levels,
    one,
    pair,
    result,
    with_noise,
)
from torchstone.records import (
    DRAM,
    Calibration,
    Check,
    Level,
    Measurement,
    OpWork,
    Peak,
    Result,
    Verdict,
)
from torchstone.validate import evaluate, needs_recalibration, sound, withhold

STEP = 5e-3


def reaching(share: float, name: str = "eager", **changes: Any) -> Measurement:
    """An arm that reads that share of the fp32 peak at two threads."""
    return arm(name, STEP, flops=flops(round(share * PEAK * STEP), **changes))


def with_peaks(*peaks: Peak, keep: bool = True) -> Result:
    old = calibration().compute if keep else ()
    return pair(calibration=calibration(compute=(*old, *peaks)))


def said(rule: str, made: Result) -> Check:
    """The only thing that a rule says that is not ok."""
    (found,) = [check for check in checks(rule, made) if check.level is not Level.OK]
    return found


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.99, Level.OK), (1.02, Level.WARN), (1.04, Level.WARN), (1.06, Level.FAIL), (5, Level.FAIL)],
)
def test_more_than_the_peak(share: float, level: Level) -> None:
    (check,) = checks("utilisation", result(reaching(share)))
    assert check.level is level
    assert check.figures["compute_share"] == pytest.approx(share, rel=0.01)  # never clamped


def test_more_than_the_peak_loses_its_verdict() -> None:
    made = pair(reaching(1.5, "inductor"), arm())
    (found,) = withhold(made.comparisons, checks("utilisation", made))
    assert found.verdict is Verdict.CANNOT_TELL
    assert "150 % of the fp32 peak at 2 threads" in one("utilisation", made, "inductor").message


def test_more_than_memory_gives() -> None:
    # 128 MiB in 1 ms are 134 GB/s, where DRAM gives 20.
    moved = flops(1000, least_bytes=128 * MIB, bytes=128 * MIB)
    made = result(arm("eager", 1e-3, flops=moved))
    check = said("utilisation", made)
    assert check.level is Level.FAIL
    assert "of the bandwidth of DRAM" in check.message
    assert needs_recalibration(made) == [(DRAM, 2)]
    assert said("time-floor", made).level is Level.FAIL


def test_reading_alone_may_exceed_what_writing_reaches() -> None:
    # The cache reads a line before it writes to it, which a triad does not count.
    moved = flops(1000, least_bytes=128 * MIB, bytes=128 * MIB)
    made = result(arm("eager", 128 * MIB / (26 * GIGA), flops=moved))
    assert levels("utilisation", made) == [Level.OK]
    assert needs_recalibration(made) == []


def test_what_fits_in_a_cache_is_held_against_the_cache() -> None:
    made = result(arm("eager", 1e-4, flops=flops(1000, least_bytes=4 * MIB, bytes=4 * MIB)))
    assert levels("utilisation", made) == [Level.OK]


def test_peaks_that_are_beaten_are_named_for_calibration() -> None:
    made = pair(reaching(1.02, "inductor"), reaching(0.5))
    assert needs_recalibration(made) == [("fp32", 2)]
    assert needs_recalibration(pair()) == []
    assert needs_recalibration(pair(calibration=None)) == []
    higher = calibration(compute=(Peak(1.1 * PEAK, dtype="fp32", threads=2),))
    assert needs_recalibration(replace(made, calibration=higher)) == []
    assert levels("utilisation", replace(made, calibration=higher)) == [Level.OK] * 2


def test_arms_of_many_shapes_and_without_counts_are_not_held_against_peaks() -> None:
    shaped = reaching(5)
    shaped = replace(shaped, arm=replace(shaped.arm, shapes=4))
    for made in (result(shaped), result(arm(flops=None))):
        for rule in ("utilisation", "roofline"):
            assert checks(rule, made) == []


def test_an_unknown_peak_is_unknown() -> None:
    check = said("peak", pair(calibration=None))
    assert (check.level, check.arms) == (Level.NOTE, ())
    assert "unknown" in check.message
    assert checks("utilisation", pair(calibration=None)) == []
    assert checks("peak", result(arm(flops=None), calibration=None)) == []


def test_an_unknown_dtype_or_thread_count_has_no_peak_to_fall_back_on() -> None:
    three = arm(environment=environment(threads={"torch": 3}))
    check = said("peak", result(three))
    assert check.level is Level.NOTE
    assert "The fp32 peak at 3 threads is unknown" in check.message
    assert [c for c in checks("utilisation", result(three)) if "compute_share" in c.figures] == []


def test_peaks_of_another_machine_are_not_used() -> None:
    made = pair(reaching(5, "inductor"), calibration=calibration(machine_id="m-9"))
    check = said("peak", made)
    assert check.level is Level.WARN
    assert "m-9" in check.message
    assert check.arms == ("eager", "inductor")
    assert checks("utilisation", made) == []
    away = [arm(name, environment=environment(machine_id="m-9")) for name in ("eager", "third")]
    found = checks("peak", result(away[0], arm("inductor"), away[1]))
    assert [c.arms for c in found if c.level is Level.WARN] == [("eager",), ("third",)]


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (Peak(PEAK, threads=2), "does not say its dtype"),
        (Peak(PEAK, dtype="fp32", threads=2, source=""), "does not say where it comes from"),
        (Peak(-1.0, dtype="fp32", threads=2), "is no rate"),
        (Peak(8 * PEAK, dtype="fp16", threads=2, sparse=True), "that sparsity skips"),
        (Peak(2 * PEAK, dtype="fp32", threads=2, source="datasheet"), "counts sparsity"),
        (Peak(2.2 * PEAK, dtype="fp32", threads=2, source="user"), "counts sparsity"),
        (Peak(0.5 * PEAK, dtype="fp32", threads=2, source="datasheet"), "a multiply-add as one"),
        (Peak(10 * PEAK, dtype="fp32", threads=2, source="datasheet"), "10 % of it"),
        (Peak(0.7 * PEAK, dtype="fp32", threads=2, source="user"), "143 % of it"),
    ],
)
def test_peaks_that_are_refused(peak: Peak, words: str) -> None:
    made = with_peaks(peak)
    check = said("peak", made)
    assert check.level is Level.WARN
    assert words in check.message
    assert made.calibration is not None
    assert sound(made.calibration, {}).compute == calibration().compute
    assert levels("utilisation", made) == [Level.OK] * 2


def test_more_refusals_are_counted() -> None:
    nameless = [Peak(PEAK, threads=threads) for threads in (1, 2, 3)]
    assert "(and 2 more) does not say its dtype" in said("peak", with_peaks(*nameless)).message
    peaks = [Peak(0.0, threads=2, level=level) for level in ("L1", "L2", "L3")]
    made = pair(calibration=calibration(bandwidth=tuple(peaks)))
    assert "(and 2 more) is no rate" in said("working-set", made).message


@pytest.mark.parametrize(
    "peak",
    [
        Peak(1.1 * PEAK, dtype="fp32", threads=2, source="datasheet"),
        Peak(1.6 * PEAK, dtype="fp32", threads=2, source="user"),
        Peak(2 * PEAK, dtype="fp32", threads=2, sparse=True, source="datasheet"),
    ],
    ids=["table", "user", "sparse beside dense"],
)
def test_peaks_that_agree_are_left_alone(peak: Peak) -> None:
    made = with_peaks(peak)
    assert levels("peak", made) == [Level.OK]
    assert one_share(made) == pytest.approx(0.4, rel=0.02)  # of the measured one


def one_share(made: Result) -> float:
    return checks("utilisation", made)[0].figures["compute_share"]


def test_a_table_without_a_measurement_is_not_used() -> None:
    made = with_peaks(Peak(PEAK, dtype="fp32", threads=2, source="datasheet"), keep=False)
    found = checks("peak", made)
    assert {check.level for check in found} == {Level.NOTE}
    assert "is not confirmed by a measurement" in found[0].message
    assert made.calibration is not None
    assert sound(made.calibration, {}).compute == ()


def heavy(matrix_ns: int, other_ns: int) -> tuple[OpWork, ...]:
    return (
        OpWork("aten.addmm", 2, None, 0, matrix_ns),
        OpWork("aten.gelu", 2, None, 0, other_ns),
    )


def test_near_the_compute_peak() -> None:
    model = result(reaching(0.95, heaviest=heavy(80, 20)))
    check = said("roofline", model)
    assert check.level is Level.WARN
    assert "20 % of its op time is no matrix product" in check.message
    product = result(reaching(0.95, heaviest=heavy(97, 3)))
    assert levels("roofline", product) == [Level.OK]
    assert levels("roofline", result(reaching(0.85, heaviest=heavy(80, 20)))) == [Level.OK]


def streaming(total: int, seconds: float) -> Result:
    moved = flops(total, least_bytes=256 * MIB, bytes=256 * MIB, largest_bytes=256 * MIB)
    return result(arm("eager", seconds, flops=moved))


def test_near_the_memory_peak() -> None:
    seconds = 256 * MIB / (19 * GIGA)
    assert levels("roofline", streaming(10_000_000, seconds)) == [Level.OK]
    # Three operations a byte, where the ridge is at five.
    check = said("roofline", streaming(3 * 256 * MIB, seconds))
    assert check.level is Level.WARN
    assert "bandwidth of DRAM" in check.message


def low(**changes: Any) -> Measurement:
    small = flops(1_000_000, bytes=MIB, least_bytes=MIB, heaviest=heavy(3_000_000, 1_500_000))
    return arm("eager", STEP, **{"flops": replace(small, **changes.pop("counted", {})), **changes})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (low(counted={"ops": 4000}), "the dispatch of 4,000 ops at 1.00 µs each is about 80 %"),
        (low(counted={"heaviest": heavy(200_000, 50_000)}), "the rest is Python"),
        (low(), "aten.addmm, 67 % of the op time, comes near neither peak"),
        (low(counted={"heaviest": ()}), "nothing in the record names the cause"),
        (
            with_noise(low(), lambda t: {"cpu_ns": t.noise.wall_ns // 5, "wait_ns": 0}),
            "slept or waited",
        ),
        (
            with_noise(
                low(),
                lambda t: {"cpu_ns": t.noise.wall_ns // 3, "wait_ns": t.noise.wall_ns // 2},
            ),
            "other work had the core",
        ),
        (
            with_noise(low(), lambda t: {"wait_ns": t.noise.wall_ns // 5}),
            "waited for a core 20 % of the time",
        ),
    ],
    ids=["dispatch", "Python", "an op", "unknown", "sleep", "contended", "waiting"],
)
def test_far_below_both_peaks_names_the_likely_cause(made: Measurement, words: str) -> None:
    check = said("roofline", result(made))
    assert check.level is Level.NOTE
    assert words in check.message
    assert "of the nearer peak (" in check.message


def test_far_below_says_nothing_where_most_ops_are_not_understood() -> None:
    unknown = low(counted={"time_covered": 0.1, "time_understood": 0.2})
    assert checks("roofline", result(unknown)) == []


def test_coverage_names_what_has_no_formula() -> None:
    part = flops(time_covered=0.5, time_understood=0.5, uncovered=("aten.sort", "aten.topk"))
    check = said("coverage", result(arm(flops=part)))
    assert check.level is Level.NOTE
    assert "aten.sort, aten.topk have none" in check.message
    assert "no share of the compute peak is claimed" in check.message
    pointwise = replace(part, time_understood=0.95)
    (fine,) = checks("coverage", result(arm(flops=pointwise)))
    assert fine.level is Level.OK
    assert "95 %" in fine.message
    assert "50 % by formulas" in fine.message
    assert levels("coverage", result(arm(flops=flops(time_covered=0.8)))) == [Level.OK]
    assert checks("coverage", result(arm(flops=None))) == []


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (flops(by_op={"aten.addmm": 100_000_000}, heaviest=()), "something counts twice"),
        (flops(100, by_op={"aten.addmm": 200}, heaviest=()), "multiply-adds were counted as one"),
        (
            flops(heaviest=(OpWork("aten.addmm", 1, 100_000_000, 0, 1),)),
            "aten.addmm is counted as 200,000,000 and as 100,000,000",
        ),
    ],
)
def test_counts_that_do_not_add_up(counted: Any, words: str) -> None:
    made = pair(arm("inductor", 4e-3, seed=2, flops=counted), arm(flops=counted))
    check = said("flops", made)  # once: both arms share the count
    assert check.level is Level.WARN
    assert words in check.message


def test_a_count_of_many_ops_names_only_the_largest() -> None:
    many = {f"aten.op{i}": 10 for i in range(12)}
    assert levels("flops", result(arm(flops=flops(150, by_op=many, heaviest=())))) == [Level.OK]
    few = result(arm(flops=flops(150, by_op={"aten.mm": 140}, heaviest=())))
    assert said("flops", few).level is Level.WARN


def test_two_counts_of_one_workload_must_agree() -> None:
    made = pair(arm("inductor", 4e-3, seed=2, flops=flops(100_000_000)))
    check = said("flops", made)
    assert check.level is Level.WARN
    assert "multiply-adds were counted as one" in check.message
    half = arm("inductor", 4e-3, seed=2, flops=flops(100_000_000))
    training = replace(half, arm=replace(half.arm, mode="training"))
    assert levels("flops", pair(training)) == [Level.OK]


def test_a_formula_that_failed_its_test_is_told() -> None:
    wrong = (
        "FLOPs not counted: The formula for aten.mm gives 105 operations where there are 210: "
        "it counts multiply-adds."
    )
    check = said("flops", result(arm(flops=None, notes=(wrong,))))
    assert check.level is Level.WARN
    assert "it counts multiply-adds" in check.message
    other = "FLOPs not counted: the worker died"
    assert said("flops", result(arm(flops=None, notes=(other,)))).level is Level.NOTE


def bandwidth(*peaks: Peak) -> Calibration:
    kept = [p for p in calibration().bandwidth if p.level not in {q.level for q in peaks}]
    return calibration(bandwidth=(*kept, *peaks))


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (Peak(90 * GIGA, threads=2, level=DRAM, array_bytes=4 * MIB), "partly the cache's"),
        (Peak(20 * GIGA, threads=2, level=DRAM, array_bytes=127 * MIB), "partly the cache's"),
        (Peak(20 * GIGA, threads=2, level=DRAM), "does not say how large"),
        (Peak(900 * GIGA, threads=2, level=DRAM, array_bytes=128 * MIB), "above what any cache"),
        (Peak(99 * GIGA, threads=2, level="L3", array_bytes=64 * MIB), "32.0 MiB cannot hold"),
        (Peak(99 * GIGA, threads=2, level="L2", array_bytes=4 * MIB), "1.00 MiB cannot hold"),
        (Peak(99 * GIGA, threads=2, array_bytes=4 * MIB), "does not say which level"),
        (Peak(99 * GIGA, threads=2, level="L3", source=""), "where it comes from"),
        (Peak(0.0, threads=2, level="L3"), "is no rate"),
    ],
)
def test_bandwidths_that_are_refused(peak: Peak, words: str) -> None:
    made = pair(calibration=bandwidth(peak))
    check = said("working-set", made)
    assert check.level is Level.WARN
    assert words in check.message
    assert made.calibration is not None
    caches = environment().caches
    assert peak not in sound(made.calibration, caches).bandwidth


def test_bandwidths_with_fitting_arrays_are_left_alone() -> None:
    assert levels("working-set", pair()) == [Level.OK]
    device = Peak(900 * GIGA, level=DRAM, array_bytes=MIB)
    unknown = calibration(bandwidth=(device,), last_level_bytes=0)
    other = pair(base=arm(environment=environment(caches={})), calibration=unknown)
    other = replace(
        other, arms=tuple(replace(a, environment=environment(caches={})) for a in other.arms)
    )
    assert levels("working-set", other) == [Level.OK]
    assert checks("working-set", pair(calibration=calibration(bandwidth=()))) == []


def test_a_time_below_the_floor_fails() -> None:
    check = said("time-floor", result(reaching(1.2)))
    assert check.level is Level.FAIL
    assert "83 % of it" in check.message
    assert levels("time-floor", result(reaching(1.1))) == [Level.OK]  # within its own error
    assert checks("time-floor", pair(calibration=None)) == []


def test_a_sample_shorter_than_a_reading_of_the_clock_fails() -> None:
    check = said("time-floor", result(arm("eager", 2e-8, flops=None)))
    assert check.level is Level.FAIL
    assert "shorter than reading the clock" in check.message
    many = replace(arm("eager", 1e-3, flops=None), loops=100_000)
    assert checks("time-floor", result(many)) == []


@pytest.mark.parametrize("after", [3.0e9, 3.4e9])
def test_a_clock_that_moves_is_told(after: float) -> None:
    check = said("clock", pair(clocks_hz=(3.2e9, after)))
    assert check.level is Level.WARN
    assert "Repeat" in check.message
    assert levels("clock", pair(clocks_hz=(3.2e9, 3.25e9))) == [Level.OK]


def test_the_clock_scales_nothing_but_is_told() -> None:
    (check,) = checks("clock", pair())
    assert check.figures["over_default"] == pytest.approx(3.205 / 2.4)  # a boost is allowed
    assert check.figures["over_calibration"] == pytest.approx(3.205 / 3.2)
    assert checks("clock", pair(clocks_hz=())) == []


@pytest.mark.parametrize("hertz", [3200.0, 3.2e6, 3.2e12])
def test_a_clock_in_the_wrong_unit_is_refused(hertz: float) -> None:
    made = pair(calibration=calibration(clock=Peak(hertz)))
    check = said("clock", made)
    assert check.level is Level.WARN
    assert "taken for Hz" in check.message
    assert made.calibration is not None
    assert sound(made.calibration, {}).clock is None
    assert said("clock", pair(calibration=calibration(nominal_clock_hz=hertz))).level is Level.WARN
    assert levels("clock", pair(clocks_hz=(hertz, hertz))) == [Level.WARN] * 2


def test_a_bad_peak_costs_no_verdict() -> None:
    false = calibration(
        compute=(Peak(1.0, threads=2),),
        bandwidth=(Peak(1.0, level=DRAM, threads=2, array_bytes=1),),
        clock=Peak(1.0),
    )
    made = pair(calibration=false)
    found = evaluate(made)
    assert {c.rule for c in found if c.level is Level.WARN} == {"peak", "working-set", "clock"}
    assert withhold(made.comparisons, found) == made.comparisons
