"""What `torchstone check` finds: each target at two revisions, what the controls did, the answer.

A report is written as JSON where code of a pull request ran and may be read where it must not be
trusted, so it says everything that is shown, and nothing that is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
