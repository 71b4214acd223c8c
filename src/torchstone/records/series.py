"""One figure over time, ours or another tool's, and how its level changed."""

from __future__ import annotations

import collections
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchstone.records.run import CaseKey

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
