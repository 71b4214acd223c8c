"""Stored runs set against each other and seen over time: what pages, reports and gates read.

One figure over time, ours or another tool's, and how its level changed.

What `torchstone check` finds: each target at two revisions, what the controls did, the answer.

A report is written as JSON where code of a pull request ran and may be read where it must not be
trusted, so it says everything that is shown, and nothing that is run.
"""

from __future__ import annotations

import collections
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
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


OURS = "torchstone"
"""The tool of a series that was measured here."""


@dataclass(frozen=True)
class SeriesKey:
    """One metric of one benchmark under one setting, on one machine and branch."""

    tool: str
    suite: str
    """Of a model; of another tool's benchmark the project."""
    name: str
    """The model, or the other tool's benchmark."""
    parameters: str = ""
    """Mode, precision and variant; or the benchmark's own parameters."""
    metric: str = ""
    unit: str = "seconds"
    """`seconds`, `bytes`, `ratio`, `count`, or the other tool's word."""
    better: str = "lower"
    machine: str = ""
    environment: str = ""
    """The branch; of another tool the environment that it built."""
    version: str = ""
    """Of the benchmark itself: values of two versions are not one series."""

    @property
    def title(self) -> str:
        """In a table or over a chart."""
        if self.tool == OURS:
            return f"{self.name} {self.parameters}".strip()
        return f"{self.name}({self.parameters})" if self.parameters else self.name


class SeriesRun(NamedTuple):
    """What a value of a series is of. `id` is the run's, or the file that was imported."""

    id: str
    at: float
    commit: str = ""
    torch: str = ""
    machine: str = ""
    branch: str = ""


class CaseRow(NamedTuple):
    """One case in one run: numbers of its series, machine and branch and run, whether it
    passed, and the wanted metrics in their order."""

    series: int
    lane: int
    run: int
    passes: int | None
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class ImportedRun:
    """One file of another tool: the results of one commit in one environment."""

    machine: str
    environment: str
    commit: str
    at: float
    source: str
    digest: bytes
    branch: str = ""


@dataclass(frozen=True)
class ImportedHistory:
    """What another tool's files hold over time. Numbers are by place in `runs`; NaN: it failed."""

    tool: str
    project: str
    runs: tuple[ImportedRun, ...]
    series: Mapping[SeriesKey, tuple[array[int], array[float]]]
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> int:
        """How many there are."""
        return sum(len(values) for _, values in self.series.values())


@dataclass(frozen=True)
class ImportReport:
    """What was added, and how many files were there already."""

    runs: int = 0
    known: int = 0
    series: int = 0
    values: int = 0


@dataclass(frozen=True)
class LevelChange:
    """A series has another level from a run on.

    `ratio` is the new level over the old one, with its interval; `worse` says whether that is bad
    news. `first_bad` is the first run of the new level and `last_good` the one before it; with
    other noise it might have been any run from `earliest` to `latest`.
    """

    id: str
    key: SeriesKey
    last_good: SeriesRun
    first_bad: SeriesRun
    earliest: SeriesRun
    latest: SeriesRun
    ratio: float
    interval: tuple[float, float]
    before: float
    after: float
    strength: float
    worse: bool
    state: str = "open"
    """`open`, `confirmed`, `acknowledged`, `muted` or `closed`."""
    reason: str = ""
    """Of the state."""
    until: str = ""
    """When a mute ends."""
    moved: str = ""
    """`compiled`, `eager`, `both` or empty: which side of a speed-up has another time."""
    machine: str = ""
    """Why it may be the machine rather than the code; empty where nothing says so."""
    ledger: str = ""
    """What grew in the step's ledger, where one is stored on both sides."""
    values_before: int = 0
    values_after: int = 0
    case: CaseKey | None = None
    """Of a series of ours: what was measured."""


@dataclass(frozen=True)
class MissingData:
    """Something that used to be measured and is not."""

    what: str
    """`run`, `suite` or `model`."""
    name: str
    since: SeriesRun
    """The last run that has it."""
    detail: str


@dataclass(frozen=True)
class FalseAlarms:
    """How often a series without a change would be flagged, tried on this database's own noise."""

    rate: float | None
    interval: tuple[float, float]
    flagged: int
    tested: int
    factor: float
    expected: float
    """How many of the series looked at would be flagged by chance."""


@dataclass(frozen=True)
class ChangeReport:
    """All changes of the series that were looked at."""

    changes: tuple[LevelChange, ...]
    missing: tuple[MissingData, ...] = ()
    series: int = 0
    values: int = 0
    short: int = 0
    """Series with too few values to look at."""
    least: float = 0.03
    false_alarms: FalseAlarms = field(
        default_factory=lambda: FalseAlarms(None, (0.0, 1.0), 0, 0, 1.0, 0.0)
    )
    asked: str = ""
    """Which series, in words."""

    def of_state(self, state: str) -> tuple[LevelChange, ...]:
        """Those that got worse and are in that state; `better` are the improvements."""
        if state == "better":
            return tuple(one for one in self.changes if not one.worse)
        return tuple(one for one in self.changes if one.worse and one.state == state)


TOGETHER = 5
"""Series of a machine that changed at one run from which on they are one alarm: fewer are as
quickly read one by one."""


@dataclass(frozen=True)
class ChangeGroup:
    """Changes, one way, of several series of a machine that may all have begun at one run."""

    last_good: SeriesRun
    first_bad: SeriesRun
    changes: tuple[LevelChange, ...]


def group_changes(
    changes: Sequence[LevelChange],
) -> tuple[tuple[ChangeGroup, ...], tuple[LevelChange, ...]]:
    """Changes that share their run, the largest groups first, and those that stand alone.

    A change belongs to the run at which most others of its machine changed the same way, of those
    at which it may as well have begun itself.
    """
    lanes: dict[tuple[object, ...], list[LevelChange]] = defaultdict(list)
    for one in changes:
        key = one.key
        lanes[key.tool, key.suite, key.machine, key.environment, one.worse].append(one)
    groups: list[ChangeGroup] = []
    together: set[int] = set()
    for several in lanes.values():
        first = {one.first_bad: one for one in reversed(several)}
        found: dict[SeriesRun, list[LevelChange]] = defaultdict(list)
        order = collections.Counter(one.first_bad for one in several).most_common()
        for one in several:
            ends = sorted((one.earliest.at, one.latest.at, one.first_bad.at))
            near = (run for run, _ in order if run == one.first_bad or ends[0] <= run.at <= ends[2])
            found[next(near)].append(one)
        for run, members in found.items():
            if len(members) >= TOGETHER:
                groups.append(ChangeGroup(first[run].last_good, run, tuple(members)))
                together.update(map(id, members))
    groups.sort(key=lambda group: (-len(group.changes), -group.first_bad.at))
    return tuple(groups), tuple(one for one in changes if id(one) not in together)


CHECK_SCHEMA = 1


class Status(str, Enum):
    """What is known of a target. The order is that of a report: the worst first."""

    SLOWER = "slower"
    WRONG_ANSWER = "wrong answer"
    FAILS = "fails now"
    NOT_COMPARED = "not compared"
    CANNOT_TELL = "cannot tell"
    NOT_SLOWER = "not slower"
    FASTER = "faster"
    SAME_CODE = "same code"
    ADDED = "added"

    @property
    def bad(self) -> bool:
        """The change made it so: exit code 1."""
        return self in (Status.SLOWER, Status.WRONG_ANSWER, Status.FAILS)


@dataclass(frozen=True)
class Revision:
    """One side. `name` is the word it was asked for by."""

    commit: str
    name: str = ""
    subject: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class CheckedTarget:
    """A target, or a control, at both revisions. Ratios are times, new / base.

    `same_code`: what it imported from the repository is the same in both trees, so whatever its
    times do is not the change. `first_ratio` is what was seen before a slow-down was measured a
    second time; the others are then of both measurements together. `file` and `line` say where it
    is defined.
    """

    target: str
    status: Status
    reason: str = ""
    time_ratio: float | None = None
    interval: tuple[float, float] | None = None
    base_s: float | None = None
    new_s: float | None = None
    same_code: bool = False
    first_ratio: float | None = None
    deciding_budget_s: float | None = None
    result_ids: tuple[str, ...] = ()
    file: str = ""
    line: int | None = None
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class Shift:
    """How far several targets moved together. `real`: further than chance and identical arms go."""

    ratio: float
    interval: tuple[float, float] | None
    n: int
    real: bool


@dataclass(frozen=True)
class CheckReport:
    """One `torchstone check`. `controls` are what the change cannot touch; `control_shift` is what
    they did together, and `corrected` says that it was taken out of every ratio."""

    base: Revision
    new: Revision
    margin: float
    targets: tuple[CheckedTarget, ...]
    controls: tuple[CheckedTarget, ...] = ()
    control_shift: Shift | None = None
    suite_shift: Shift | None = None
    corrected: bool = False
    on_unknown: str = ""
    created: str = ""
    version: str = ""
    machine: str = ""
    command: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    interrupted: bool = False
    schema: int = CHECK_SCHEMA


# What `torchstone bisect` finds.


@dataclass(frozen=True)
class ProbedCommit:
    """One measurement of a commit against GOOD: the log of its time over GOOD's and the error that
    it counts with. Without them, why there is none."""

    revision: Revision
    number: int = 0
    log_ratio: float | None = None
    error: float | None = None
    result_id: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Culprit:
    """A commit and the chance that it changed the time, with the log effect if it did."""

    revision: Revision
    posterior: float
    log_effect: float
    merge: bool = False


@dataclass(frozen=True)
class BisectReport:
    """One search. `answer` is `one`, `two`, `range` (one of neighbours of which no more can be
    measured), `none` (the ends do not differ), or empty: not certain enough. `none` and `two` are
    the chances of these."""

    good: Revision
    bad: Revision
    target: str
    confidence: float
    answer: str
    culprits: tuple[Culprit, ...]
    commits: int
    none: float
    two: float
    probes: tuple[ProbedCommit, ...]
    skipped: tuple[ProbedCommit, ...] = ()
    resumed: int = 0
    interrupted: bool = False
    command: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    schema: int = CHECK_SCHEMA
