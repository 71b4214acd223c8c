"""A ledger: where the wall time of one steady step goes, level by level, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records.measurement import ArmSpec, Environment

LEDGER_SCHEMA = 1
OFF_CPU, PYTHON, FRONT_END, BACK_END, ABSTRACTION, HARDWARE, REST = 0, 1, 2, 3, 4, 5, -1
LEVEL_NAMES = {
    PYTHON: "Python",
    FRONT_END: "PyTorch front end",
    BACK_END: "PyTorch back end",
    OFF_CPU: "off the CPU",
    REST: "not explained",
    ABSTRACTION: "hardware abstraction",
    HARDWARE: "hardware",
}
"""In the order in which they are shown."""


@dataclass(frozen=True)
class LedgerPart:
    """One of the things that a line is made of: an op, a kernel, a function."""

    name: str
    seconds: float
    calls: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class LedgerLine:
    """One item. Levels 1 to 3, off-CPU time (0) and the rest (-1) divide the step's wall time;
    levels 4 and 5 each divide the kernels' time of level 3 once more."""

    level: int
    name: str
    """`interpreter`, `dispatch`, `kernels`, …: the same in every ledger."""
    title: str
    seconds: float
    share: float
    """Of the step's wall time."""
    spread: float = 0.0
    """Half the range of the middle half of the rounds, as a share of the wall time."""
    parts: tuple[LedgerPart, ...] = ()
    estimated: bool = False
    """By a model (so many calls at so much), not by a clock around it."""
    note: str = ""


@dataclass(frozen=True)
class OpCost:
    """All calls of one op or generated kernel in a step."""

    name: str
    calls: float
    kernel_s: float
    front_s: float
    generated: bool = False
    ops: tuple[str, ...] = ()
    """Of a generated kernel: the ops that it stands for."""


@dataclass(frozen=True)
class SourceLine:
    """A place in the user's code, and what happened there."""

    reason: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class CodeSite:
    """A line of the user's code that does what it need not: what its ops have of a step."""

    kind: str
    """`batch-loop`, `small-copies`, `same-value`, `item`, `float64`, `cast` or `strided-input`."""
    file: str
    line: int
    source: str = ""
    """The text of the line."""
    ops: tuple[str, ...] = ()
    """Most often called first, with their calls: `aten::addmm ×128`."""
    calls: float = 0.0
    """Of all ops of the site in a step."""
    call_share: float = 0.0
    """Of the calls of all ops that Python made."""
    kernel_share: float = 0.0
    """Of the time that the kernels of those ops took."""
    repeats: int = 0
    """Times in a step."""
    saved_s: float = 0.0
    """What was measured to go, where that could be tried."""
    detail: str = ""


@dataclass(frozen=True)
class Remedy:
    """What can be tried by itself: changes to the arm."""

    variant: str = ""
    threads: int = 0
    allocator: str = ""
    technique: str = ""
    """A modifier of the variant: `channels_last`, `no_grad`, `gc_freeze`, `fused_optimizer`."""

    @property
    def applicable(self) -> bool:
        """Whether there is anything to apply."""
        return bool(self.variant or self.threads or self.allocator or self.technique)


@dataclass(frozen=True)
class Prediction:
    """A finding that can be tested: after the remedy a step takes this share of its time."""

    name: str
    level: int
    title: str
    evidence: str
    advice: str
    at_stake_s: float
    """Time of a step that the remedy is after."""
    time_ratio: tuple[float, float]
    """Lowest and highest time after, as a share of the time before."""
    remedy: Remedy = field(default_factory=Remedy)
    places: tuple[SourceLine, ...] = ()
    why_not: str = ""
    """Why it cannot be applied by itself."""


@dataclass(frozen=True)
class Verification:
    """A prediction put to the test: both arms measured in turns."""

    finding: str
    predicted: tuple[float, float]
    measured: float | None = None
    interval: tuple[float, float] | None = None
    held: bool | None = None
    """None where it could not be tested, or the measurement cannot tell."""
    sentence: str = ""
    result_id: str = ""


@dataclass(frozen=True)
class Ledger:
    """One arm's step."""

    arm: ArmSpec
    wall_s: float
    """Of an undisturbed step with nobody looking: what levels 0 to 3 and the rest add up to."""
    cpu_s: float
    """Of the critical thread."""
    lines: tuple[LedgerLine, ...]
    steps: int
    rounds: int
    ops: tuple[OpCost, ...] = ()
    findings: tuple[Prediction, ...] = ()
    verifications: tuple[Verification, ...] = ()
    breaks: tuple[SourceLine, ...] = ()
    recompiles: tuple[SourceLine, ...] = ()
    sites: tuple[CodeSite, ...] = ()
    """Lines of the user's code that findings are made of."""
    graphs: int = 0
    late_compiles: int = 0
    interpreter: str = ""
    """One sentence: with or without a lock, and how long threads waited for it."""
    hardware: tuple[str, ...] = ()
    """Sentences of levels 4 and 5."""
    tracing: float = 0.0
    """Wall time of a traced step, as a share of an untraced one."""
    checks: tuple[str, ...] = ()
    """Reasons to doubt it."""
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    environment: Environment | None = None
    id: str = ""
    created: str = ""
    version: str = ""
    schema: int = LEDGER_SCHEMA

    def line(self, name: str) -> LedgerLine | None:
        """The line of that name."""
        return next((line for line in self.lines if line.name == name), None)

    def share(self, name: str) -> float:
        """Its share of the wall time; 0 where there is no such line."""
        found = self.line(name)
        return found.share if found else 0.0

    def level(self, level: int) -> tuple[LedgerLine, ...]:
        """The lines of a level."""
        return tuple(line for line in self.lines if line.level == level)


@dataclass(frozen=True)
class OpChange:
    """One op, or one generated kernel, in two ledgers."""

    name: str
    kind: str
    """`appeared`, `vanished`, `fused`, `grew`, `shrank`."""
    before_s: float
    after_s: float
    calls_before: float = 0.0
    calls_after: float = 0.0
    into: tuple[str, ...] = ()
    """Of a fused op: the kernels that stand for it now."""


@dataclass(frozen=True)
class Difference:
    """Two ledgers side by side: why the new one is faster or slower."""

    base: Ledger
    new: Ledger
    changes: tuple[OpChange, ...]
    sentences: tuple[str, ...]
    schema: int = LEDGER_SCHEMA
