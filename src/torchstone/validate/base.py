"""The shape of a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from torchstone.records import Check, Comparison, Measurement, Result
from torchstone.stats import (
    ESTIMATORS,
    absolute,
    central_time,
    estimator_of,
    replicates_with_samples,
)

CONSTANT_OUTPUT_NOTE = "the output does not depend on the input"
"""The note by which the measuring side says so; the rule `constant-output` looks for it."""


class Rule(Protocol):
    """Reads a result and says what it found, `ok` included; says nothing where it cannot look.

    `source` tells where the rule and its thresholds come from.
    """

    @property
    def name(self) -> str:
        """The name that checks carry."""

    @property
    def source(self) -> str:
        """Where the rule comes from."""

    def evaluate(self, result: Result, /) -> Iterable[Check]:
        """What the rule found."""


@dataclass(frozen=True)
class FunctionRule:
    """A rule that is one function."""

    name: str
    source: str
    evaluate: Callable[[Result], Iterable[Check]]


def each_arm(
    look: Callable[[Measurement], Iterable[Check]],
) -> Callable[[Result], Iterator[Check]]:
    """A evaluate that looks at every arm by itself."""

    def evaluate(result: Result) -> Iterator[Check]:
        for arm in result.arms:
            yield from look(arm)

    return evaluate


# Words and numbers for a check's sentence.


LONGEST_NAME = 60
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def name_of(arm: Measurement | str) -> str:
    """The arm's name on one line; a long statement is cut."""
    name = " ".join((arm if isinstance(arm, str) else arm.arm.name).split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def duration(seconds: float) -> str:
    """`1.23 ms`: three digits in the unit that fits."""
    if not math.isfinite(seconds):
        return "an unknown time"
    for scale, unit in _UNITS:
        if abs(seconds) >= scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def rate(value: float, unit: str) -> str:
    """`93.3 GFLOP/s`: three digits under the prefix that fits."""
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}"


def size(amount: int) -> str:
    """`4.00 MiB`."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if amount >= scale:
            return f"{_three_digits(amount / scale)} {unit}"
    return f"{amount} B"


def number(value: float) -> str:
    """A count or a mean of counts, with thousands separated: `16,236`, `12.5`."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.1f}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


# What several rules read from a measurement.


UNKNOWN_CORES = 64
"""Where a record does not say how many cores there were: many, so that no honest arm is blamed."""


def is_step(arm: Measurement) -> bool:
    """A target called step by step, not a statement."""
    return bool(arm.arm.target) and arm.arm.statement is None


def is_comparable(arm: Measurement) -> bool:
    """It has samples and an outcome that is worth a verdict."""
    return arm.outcome.comparable and bool(replicates_with_samples(arm))


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
