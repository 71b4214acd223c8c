"""Shares of peaks by hand: which type, which level, and what may not be said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.synthetic import BANDS, CACHES, MIB, PEAK, THREADS, arm, calibration, flops
from torchstone.records import Contract, Leaf, Peak
from torchstone.stats import achieved, compute_peak, dtype_of, utilisation
from torchstone.stats.roofline import lowest_peak, threads_of

MS = 1e-3


def test_a_rate_needs_an_amount_and_a_time() -> None:
    assert achieved(10, 2.0) == 5.0
    assert achieved(0, 1.0) is None
    assert achieved(10, 0.0) is None


def test_shares_of_both_roofs() -> None:
    found = utilisation(arm(flops(50_000_000, 8 * MIB, 4 * MIB)), calibration(), MS)
    assert found is not None
    assert found.compute == pytest.approx(50e6 / MS / PEAK)
    assert (found.level, found.least_level) == ("L3", "L3")
    assert found.memory == pytest.approx(8 * MIB / MS / BANDS["L3"])
    assert found.least_memory == pytest.approx(4 * MIB / MS / BANDS["L3"])
    assert (found.nearer, found.share) == ("compute", found.compute)
    assert (found.dtype, found.threads, found.claimed) == ("fp32", THREADS, True)


def test_a_share_above_one_is_not_clamped() -> None:
    found = utilisation(arm(flops(250_000_000, MIB, MIB)), calibration(), MS)
    assert found is not None
    assert found.compute == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("least", "moved", "level", "least_level"),
    [
        (10_000, 10_000, "L1", "L1"),
        (200_000, 200_000, "L2", "L2"),
        (10 * MIB, 10 * MIB, "L3", "L3"),
        (64 * MIB, 4 * MIB, "DRAM", "L3"),  # twice the cache: some of it may be cached
        (128 * MIB, 4 * MIB, "DRAM", "DRAM"),
    ],
)
def test_the_level_is_where_the_data_fit(
    least: int, moved: int, level: str, least_level: str
) -> None:
    found = utilisation(arm(flops(1000, moved, least)), calibration(), 1.0)
    assert found is not None
    assert (found.level, found.least_level) == (level, least_level)


def test_an_op_larger_than_the_cache_goes_to_memory() -> None:
    counted = flops(1000, 100 * MIB, MIB, largest_bytes=50 * MIB)
    found = utilisation(arm(counted), calibration(), 1.0)
    assert found is not None
    assert found.level == "DRAM"


def test_traffic_faster_than_its_level_came_from_a_faster_one() -> None:
    moved = int(1.5 * BANDS["DRAM"] * MS)
    found = utilisation(arm(flops(1000, moved, 40 * MIB)), calibration(), MS)
    assert found is not None
    assert found.level == "L3"
    assert found.memory == pytest.approx(moved / MS / BANDS["L3"])


def test_of_a_compiled_arm_only_the_least_traffic_is_known() -> None:
    counted = flops(1000, 40 * MIB, 4 * MIB)
    found = utilisation(arm(counted, variant="inductor+dynamic"), calibration(), MS)
    assert found is not None
    assert found.memory == found.least_memory == pytest.approx(4 * MIB / MS / BANDS["L3"])
    assert found.memory_at_least


def test_nothing_is_said_without_a_count_a_roof_or_the_same_machine() -> None:
    counted = flops(1000, MIB, MIB)
    assert utilisation(arm(None), calibration(), MS) is None
    assert utilisation(arm(counted), None, MS) is None
    assert utilisation(arm(counted), calibration(machine_id="other"), MS) is None
    assert utilisation(arm(counted), calibration(device="cuda"), MS) is None
    assert utilisation(arm(counted, threads=7), calibration(), MS) is None
    assert utilisation(arm(counted), calibration(compute=(), bandwidth=()), MS) is None


def test_an_unknown_roof_leaves_its_share_open() -> None:
    found = utilisation(arm(flops(1000, MIB, MIB)), calibration(compute=()), MS)
    assert found is not None
    assert found.compute is None
    assert found.nearer == "memory"


def test_little_coverage_is_not_claimed() -> None:
    little = flops(1000, MIB, MIB, time_covered=0.5, time_understood=0.79)
    found = utilisation(arm(little), calibration(), MS)
    assert found is not None
    assert not found.claimed
    rest_by_bytes = replace(little, time_understood=0.8)
    found = utilisation(arm(rest_by_bytes), calibration(), MS)
    assert found is not None
    assert found.claimed


def test_a_sparse_peak_is_no_roof() -> None:
    sparse = replace(calibration().compute[0], value=2 * PEAK, sparse=True)
    roof = compute_peak(calibration(compute=(*calibration().compute, sparse)), "fp32", THREADS)
    assert roof is not None
    assert roof.value == PEAK


def test_narrow_types_are_never_held_against_less_than_fp32() -> None:
    slow = compute_peak(calibration(), "bf16", THREADS)
    assert slow is not None
    assert (slow.dtype, slow.value) == ("fp32", PEAK)
    quick = calibration(compute=(*calibration().compute, Peak(4 * PEAK, dtype="fp16", threads=2)))
    native = compute_peak(quick, "fp16", THREADS)
    assert native is not None
    assert (native.dtype, native.value) == ("fp16", 4 * PEAK)
    assert compute_peak(calibration(), "fp16", THREADS) is None  # it may be quicker: not known


@pytest.mark.parametrize(
    ("precision", "device", "autocast", "dtype"),
    [
        ("fp32", "cpu", None, "fp32"),
        ("bf16", "cpu", None, "bf16"),
        ("amp", "cpu", "amp (bfloat16)", "bf16"),
        ("amp", "cuda", "amp (float16, GradScaler)", "fp16"),
        ("amp", "cpu", None, "bf16"),
        ("amp", "cuda:0", None, "fp16"),
        ("amp-fp16", "cpu", None, "fp16"),
    ],
)
def test_the_type_of_an_arm(precision: str, device: str, autocast: str | None, dtype: str) -> None:
    made = arm(None, precision=precision, device=device)
    contract = Contract((), (), autocast=autocast, parameter_dtypes={"float32": 3})
    assert dtype_of(replace(made, contract=contract)) == dtype
    assert dtype_of(replace(made, contract=None)) == (dtype if precision != "fp32" else "fp32")


def test_fp32_means_as_it_was_made() -> None:
    made = arm(None)
    doubles = Contract((), (), parameter_dtypes={"float64": 9, "float32": 1})
    assert dtype_of(replace(made, contract=doubles)) == "fp64"
    inputs = Contract((Leaf("x", "torch", "int64"), Leaf("y", "torch", "bfloat16")), ())
    assert dtype_of(replace(made, contract=inputs)) == "bf16"


def test_threads_as_asked_for_or_as_reported() -> None:
    assert threads_of(arm(None)) == THREADS
    assert threads_of(arm(None, threads=5)) == 5
    assert threads_of(arm(None, device="cuda")) == 0


def test_data_that_may_be_cached_are_held_against_the_cache() -> None:
    counted = flops(0, 64 * MIB, 64 * MIB)
    cached = lowest_peak(counted, calibration(), THREADS, CACHES)
    assert cached is not None
    assert (cached.level, cached.value) == ("L3", BANDS["L3"])
    roof = lowest_peak(counted, calibration(last_level_bytes=0), THREADS, {})
    assert roof is not None
    assert roof.level == "L3"  # the size of the cache is not known, so nothing is surely in DRAM
