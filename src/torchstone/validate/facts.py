"""What several rules read from a measurement."""

from __future__ import annotations

import math

from torchstone.records import Comparison, Measurement, Result
from torchstone.stats import (
    COMPARABLE,
    ESTIMATORS,
    absolute,
    central_time,
    estimator_of,
    replicates_with_samples,
)

UNKNOWN_CORES = 64
"""Where a record does not say how many cores there were: many, so that no honest arm is blamed."""


def is_step(arm: Measurement) -> bool:
    """A target called step by step, not a statement."""
    return bool(arm.arm.target) and arm.arm.statement is None


def is_comparable(arm: Measurement) -> bool:
    """It has samples and an outcome that is worth a verdict."""
    return arm.outcome in COMPARABLE and bool(replicates_with_samples(arm))


def threads(arm: Measurement) -> int | None:
    """Compute threads of the arm: as asked for, or as torch reported them; None when unknown."""
    if arm.arm.threads is not None:
        return arm.arm.threads
    return arm.environment.threads.get("torch") if arm.environment else None


def cores(arm: Measurement) -> int | None:
    """Logical cores of the machine; None when the record does not say."""
    said = arm.environment.cpu.get("logical_cores", "") if arm.environment else ""
    return int(said) if said.isdigit() and int(said) > 0 else None


def busy_limit(arm: Measurement) -> int:
    """The most threads that the arm may honestly keep busy."""
    return threads(arm) or cores(arm) or UNKNOWN_CORES


def faults_per_call(arm: Measurement) -> float | None:
    """Minor page faults per timed call; None without samples."""
    calls = sum(len(turn.wall_ns) for turn in arm.turns) * arm.loops
    return sum(turn.minor_faults for turn in arm.turns) / calls if calls else None


def estimator(result: Result) -> str:
    """The estimator that decided, by name."""
    said = result.method.estimator
    return said if said in ESTIMATORS else estimator_of(result.arms[0])


def seconds_per_call(arm: Measurement, estimator_name: str) -> float | None:
    """Time of one call by that estimator, as `stats.absolute` has it; None without samples.

    Without the interval, whose jackknife would cost more than all the rules together.
    """
    return central_time(arm, estimator_name)


def arm_named(name: str, result: Result) -> Measurement | None:
    """The arm of that name."""
    return next((arm for arm in result.arms if arm.arm.name == name), None)


def cpu_per_wall(arm: Measurement) -> float | None:
    """CPU time over wall time of all turns; None without turns."""
    wall = sum(turn.noise.wall_ns for turn in arm.turns)
    return sum(turn.noise.cpu_ns for turn in arm.turns) / wall if wall > 0 else None


def wait_share(arm: Measurement) -> float:
    """Time that threads were ready but without a core, of the wall time; 0 where not known."""
    wall = sum(turn.noise.wall_ns for turn in arm.turns)
    return sum(turn.noise.wait_ns or 0 for turn in arm.turns) / wall if wall > 0 else 0.0


def comparisons_of(arm: Measurement, result: Result) -> list[Comparison]:
    """The comparisons in which the arm takes part."""
    return [c for c in result.comparisons if arm.arm.name in (c.base, c.new)]


def half_width(arm: Measurement, result: Result) -> float | None:
    """The widest relative half-width of what is said of the arm: ratios, or else its own time."""
    ends = [c.interval for c in comparisons_of(arm, result) if c.interval]
    if not ends and replicates_with_samples(arm):
        own = absolute(arm, estimator(result), 1.0 - result.method.alpha)
        ends = [(own.lo, own.hi)]
    widths = [math.sqrt(high / low) - 1 if low > 0 else math.inf for low, high in ends]
    width = max(widths, default=math.inf)
    return width if math.isfinite(width) else None
