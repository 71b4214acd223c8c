"""What one command leaves behind: arms, comparisons, checks, and how it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from torchstone.records.measurement import Measurement

# A rule applied to a record.


class Level(str, Enum):
    """How much a check weighs. Only `fail` makes a number unfit to be believed."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """What one rule found: a sentence with the remedy, and the figures it used.

    `arms` names the arms it speaks of (empty: the whole result).
    """

    rule: str
    level: Level
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    arms: tuple[str, ...] = ()


# Two arms set against each other.


class Verdict(str, Enum):
    """What may be said of the new arm's time against the base's (`stats.verdict` has the rule)."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOT_SLOWER = "not slower"
    NOT_FASTER = "not faster"
    CANNOT_TELL = "cannot tell"

    @property
    def different(self) -> bool:
        """A difference is claimed."""
        return self in (Verdict.FASTER, Verdict.SLOWER)

    @property
    def undecided(self) -> bool:
        """One side or both are still open: more data could say more."""
        return self in (Verdict.NOT_SLOWER, Verdict.NOT_FASTER, Verdict.CANNOT_TELL)

    @property
    def excludes_slower(self) -> bool:
        """Slower by more than the margin is ruled out: what a gate wants to know."""
        return self in (Verdict.FASTER, Verdict.SAME, Verdict.NOT_SLOWER)


@dataclass(frozen=True)
class Estimate:
    """A time ratio (new / base) by one named estimator, with its interval."""

    estimator: str
    time_ratio: float
    interval: tuple[float, float]
    level: float
    replicates: int


@dataclass(frozen=True)
class Comparison:
    """Floor and typical ratio, each by its name, and the one that decided.

    `smallest_detectable` is the smallest relative change that this data could have shown,
    `threshold` the smallest that would have been called faster or slower, however well known.
    `deciding_budget_s` would probably show a change as small as the margin; None where this data
    could already, where an hour could not, or where it is not known. `reason` says why the verdict
    leaves something open, or what withholds it.
    """

    base: str
    new: str
    verdict: Verdict
    decided_by: str
    time_ratio: float | None = None
    interval: tuple[float, float] | None = None
    floor: Estimate | None = None
    typical: Estimate | None = None
    smallest_detectable: float | None = None
    margin: float = 0.02
    aa_floor: float = 0.0
    reason: str = ""
    threshold: float | None = None
    deciding_budget_s: float | None = None

    @property
    def speedup(self) -> float | None:
        """Base time / new time."""
        return None if not self.time_ratio else 1.0 / self.time_ratio


# What a machine was seen to be able to do: the peaks that figures are held against.

CALIBRATION_SCHEMA = 1
DRAM = "DRAM"


@dataclass(frozen=True)
class Peak:
    """One peak and where it comes from. A rate per second (FLOP, bytes, cycles), or for costs the
    seconds that one takes.

    `spread` is how far the median of the samples lies under the best, as a share of the best.
    `sparse` peaks count operations that are skipped; utilisation is never held against one.
    """

    value: float
    spread: float = 0.0
    samples: int = 0
    dtype: str = ""
    threads: int = 0
    level: str = ""
    """Of bandwidth: `L1`, `L2`, `L3` or `DRAM`, by the size of the arrays."""
    array_bytes: int = 0
    source: str = "measured"
    """`measured`, `datasheet` or `user`."""
    sparse: bool = False
    note: str = ""


@dataclass(frozen=True)
class Calibration:
    """The peaks of one device of one machine, measured in one go.

    `fingerprint` hashes what they hold for (processor, cores allowed, caches, device, torch); where
    it differs, or the calibration is older than its time, it is stale. An unknown peak is absent:
    there is no figure to fall back on.
    """

    id: str
    machine_id: str
    fingerprint: str
    created: str
    device: str = "cpu"
    device_name: str = ""
    compute: tuple[Peak, ...] = ()
    bandwidth: tuple[Peak, ...] = ()
    clock: Peak | None = None
    nominal_clock_hz: float | None = None
    costs: Mapping[str, Peak] = field(default_factory=dict)
    """`timer`, `python-call`, `dispatch`: seconds each."""
    last_level_bytes: int = 0
    torch: str = ""
    took_s: float = 0.0
    notes: tuple[str, ...] = ()
    schema: int = CALIBRATION_SCHEMA

    def peak(self, dtype: str, threads: int) -> Peak | None:
        """The measured dense peak of a dtype at a thread count, or None: it is not known."""
        return self._best(p for p in self.compute if p.dtype == dtype and p.threads == threads)

    def bandwidth_of(self, level: str, threads: int) -> Peak | None:
        """The measured bandwidth of a level at a thread count, or None."""
        return self._best(p for p in self.bandwidth if p.level == level and p.threads == threads)

    @staticmethod
    def _best(peaks: Iterable[Peak]) -> Peak | None:
        usable = [peak for peak in peaks if not peak.sparse and peak.value > 0]
        return max(usable, key=lambda peak: peak.value, default=None)


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
    """`precision`, `decided`, `budget`, `replicates`, `total`, `interrupt`, or `no arm left`."""
    elapsed_s: float = 0.0
    estimator: str = ""
    alpha: float = 0.05
    """What is left of the chance of error after the looks: intervals hold with 1 - alpha."""
    definition: int = STATISTICS_DEFINITION
    """Version of the statistics' definition; figures of two versions are never mixed."""
    together: bool = False
    """Whether the arms of a replicate were to share one process."""
    session: bool = False
    """Whether the arms were objects of one running process, measured in it: its replicates are
    stretches of time and no fresh processes."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Where the wall time went: seconds by what was done."""
    asked_replicates: int | None = None
    asked_samples: int | None = None
    """Processes, and samples a process, where so many were asked for; None: as the budget allowed.
    """
    effort: str = "usual"
    """`fast` (fewer processes and checks), `usual` or `rigorous`."""
    total_s: float | None = None
    """The bound on everything that was asked for."""

    @property
    def cut_short(self) -> bool:
        """Ended before its time: by Ctrl-C, or because the whole time was over."""
        return self.stopped_by in ("interrupt", "total")


@dataclass(frozen=True)
class Remeasurement:
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
class Evaluation:
    """What rules said of a result at a later time; the samples it speaks of never change."""

    created: str
    version: str
    checks: tuple[Check, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Pruning:
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
class SweepCase:
    """One case of a sweep: how many arms of the result it has, and how it was measured."""

    arms: int
    method: Method
    clocks_hz: tuple[float, ...] = ()


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
    """The peaks in force when it was evaluated."""
    clocks_hz: tuple[float, ...] = ()
    """The processor's real clock before and after; empty where it cannot be measured."""
    remeasurements: tuple[Remeasurement, ...] = ()
    pruned: Pruning | None = None
    """None: every sample is there."""
    signature: str = ""
    """By the installation that made it, over the code that it names (`lab.secrets`)."""
    sweep: tuple[SweepCase, ...] = ()
    """Of a sweep its cases in order, each with a baseline of its own; empty: one case."""
    schema: int = RESULT_SCHEMA

    def cases(self) -> tuple[Result, ...]:
        """The cases of a sweep, each as a result of its own; else the result itself."""
        if not self.sweep:
            return (self,)
        found, first = [], 0
        for case in self.sweep:
            arms = self.arms[first : first + case.arms]
            names = {arm.arm.name for arm in arms}
            found.append(
                replace(
                    self,
                    arms=arms,
                    method=case.method,
                    comparisons=tuple(c for c in self.comparisons if c.new in names),
                    checks=tuple(c for c in self.checks if not c.arms or names & {*c.arms}),
                    clocks_hz=case.clocks_hz,
                    remeasurements=tuple(r for r in self.remeasurements if r.new in names),
                    sweep=(),
                )
            )
            first += case.arms
        return tuple(found)


# What the doctor found about a machine as a place to measure on.

DOCTOR_SCHEMA = 1


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, its figure, and what would help.

    `level` is ok, note (worth knowing, or not to be seen here), warn or fail. `fixes` are commands
    that would help; the doctor prints them and never runs them.
    """

    name: str
    level: Level
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    remedy: str = ""
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DoctorReport:
    """All findings at one time. `identical` is the ratio of two identical arms measured for a few
    seconds; `smallest_detectable` is the smallest difference that such a run could have shown."""

    id: str
    machine_id: str
    created: str
    findings: tuple[Finding, ...]
    identical: Estimate | None = None
    smallest_detectable: float | None = None
    calibration: str = ""
    """The id of the calibration in force, empty where there is none."""
    machine: Mapping[str, str] = field(default_factory=dict)
    schema: int = DOCTOR_SCHEMA

    @property
    def fit(self) -> bool:
        """Whether figures measured here, now, can be believed."""
        return all(finding.level is not Level.FAIL for finding in self.findings)
