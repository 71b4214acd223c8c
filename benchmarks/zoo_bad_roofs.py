"""Bad measurements whose fault lies in peaks or counts, planted into the stored record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zoo_entry import Entry
from zoo_record import EAGER_S, INDUCTOR_S, ceilings, counted, eager, inductor, larger, result

from torchstone.records import DRAM, Flops, Peak, Result

MIB = 1 << 20
FP32 = next(p for p in ceilings().compute if p.dtype == "fp32")


def planted_in_roofs() -> tuple[Entry, ...]:
    """All of them."""
    return (*_ceilings(), *_counts())


def _peaks(*more: Peak, instead: bool = False) -> Result:
    kept = [p for p in ceilings().compute if not (instead and p.dtype == "fp32")]
    return result(calibration=ceilings(compute=(*kept, *more)))


def _level(level: str, **changes: Any) -> Result:
    """The bandwidth of one level changed."""
    kept = [p for p in ceilings().bandwidth if p.level != level]
    old = next(p for p in ceilings().bandwidth if p.level == level)
    return result(calibration=ceilings(bandwidth=(*kept, replace(old, **changes))))


def _table(times: float) -> Peak:
    return replace(FP32, value=times * FP32.value, source="datasheet")


def _ceilings() -> tuple[Entry, ...]:
    slow = replace(FP32, value=FP32.value / 2.5)
    nearly = replace(FP32, value=FP32.value * (EAGER_S / INDUCTOR_S) * 0.503)
    over, floor = "utilisation:fail", "time-floor:fail"
    return (
        Entry(
            "a peak that a busy machine measured too low",
            lambda: _peaks(slow, instead=True),
            "inductor",
            (over, floor),
        ),
        Entry(
            "just over the peak",
            lambda: _peaks(nearly, instead=True),
            "inductor",
            ("utilisation:warn",),
        ),
        Entry(
            "the peak of another machine",
            lambda: result(calibration=ceilings(machine_id="elsewhere")),
            wanted=("peak:warn",),
        ),
        Entry(
            "a sparse peak and no dense one",
            lambda: _peaks(replace(FP32, sparse=True), instead=True),
            wanted=("peak:warn",),
        ),
        Entry(
            "a sparse peak that is not marked", lambda: _peaks(_table(1.9)), wanted=("peak:warn",)
        ),
        Entry("a peak in multiply-adds", lambda: _peaks(_table(0.5)), wanted=("peak:warn",)),
        Entry(
            "a table's peak 1000 times too low", lambda: _peaks(_table(1e-3)), wanted=("peak:warn",)
        ),
        Entry("a peak of no dtype", lambda: _peaks(replace(FP32, dtype="")), wanted=("peak:warn",)),
        Entry(
            "a peak of no source", lambda: _peaks(replace(FP32, source="")), wanted=("peak:warn",)
        ),
        Entry(
            "MHz for kHz",
            lambda: result(calibration=ceilings(nominal_clock_hz=2445.0 * 1e3)),
            wanted=("clock:warn",),
        ),
        Entry(
            "a clock that sank by 8 %",
            lambda: result(clocks_hz=(3.24e9, 2.98e9)),
            wanted=("clock:warn",),
        ),
        Entry(
            "in-cache bandwidth called DRAM's",
            lambda: _level(DRAM, value=60e9, array_bytes=4 * MIB),
            wanted=("working-set:warn",),
        ),
        Entry(
            "DRAM faster than the caches",
            lambda: _level(DRAM, value=400e9),
            wanted=("working-set:warn",),
        ),
        Entry(
            "a cache's bandwidth from arrays that do not fit",
            lambda: _level("L2", array_bytes=8 * MIB),
            wanted=("working-set:warn",),
        ),
    )


def _both(flops: Flops, base_s: float, new_s: float) -> Result:
    return result(eager(base_s, flops=flops), inductor(new_s, flops=flops))


def _counts() -> tuple[Entry, ...]:
    one = counted()
    twice = {op: 2 * n for op, n in one.by_op.items()}
    halves = replace(larger(0.5), bytes=one.bytes, least_bytes=one.least_bytes)
    # Nine tenths of the peak and a third of the time in ops that compute nothing.
    mixed = replace(one, heaviest=(one.heaviest[0], replace(one.heaviest[1], time_ns=10**6)))
    moved = replace(one, bytes=256 * MIB, least_bytes=256 * MIB, largest_bytes=256 * MIB)
    wrong = "FLOPs not counted: The formula for aten.mm gives 105 operations where there are 210."
    full = one.total / FP32.value
    return (
        Entry(
            "operations counted twice in the total",
            lambda: _both(replace(one, total=2 * one.total), 4e-3, 3e-3),
            wanted=("flops:warn",),
        ),
        Entry(
            "an op counted twice",
            lambda: _both(replace(one, total=2 * one.total, by_op=twice), 4e-3, 3e-3),
            wanted=("flops:warn",),
        ),
        Entry(
            "one arm counted in multiply-adds",
            lambda: result(eager(), inductor(flops=halves)),
            wanted=("flops:warn",),
        ),
        Entry(
            "a formula that counts multiply-adds",
            lambda: result(eager(flops=None, notes=(wrong,)), inductor(flops=None)),
            wanted=("flops:warn",),
        ),
        Entry(
            "a model at 95 % of the peak",
            lambda: _both(mixed, full / 0.95 * 1.5, full / 0.95),
            "inductor",
            ("roofline:warn",),
        ),
        Entry(
            "half of the time that the products need",
            lambda: _both(one, EAGER_S, full / 2),
            "inductor",
            ("time-floor:fail",),
            ("utilisation:fail",),
        ),
        Entry(
            "weights read faster than memory gives them",
            lambda: _both(moved, 30e-3, 4e-3),
            "inductor",
            ("time-floor:fail",),
            ("utilisation:fail",),
        ),
        Entry(
            "a sample shorter than a reading of the clock",
            lambda: result(eager(flops=None), inductor(2e-8, flops=None)),
            "inductor",
            ("time-floor:fail",),
            ("too-good:fail",),
        ),
    )
