"""What tuning a target found: every experiment, the steps that were adopted, and the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from torchstone.records.measurement import ArmSpec, Environment

TUNING_SCHEMA = 1
GOALS = ("speed", "memory", "latency", "throughput")


class Decision(str, Enum):
    """What became of a technique in an experiment."""

    ADOPTED = "adopted"
    PROMISING = "promising"
    """Worth a test in the selection, which is made with data of its own."""
    REJECTED = "rejected"
    CANNOT_TELL = "cannot tell"
    WRONG_ANSWER = "wrong answer"
    FAILED = "failed"
    """It crashed, ran out of memory, hung or raised an error."""
    STOPPED = "stopped early"
    NOT_APPLICABLE = "not applicable"
    NOT_ALLOWED = "not allowed"
    NOT_RUN = "not run"

    @property
    def measured(self) -> bool:
        """Whether anything was run for it."""
        return self not in (Decision.NOT_APPLICABLE, Decision.NOT_ALLOWED, Decision.NOT_RUN)


class Stage(str, Enum):
    """Why an experiment was made."""

    SCREEN = "screen"
    """Each technique alone, on top of the baseline."""
    SELECT = "select"
    """One more technique on top of what was adopted until then."""
    CONFIRM = "confirm"
    """The recipe file against the baseline."""


@dataclass(frozen=True)
class Experiment:
    """One technique put to the test in processes of its own."""

    stage: Stage
    technique: str
    decision: Decision
    reason: str = ""
    on: tuple[str, ...] = ()
    """The techniques that the arm it is compared with has already."""
    arm: ArmSpec | None = None
    tier: str = ""
    """What the technique may do to the answer."""
    shown_tier: str = ""
    """What its answers were seen to be: `bitwise` or `tolerance`; empty where nothing was."""
    share: float | None = None
    """The share of a step that it could touch at most, by the ledger."""
    time_ratio: float | None = None
    interval: tuple[float, float] | None = None
    """Of the time ratio (new / what it is compared with), at 1 - `alpha`."""
    alpha: float = 0.05
    memory_ratio: float | None = None
    """Peak of tensors (new / what it is compared with)."""
    step_s: float | None = None
    peak_bytes: int | None = None
    compile_s: float | None = None
    break_even_calls: float | None = None
    """Calls after which the time saved has paid for compiling."""
    conditions: tuple[str, ...] = ()
    """Sentences: where it must not be used."""
    metric: float | None = None
    result_id: str = ""
    seconds: float = 0.0
    """Wall time of its case, shared among the arms of the case."""

    @property
    def speedup(self) -> float | None:
        """How many times as fast."""
        return 1 / self.time_ratio if self.time_ratio else None

    @property
    def techniques(self) -> tuple[str, ...]:
        """All techniques of its arm."""
        return (*self.on, self.technique)


@dataclass(frozen=True)
class Tuning:
    """One run of `torchstone tune`."""

    id: str
    created: str
    arm: ArmSpec
    """The baseline."""
    goal: str = "speed"
    allow: str = "tolerance"
    budget_s: float = 600.0
    alpha: float = 0.05
    margin: float = 0.02
    seed: int = 0
    metric: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    """What was fixed before the first experiment, in sentences."""
    experiments: tuple[Experiment, ...] = ()
    adopted: tuple[str, ...] = ()
    state: str = "running"
    """`complete`, `interrupted`, `out of time` or `running` (also where it was killed)."""
    recipe: str = ""
    """The text of the recipe file; empty where nothing was adopted."""
    recipe_path: str = ""
    ledger_id: str = ""
    hypotheses: Mapping[str, float] = field(default_factory=dict)
    """By technique: the share of a step that it could touch at most."""
    findings: tuple[str, ...] = ()
    """What the ledger names and no technique can apply, with the remedy by hand."""
    environment: Environment | None = None
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    version: str = ""
    schema: int = TUNING_SCHEMA

    @property
    def ladder(self) -> tuple[Experiment, ...]:
        """The adopted steps in order."""
        return tuple(
            one
            for one in self.experiments
            if one.stage is Stage.SELECT and one.decision is Decision.ADOPTED
        )

    @property
    def confirmation(self) -> Experiment | None:
        """The newest test of the recipe file."""
        found = [one for one in self.experiments if one.stage is Stage.CONFIRM]
        return found[-1] if found else None
