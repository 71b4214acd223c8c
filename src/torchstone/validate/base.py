"""The shape of a rule, and what several rules read from a measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from torchstone.records import Check, Level, Measurement, Result
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
    """Reads a result and reports what it found, `ok` included; nothing where it cannot look.
    `source` tells where the rule and its thresholds come from."""

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


def rule(name: str, source: str) -> Callable[[Callable[[Result], Iterable[Check]]], FunctionRule]:
    """Makes a rule of a function that looks at a whole result; its checks get the rule's name."""

    def make(look: Callable[[Result], Iterable[Check]]) -> FunctionRule:
        def evaluate(result: Result) -> Iterator[Check]:
            for found in look(result):
                yield replace(found, rule=name)

        return FunctionRule(name, source, evaluate)

    return make


def arm_rule(
    name: str, source: str
) -> Callable[[Callable[[Measurement, Result], Iterable[Check]]], FunctionRule]:
    """The same of a function that looks at one arm of a result; its checks are about that arm."""

    def make(look: Callable[[Measurement, Result], Iterable[Check]]) -> FunctionRule:
        def evaluate(result: Result) -> Iterator[Check]:
            for arm in result.arms:
                for found in look(arm, result):
                    yield replace(found, rule=name, arms=(arm.arm.name,))

        return FunctionRule(name, source, evaluate)

    return make


def check(level: Level, message: str, arms: Sequence[str] = (), /, **figures: float) -> Check:
    """A check that still lacks the name of its rule."""
    return Check("", level, message, {k: float(v) for k, v in figures.items()}, tuple(arms))


ok = partial(check, Level.OK)
note = partial(check, Level.NOTE)
warn = partial(check, Level.WARN)
fail = partial(check, Level.FAIL)

LONGEST_NAME = 60


def name_of(arm: Measurement | str) -> str:
    """The arm's name on one line; a long statement is cut."""
    name = " ".join((arm if isinstance(arm, str) else arm.arm.name).split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


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


def crowd(arm: Measurement) -> tuple[int, int] | None:
    """The arm's threads and the cores it may use, where the threads are more."""
    own, of = threads(arm), arm.environment.cpu if arm.environment else {}
    said = of.get("affinity") or of.get("logical_cores", "")
    if own is None or not said.isdigit() or not 0 < int(said) < own or arm.arm.device != "cpu":
        return None
    return own, int(said)


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


seconds_per_call = central_time
"""Time of one call by an estimator; None without samples. Without the interval, whose jackknife
would cost more than all the rules together."""


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


def half_width(arm: Measurement, result: Result) -> float | None:
    """The widest relative half-width of what is said of the arm: ratios, or else its own time."""
    own = (c for c in result.comparisons if arm.arm.name in (c.base, c.new))
    ends = [c.interval for c in own if c.interval]
    if not ends and replicates_with_samples(arm):
        time = absolute(arm, estimator(result), 1.0 - result.method.alpha)
        ends = [(time.lo, time.hi)]
    widths = [math.sqrt(high / low) - 1 if low > 0 else math.inf for low, high in ends]
    width = max(widths, default=math.inf)
    return width if math.isfinite(width) else None
