"""Rates held against peaks: the arithmetic that rules and the roofline picture share.

A share above 1 is never clamped: it says that the time, the count or the peak is wrong.

Two byte counts answer two questions. `Flops.bytes` is what the ops of the plain eager step read and
write, through whichever memory holds their operands. `Flops.least_bytes` is what no implementation
can avoid, so that a time below it is impossible. A compiler fuses ops and saves traffic, so of an
arm that is not eager only the least is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchstone.records import DRAM, Calibration, Flops, Measurement, Peak

COVERAGE_NEEDED = 0.80
"""Less of the step's time in ops whose work is known (by a formula for their operations, or where
they do few operations for each byte by their bytes): no utilisation is claimed (rule R6)."""
DRAM_MULTIPLE = 4
"""Data of four times the last-level cache are surely not served from it (STREAM's rule, R9)."""
COMPUTE, MEMORY = "compute", "memory"
LEVELS = ("L1", "L2", "L3", DRAM)
"""From the fastest to the slowest."""
_PRIVATE = ("L1", "L2")
"""Each core has its own, so threads add to them."""
_SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}
_NARROW = ("bf16", "fp16")


@dataclass(frozen=True)
class Utilisation:
    """Shares of two peaks that a step reached; None where the peak or the count is not known.

    `compute` is a lower bound: ops without a formula count nothing. `memory` is by the arm's own
    traffic at `level`; of an arm that is not eager the traffic is not known, so that `memory` is a
    lower bound as well (`memory_at_least`). `least_memory` is by the bytes that nobody can avoid,
    at `least_level`, the fastest that could have held them: above 1 it is impossible.
    """

    compute: float | None
    memory: float | None
    least_memory: float | None
    level: str
    least_level: str
    dtype: str
    """Of the peak. Narrow types may be computed by widening them, so theirs is never below fp32."""
    threads: int
    nearer: str
    """`compute` or `memory`: the peak of which the step reached the larger share."""
    share: float
    """Of the nearer peak."""
    time_covered: float
    memory_at_least: bool = False
    time_understood: float = 0.0

    @property
    def claimed(self) -> bool:
        """Whether the work of enough time is known to claim a share of the compute peak."""
        return max(self.time_covered, self.time_understood) >= COVERAGE_NEEDED


def achieved(amount: float, seconds: float) -> float | None:
    """FLOP or bytes per second; None where there is nothing to divide."""
    return amount / seconds if amount > 0 and seconds > 0 else None


def utilisation(
    measurement: Measurement, calibration: Calibration | None, seconds: float
) -> Utilisation | None:
    """Of a step of the arm that took `seconds`; None where no peak or no count is known."""
    flops = measurement.flops
    if flops is None or calibration is None or not applies(calibration, measurement):
        return None
    threads = threads_of(measurement)
    if threads is None:
        return None
    roof = compute_peak(calibration, dtype_of(measurement), threads)
    eager = measurement.arm.is_eager
    caches = measurement.environment.caches if measurement.environment else {}
    least = lowest_peak(flops, calibration, threads, caches)
    used = traffic_peak(flops, calibration, threads, seconds, caches) if eager else least
    moved = flops.bytes if eager else flops.least_bytes
    compute = _share(flops.total, seconds, roof)
    memory = _share(moved, seconds, used)
    if compute is None and memory is None:
        return None
    nearer = COMPUTE if (compute or 0.0) >= (memory or 0.0) else MEMORY
    return Utilisation(
        compute=compute,
        memory=memory,
        least_memory=_share(flops.least_bytes, seconds, least),
        level=used.level if used else "",
        least_level=least.level if least else "",
        dtype=roof.dtype if roof else dtype_of(measurement),
        threads=threads,
        nearer=nearer,
        share=max(compute or 0.0, memory or 0.0),
        time_covered=flops.time_covered,
        memory_at_least=not eager,
        time_understood=flops.time_understood,
    )


def applies(calibration: Calibration, measurement: Measurement) -> bool:
    """Whether the peaks are of the arm's kind of device, and of its machine."""
    environment = measurement.environment
    if calibration.device.split(":")[0] != measurement.arm.device.split(":")[0]:
        return False
    known = environment.machine_id if environment else ""
    return not (known and calibration.machine_id) or known == calibration.machine_id


def threads_of(measurement: Measurement) -> int | None:
    """Compute threads, as asked for or as torch reported them; 0 on an accelerator."""
    arm = measurement.arm
    if arm.device.split(":")[0] != "cpu":
        return 0
    if arm.threads is not None:
        return arm.threads
    return measurement.environment.threads.get("torch") if measurement.environment else None


def dtype_of(measurement: Measurement) -> str:
    """The type that the arm's expensive ops compute in, by the names that calibrations use.

    A mixed precision counts as its narrow type. `fp32` means that weights and inputs stay as they
    were made, so the contract says what they are.
    """
    arm, contract = measurement.arm, measurement.contract
    if arm.precision.startswith("amp"):
        said = contract.autocast or "" if contract else ""
        for name in ("bfloat16", "float16"):  # in this order: one name contains the other
            if name in said:
                return _SHORT[name]
        if arm.precision == "amp":
            return "fp16" if arm.device.startswith("cuda") else "bf16"
        return arm.precision.removeprefix("amp-")
    if arm.precision != "fp32" or contract is None:
        return arm.precision
    sizes: dict[str, int] = dict(contract.parameter_dtypes)
    if not sizes:
        sizes = {leaf.dtype: 1 for leaf in contract.inputs if leaf.dtype in _SHORT}
    most = max(sizes, key=lambda name: sizes[name], default="float32")
    return _SHORT.get(most, most)


def compute_peak(calibration: Calibration, dtype: str, threads: int) -> Peak | None:
    """The dense peak that work of this type is held against.

    Narrow numbers can be widened and computed as fp32, and many processors do just that: where the
    fp32 peak is the higher one, it is the peak.
    """
    own = calibration.peak(dtype, threads)
    wide = calibration.peak("fp32", threads) if dtype in _NARROW else None
    if own is None or wide is None:
        return own
    return max(own, wide, key=lambda peak: peak.value)


def lowest_peak(
    flops: Flops, calibration: Calibration, threads: int, caches: Mapping[str, int]
) -> Peak | None:
    """Bandwidth of the fastest level that could hold what a step must touch from call to call.

    DRAM only where the data are four times the last-level cache: below that, a part may be cached.
    """
    last = last_level(calibration, caches)
    surely = last > 0 and flops.least_bytes >= DRAM_MULTIPLE * last
    level = DRAM if surely else _holding(flops.least_bytes, threads, caches, last)
    return _bandwidth(calibration, "L3" if level == DRAM and not surely else level, threads)


def traffic_peak(
    flops: Flops,
    calibration: Calibration,
    threads: int,
    seconds: float,
    caches: Mapping[str, int],
) -> Peak | None:
    """Bandwidth of the level that the ops' traffic goes through.

    By what must be available: the least bytes or the largest single op. Where the traffic is faster
    than that level, results were still in a faster one when the next op read them.
    """
    working = max(flops.least_bytes, flops.largest_bytes)
    level = _holding(working, threads, caches, last_level(calibration, caches))
    rate = achieved(flops.bytes, seconds) or 0.0
    roof = calibration.bandwidth_of(level, threads)
    for faster in reversed(LEVELS[: LEVELS.index(level)]):
        if roof is not None and rate <= roof.value:
            return roof
        roof = calibration.bandwidth_of(faster, threads) or roof
    return roof


def last_level(calibration: Calibration, caches: Mapping[str, int]) -> int:
    """Bytes of the last-level cache; 0 where it is not known."""
    return calibration.last_level_bytes or caches.get("L3", 0)


def _holding(size: int, threads: int, caches: Mapping[str, int], last: int) -> str:
    """The fastest level with room for so many bytes."""
    rooms = {"L1": caches.get("L1d", 0), "L2": caches.get("L2", 0), "L3": last}
    for level, room in rooms.items():
        shared = room * max(1, threads) if level in _PRIVATE else room
        if 0 < size <= shared:
            return level
    return DRAM


def _bandwidth(calibration: Calibration, level: str, threads: int) -> Peak | None:
    """Of the level, or of the next faster one that was measured: never of a slower one."""
    for name in reversed(LEVELS[: LEVELS.index(level) + 1]):
        found = calibration.bandwidth_of(name, threads)
        if found is not None:
            return found
    return None


def _share(amount: float, seconds: float, roof: Peak | None) -> float | None:
    rate = achieved(amount, seconds)
    return None if rate is None or roof is None else rate / roof.value
