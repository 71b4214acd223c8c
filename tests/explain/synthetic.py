"""A machine and a step made up for the tests: round figures, so that shares can be done by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.show import synthetic_result
from torchstone.records import (
    Calibration,
    Contract,
    Environment,
    Flops,
    Measurement,
    OpWork,
    Peak,
    Result,
)

KIB, MIB = 1 << 10, 1 << 20
THREADS = 2
PEAK = 100e9
BANDS = {"L1": 400e9, "L2": 200e9, "L3": 80e9, "DRAM": 20e9}
CACHES = {"L1d": 32 * KIB, "L2": 512 * KIB, "L3": 32 * MIB}


def calibration(**changes: Any) -> Calibration:
    made = Calibration(
        id="c1",
        machine_id=synthetic_result.environment().machine_id,
        fingerprint="f",
        created="2026-11-16T00:00:00+00:00",
        compute=(
            Peak(PEAK, 0.05, 50, "fp32", THREADS),
            Peak(PEAK / 2, 0.05, 50, "fp64", THREADS),
            Peak(PEAK / 50, 0.05, 50, "bf16", THREADS),
        ),
        bandwidth=tuple(
            Peak(value, 0.1, 50, threads=THREADS, level=level, array_bytes=size)
            for (level, value), size in zip(
                BANDS.items(), (8 * KIB, 128 * KIB, 4 * MIB, 128 * MIB), strict=True
            )
        ),
        costs={"dispatch": Peak(1e-6), "python-call": Peak(5e-8)},
        last_level_bytes=CACHES["L3"],
    )
    return replace(made, **changes)


def environment() -> Environment:
    return replace(synthetic_result.environment(), caches=CACHES, threads={"torch": THREADS})


def flops(total: int, moved: int, least: int, **changes: Any) -> Flops:
    """Counts of a step; half its time in one op with a formula, the rest in two without."""
    heaviest = (
        OpWork("aten.addmm", 4, total, moved // 2, 900_000),
        OpWork("aten.add", 8, None, moved // 4, 60_000),
        OpWork("aten._softmax", 2, None, moved - moved // 2 - moved // 4, 40_000),
    )
    made = Flops(
        total=total,
        by_op={"aten.addmm": total},
        ops=14,
        ops_covered=4,
        time_covered=0.9,
        uncovered=("aten.add", "aten._softmax"),
        bytes=moved,
        least_bytes=least,
        heaviest=heaviest if moved else (),
        time_understood=1.0,
        largest_bytes=least // 2,
    )
    return replace(made, **changes)


def arm(
    counted: Flops | None, seconds: float = 1e-3, name: str = "eager", **spec: Any
) -> Measurement:
    made = synthetic_result.arm(name, seconds, variant=spec.pop("variant", "eager"))
    contract = Contract(inputs=(), outputs=(), parameter_dtypes={"float32": 10})
    return replace(
        made,
        arm=replace(made.arm, **spec),
        flops=counted,
        environment=environment(),
        contract=contract,
    )


def result(*arms: Measurement, **changes: Any) -> Result:
    made = replace(synthetic_result.single(), arms=arms, calibration=calibration())
    return replace(made, **changes)
