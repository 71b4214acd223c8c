"""What one command leaves behind: arms, comparisons, checks, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records.calibration import Calibration
from torchstone.records.check import Check
from torchstone.records.comparison import Comparison
from torchstone.records.measurement import Measurement

RESULT_SCHEMA = 1
STATISTICS_DEFINITION = 2
"""Version of what estimators, intervals and verdicts mean. 2: pairs of neighbouring calls decide
for steps of 10 ms and more; `not slower` and `not faster`; a difference comes before `same`."""


@dataclass(frozen=True)
class Method:
    """The settings and the course of the measurement itself."""

    budget_s: float
    within: float
    margin: float
    seed: int
    step_timeout_s: float
    build_timeout_s: float
    independent: bool = False
    replicates: int = 0
    looks: tuple[int, ...] = ()
    stopped_by: str = ""
    """`precision`, `budget`, `replicates`, `interrupt`, or `no arm left`."""
    elapsed_s: float = 0.0
    estimator: str = ""
    alpha: float = 0.05
    """What is left of the chance of error after the looks: intervals hold with 1 - alpha."""
    definition: int = STATISTICS_DEFINITION
    """Version of the statistics' definition; figures of two versions are never mixed."""
    together: bool = False
    """Whether the arms of a replicate were to share one process."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Where the wall time went: seconds by what was done."""
    asked_replicates: int | None = None
    asked_samples: int | None = None
    """Processes, and samples a process, where so many were asked for; None: as the budget allowed.
    """


@dataclass(frozen=True)
class SecondLook:
    """A comparison that looked too good, measured once more: new processes, other inputs."""

    base: str
    new: str
    seed: int
    first_speedup: float
    speedup: float | None
    interval: tuple[float, float] | None = None
    """Of the time ratio, as in a comparison."""
    outcome: str = "ok"
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """What rules said of a result at a later time; the samples it speaks of never change."""

    created: str
    version: str
    checks: tuple[Check, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Thinning:
    """Says that a stored result's samples, and what was read turn by turn, were removed to save
    space. Its arms have no turns then; comparisons, checks and the figures of its cases are those
    derived before.
    """

    created: str
    command: tuple[str, ...]
    version: str
    samples: int
    """How many were removed, of all arms and kinds."""
    digest: str
    """Of the whole result, as it was stored: a copy of the database that has it can be found."""


@dataclass(frozen=True)
class Result:
    """One case: the baseline is the first arm. `origin` is `here` or where it was imported from."""

    id: str
    created: str
    command: tuple[str, ...]
    arms: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...]
    checks: tuple[Check, ...]
    method: Method
    kind: str = "bench"
    origin: str = "here"
    label: str = ""
    version: str = ""
    calibration: Calibration | None = None
    """The roofs in force when it was judged."""
    clocks_hz: tuple[float, ...] = ()
    """The processor's real clock before and after; empty where it cannot be measured."""
    second_looks: tuple[SecondLook, ...] = ()
    thinned: Thinning | None = None
    """None: every sample is there."""
    signature: str = ""
    """By the installation that made it, over the code that it names (`lab.installation`)."""
    schema: int = RESULT_SCHEMA
