"""Stored runs set against each other and seen over time: what pages, reports and gates read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from torchstone.records.result import Verdict
from torchstone.records.run import CaseKey, CaseMetrics, Mean, SuiteSummary

COMPARISON_DEFINITION = 2
"""Version of what the fields of `RunComparison` mean (docs/reference/figures.md)."""


@dataclass(frozen=True)
class RunHead:
    """A run without its plan and its cases: what a list, an axis or a droplist shows of it.

    `state` is `complete` (every planned case has ended), `running` (the program that measures it
    is alive), or `interrupted`.
    """

    id: str
    created: str
    created_s: float | None = None
    label: str = ""
    commit: str = ""
    branch: str = ""
    dirty: bool = False
    machine_id: str = ""
    machine: str = ""
    torch: str = ""
    origin: str = "here"
    tier: str = ""
    suites: tuple[str, ...] = ()
    planned: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How many cases ended in each way so far; only those that occur."""
    state: str = "complete"

    @property
    def done(self) -> int:
        """How many cases have ended."""
        return sum(self.outcomes.values())


@dataclass(frozen=True)
class Choices:
    """Every value that occurs in stored runs, for droplists and for messages; sorted.

    There may be thousands of branches, builds of torch and machines: those come newest first.
    """

    suites: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    allocators: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    torches: tuple[str, ...] = ()
    machines: Mapping[str, str] = field(default_factory=dict)
    """The machine's description by its id."""


class Conditions(NamedTuple):
    """What the noise of a measurement depends on, beside the machine."""

    threads: int
    allocator: str
    step_class: str
    """The order of magnitude of a step (`track.compare.step_class`)."""


@dataclass(frozen=True)
class Selection:
    """Which cases and runs are looked at. Empty fields leave everything in.

    `since_s` and `until_s` are UTC seconds; a run belongs to the range by when it was made.
    """

    suite: str = ""
    model: str = ""
    scale: str = ""
    mode: str = ""
    precision: str = ""
    variant: str = ""
    device: str = ""
    threads: int | None = None
    allocator: str = ""
    machine_id: str = ""
    branch: str = ""
    torch: str = ""
    since_s: float | None = None
    until_s: float | None = None


@dataclass(frozen=True)
class GroupPoint:
    """The figures of a suite in one run: a point of a trend."""

    run: RunHead
    summary: SuiteSummary


@dataclass(frozen=True)
class CasePoint:
    """One case in one run: a point of a model's history."""

    run: RunHead
    figures: CaseMetrics


@dataclass(frozen=True)
class FailureSpan:
    """A case that fails now, and since when.

    `last_good` is the last run before in which it passed and `first_bad` the first one after that
    in which it ended otherwise; None where no run shows it. Only runs of one machine and branch
    are lined up.
    """

    figures: CaseMetrics
    first_bad: RunHead | None
    last_good: RunHead | None
    runs_failing: int = 1


@dataclass(frozen=True)
class Ratio:
    """New over base, with the interval at `level`; None where there is no error to make it from."""

    value: float
    interval: tuple[float, float] | None = None
    level: float = 0.95


class ChangeKind(str, Enum):
    """What became of a case between two runs."""

    PAIRED = "paired"
    """It passes in both."""
    NEWLY_FAILING = "newly failing"
    NEWLY_PASSING = "newly passing"
    FAILING = "failing"
    """In both."""
    ONLY_BASE = "only in base"
    ONLY_NEW = "only in new"


@dataclass(frozen=True)
class CaseChange:
    """One case in two runs. `speedup` is the new run's speed-up over the base run's: above
    1 is better. `verdict` speaks of it, after Benjamini and Hochberg over all paired cases of its
    suite; `alone` is what it would be by itself. `baseline_time` and `arm_time` are the new run's
    time of the baseline (eager) and of the arm (compiled) over the base run's; they carry the
    machine's drift between the runs, and `moved` says which of the two explains the change of the
    speed-up: `arm`, `baseline`, `both`, `neither` or `cannot tell`.
    """

    key: CaseKey
    kind: ChangeKind
    base: CaseMetrics | None = None
    new: CaseMetrics | None = None
    speedup: Ratio | None = None
    verdict: Verdict | None = None
    alone: Verdict | None = None
    moved: str = ""
    baseline_time: float | None = None
    arm_time: float | None = None
    compile_cold: float | None = None
    compile_warm: float | None = None
    memory: float | None = None
    """The arm's peak in the new run over that in the base run: above 1 is worse."""
    threshold: float | None = None
    """The smallest relative change of the speed-up that is believed: the least effect that the
    verdict was held to (`stats.least_effect`)."""
    deciding_budget_s: float | None = None
    """Of the case in both runs, which would probably show a change as small as the margin; None
    where nothing is open, where an hour would not do, or where it is not known."""
    costs_changed: tuple[str, ...] = ()
    """Of `compile_cold`, `compile_warm` and `memory`: those beyond the group's threshold."""

    @property
    def paired(self) -> bool:
        """Whether it passes in both runs."""
        return self.kind is ChangeKind.PAIRED

    @property
    def in_both(self) -> bool:
        """Whether both runs have it, passing or not."""
        return self.base is not None and self.new is not None

    @property
    def both(self) -> tuple[CaseMetrics, CaseMetrics]:
        """The case in both runs; only for a case that both have."""
        if self.base is None or self.new is None:
            raise ValueError(f"{self.key.name} is not in both runs")
        return self.base, self.new


@dataclass(frozen=True)
class GroupChange:
    """All cases of two runs that differ in their model alone.

    `base` and `new` are the figures of each run over all its cases, `base_common` and `new_common`
    the geometric mean speed-ups over the cases that pass in both; `speedup` is the ratio of the
    latter. `drift` is how much slower the baselines of the new run were in the middle: the
    machine's doing, or that of a change to the baseline itself.
    """

    key: CaseKey
    """Its `model` is empty."""
    base: SuiteSummary | None
    new: SuiteSummary | None
    common: int
    paired: int
    base_common: Mean
    new_common: Mean
    speedup: Ratio | None
    verdict: Verdict | None
    compile_cold: Mean
    compile_warm: Mean
    memory: Mean
    """Geometric means of the ratios new / base over paired cases that have the figure."""
    drift: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of `CaseChange.kind` and, for paired cases, of the verdicts."""
    threshold: float | None = None
    """The smallest relative change of the mean speed-up that is believed."""
    cost_thresholds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By name of the cost, the relative changes beyond which a case's and the mean's are called
    so; made from the spread of the group's own ratios. None of a cost that too few cases have."""
    costs_changed: tuple[str, ...] = ()
    """The costs whose mean lies beyond its threshold."""


@dataclass(frozen=True)
class RunComparison:
    """Two stored runs, case by case. `refused` says why there is no comparison, if there is none;
    `marks` what a reader must know to evaluate it (another machine, another torch)."""

    base: RunHead
    new: RunHead
    groups: tuple[GroupChange, ...] = ()
    cases: tuple[CaseChange, ...] = ()
    refused: str = ""
    remedy: str = ""
    marks: tuple[str, ...] = ()
    margin: float = 0.02
    """A change within this is called `same` when its whole interval is."""
    false_discovery_rate: float = 0.05
    threshold_source: str = ""
    """Where the thresholds of the verdicts come from, in words."""
    drift: float | None = None
    """The middle of the baselines' time ratios, new over base, over the whole comparison."""
    drift_spread: float | None = None
    """Their robust relative standard deviation."""
    drift_of: int = 0
    """How many baselines that is made from."""
    definition: int = COMPARISON_DEFINITION
