"""What a case is, how it is to be measured, and what comes out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torchstone.records import ArmSpec, Measurement
from torchstone.stats.compare import EARLY_SHARE

BUILD_TIMEOUT_S = 600.0
STEP_TIMEOUT_S = 60.0
FAST, USUAL, RIGOROUS = "fast", "usual", "rigorous"


@dataclass(frozen=True)
class Effort:
    """How much is done for an answer, by one word. Options replace budget, width and margin."""

    budget_s: float = 30.0
    within: float = 0.01
    margin: float = 0.02
    least_processes: int = 4
    most_processes: int = 12
    early_share: float = EARLY_SHARE
    """Of the chance of error, for interim analyses before the last."""
    stops_when_decided: bool = False
    """An interim analysis also ends it where every ratio is clear of the margin, or inside it."""
    forks_short_steps: bool = False
    """Steps below 10 ms are forked from templates too. Layout then varies less, and moves such
    steps by a per cent or two: less than half of the fast margin."""
    slots: int = 2
    """Templates of each kind, where forks are made."""
    checked_calls: int = 4
    """Outputs compared with the reference: one of the pass alone, the others of timed turns."""
    looks_deeper: bool = True
    """Memory of tensors, operations, and whether answers are remembered: passes of their own."""


EFFORTS = {
    FAST: Effort(
        budget_s=5.0,
        within=0.05,
        margin=0.05,
        least_processes=3,
        most_processes=6,
        early_share=0.5,
        stops_when_decided=True,
        forks_short_steps=True,
        slots=1,
        checked_calls=2,
        looks_deeper=False,
    ),
    USUAL: Effort(),
    RIGOROUS: Effort(budget_s=120.0, within=0.005, least_processes=10, most_processes=24),
}


@dataclass(frozen=True)
class ExtraChecks:
    """What is asked of an arm besides the answers of timed calls.

    `inputs` are those with which its known failures show: a wrong answer to one is the arm's
    outcome. One to `conditions` only says under which condition the arm can be used. `losses`: the
    loss after some training steps must be as good as the baseline's; `convergence`: it trains
    otherwise, so the steps until it is as good are counted. `metric` names the user's own function,
    which must not find the arm worse.
    """

    arm: str
    inputs: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    losses: bool = False
    convergence: bool = False
    metric: str = ""


@dataclass(frozen=True)
class Settings:
    """How long, how exactly, and with which chance."""

    budget_s: float = 30.0
    within: float = 0.01
    margin: float = 0.02
    seed: int = 0
    step_timeout_s: float = STEP_TIMEOUT_S
    build_timeout_s: float = BUILD_TIMEOUT_S
    loops: int | None = None
    samples: int | None = None
    replicates: int | None = None
    independent: bool = False
    """Arms compute different things: each is checked against its own reference."""
    check_outputs: bool = True
    count_flops: bool = False
    """Count the baseline's floating-point operations, in one more process."""
    turn_ns: int = 60_000_000
    alpha: float = 0.05
    together: bool = False
    """The arms of a replicate share one process, where their settings allow it."""
    effort: str = USUAL
    """One of `EFFORTS`."""
    total_s: float | None = None
    """Bounds everything: building, compiling, checks, turns."""
    until: str = "precise"
    """When to stop before the budget is spent: `precise`, every interval is within `within`;
    `decided`, every one lies on one side of the margin; `checked`, as `torchstone check` asks
    (`stats.is_decided`); `adopted`, as the tuner does."""
    extra_checks: tuple[ExtraChecks, ...] = ()
    screening: bool = False
    """Nothing is claimed by it alone: processes of short steps are forked too, and what looks too
    good is not measured again."""
    hopeless: float | None = None
    """An arm that alone takes this many times the baseline's step is not measured further."""

    @property
    def does(self) -> Effort:
        """What the effort stands for."""
        return EFFORTS[self.effort]


@dataclass(frozen=True)
class CaseSpec:
    """A baseline arm (the first) and the arms compared with it, all at the same shapes."""

    arms: tuple[ArmSpec, ...]
    settings: Settings = field(default_factory=Settings)
    until: float | None = None
    """When it must be over, by `time.monotonic`."""

    def __post_init__(self) -> None:
        if len({arm.shapes for arm in self.arms}) > 1:
            raise ValueError("the arms of a case must go through the same number of shapes")


@dataclass(frozen=True)
class CaseResult:
    """Measurements in the arms' order, and the course of the case."""

    arms: tuple[Measurement, ...]
    replicates: int
    looks: tuple[int, ...]
    alpha: float
    stopped_by: str
    elapsed_s: float
    constant: frozenset[str] = frozenset()
    """Names of arms whose reference gives the same output for inputs that differ."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Where the wall time went: seconds by what was done."""


class CaseProgress:
    """How the case went, filled in as it goes."""

    def __init__(self) -> None:
        self.replicates = 0
        self.looks: tuple[int, ...] = ()
        self.alpha = 0.05
        self.stopped_by = ""
        self.constant: set[str] = set()
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the wall time of what is done inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began

    def result(self, arms: Iterable[Measurement], started: float) -> CaseResult:
        """The case, over now, that began at this moment."""
        return CaseResult(
            arms=tuple(arms),
            replicates=self.replicates,
            looks=self.looks,
            alpha=self.alpha,
            stopped_by=self.stopped_by or "no arm left",
            elapsed_s=time.monotonic() - started,
            constant=frozenset(self.constant),
            phases=self.phases,
        )


class Events(Protocol):
    """Who wants to know how a case gets on. Called between turns only, never during one."""

    def phase(self, text: str) -> None:
        """A new part begins."""

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        """Progress within the case."""


@dataclass(frozen=True)
class ArmNow:
    """What is known of an arm by now. Provisional: shown while it is measured, never stored."""

    name: str
    seconds: float | None = None
    """Per call."""
    spread: tuple[float, float] | None = None
    speedup: float | None = None
    """Over the baseline."""
    interval: tuple[float, float] | None = None
    processes: int = 0
    """Measuring processes it rests on; 0: only on calls made while the arm ran alone."""
    unit: str = "process"
    """What `processes` counts: stretches, where all arms live in the session's own process."""
    outcome: str = ""
    """Where it did not end well."""


@runtime_checkable
class LiveEvents(Events, Protocol):
    """Who also wants provisional figures. Others are told phases and progress only."""

    def note(self, text: str) -> None:
        """What should be known at once, and stay visible."""

    def provisional(self, arms: Sequence[ArmNow]) -> None:
        """Every arm as it is known by now, the baseline first."""

    def expect(self, seconds_left: float, why: str) -> None:
        """What the whole will probably still take; `why` is what it is made of."""

    def doing(self, text: str) -> None:
        """What goes on within the part that began last."""

    def tick(self) -> None:
        """Time has passed, while nothing is timed."""


class Silent:
    """Tells nobody."""

    def phase(self, text: str) -> None:
        """Ignore."""

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        """Ignore."""
