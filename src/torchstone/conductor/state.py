"""What is known of an arm while its case runs. Frozen into a `Measurement` at the end.

What is known while a case runs: its steps, provisional figures, and what is left to do.

Nothing here is stored, and nothing here decides anything. It is computed between rounds, at most
once a second, and only where somebody watches (`LiveEvents`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torchstone import stats
from torchstone.conductor.case import ArmNow, Events, LiveEvents, Settings, Silent
from torchstone.conductor.worker import ArmEnded
from torchstone.measure.channel import Seen, SoloReport
from torchstone.records import (
    Agreement,
    ArmSpec,
    CompileCost,
    Flops,
    Integrity,
    Measurement,
    Outcome,
    OutcomeDetail,
    Replicate,
    Turn,
)


@dataclass
class ArmState:
    """One arm on its way through the case."""

    spec: ArmSpec
    solo: SoloReport | None = None
    outcome: Outcome = Outcome.OK
    detail: OutcomeDetail = field(default_factory=OutcomeDetail)
    agreement: Agreement | None = None
    loops: int = 1
    probe_bits: int | None = None
    turns: list[Turn] = field(default_factory=list)
    replicates: list[Replicate] = field(default_factory=list)
    late_recompiles: int = 0
    integrity: Integrity | None = None
    toolchain_ns: int | None = None
    flops: Flops | None = None
    notes: list[str] = field(default_factory=list)
    _before_end: tuple[Outcome, OutcomeDetail] = field(
        default=(Outcome.OK, OutcomeDetail()), init=False
    )

    @property
    def alive(self) -> bool:
        """Worth another turn."""
        return self.solo is not None and self.outcome.comparable

    @property
    def changes(self) -> frozenset[str]:
        """Contract fields that the variant may change."""
        return frozenset(self.solo.changes) if self.solo else frozenset()

    @property
    def sources(self) -> Mapping[str, str]:
        """Hashes of the arm's own source files when it ran alone, by path."""
        return self.solo.sources if self.solo else {}

    def end(self, ended: ArmEnded) -> None:
        """The worker died or failed: that is the arm's outcome."""
        self._before_end = self.outcome, self.detail
        self.outcome, self.detail = ended.outcome, ended.detail

    def forgive(self) -> None:
        """Take the last end back: what was known of the arm before it holds again."""
        self.outcome, self.detail = self._before_end

    def wrong(self, outcome: Outcome, message: str, phase: str, remedy: str = "") -> None:
        """The arm ran but did not do what it should."""
        self.outcome = outcome
        self.detail = OutcomeDetail(message=message, phase=phase, remedy=remedy)

    def note_integrity(self, seen: Integrity) -> None:
        """Keep the worst of what was seen over all turns."""
        old = self.integrity or Integrity()
        self.integrity = replace(
            old,
            patched_timers=tuple(sorted({*old.patched_timers, *seen.patched_timers})),
            new_threads=max(old.new_threads, seen.new_threads),
            profilers=tuple(sorted({*old.profilers, *seen.profilers})),
            debug_settings=tuple(sorted({*old.debug_settings, *seen.debug_settings})),
            threads_seen=tuple(sorted({*old.threads_seen, *seen.threads_seen})),
        )

    def measurement(self) -> Measurement:
        """The frozen record."""
        solo = self.solo
        graphs = solo.graphs if solo else None
        if graphs is not None:
            graphs = replace(graphs, late_recompiles=self.late_recompiles)
        return Measurement(
            arm=self.spec,
            outcome=self.outcome,
            detail=self.detail,
            loops=self.loops,
            turns=tuple(self.turns),
            replicates=tuple(self.replicates),
            contract=solo.contract if solo else None,
            agreement=self.agreement,
            environment=solo.environment if solo else None,
            compile=self._compile_cost(),
            memory=solo.memory if solo else None,
            graphs=graphs,
            integrity=self.integrity,
            flops=self.flops,
            fault_cost_ns=solo.fault_cost_ns if solo else None,
            notes=tuple(self.notes),
            probe_bits=self.probe_bits,
        )

    def _compile_cost(self) -> CompileCost | None:
        """First-call cost above a steady call; warm from the first measuring process."""
        if self.solo is None or self.spec.statement is not None:
            return None
        steady = self.solo.step_ns
        warm = self.replicates[0].warm_up.first_call_ns - steady if self.replicates else None
        return CompileCost(
            cold_ns=max(0, self.solo.first_call_ns - steady),
            warm_ns=None if warm is None else max(0, warm),
            toolchain_ns=self.toolchain_ns,
            first_call_ns=self.solo.first_call_ns,
            steady_ns=steady,
        )


IMPORTING, REFERENCE, MEASURING = "importing libraries", "reference", "measuring"
EVERY_S = 1.0
COST_SHARE = 0.05
"""Figures are computed again only when this share of the time since is what the last ones cost."""
COMPILE_S = {"inductor": 25.0, "aoti": 40.0}
"""A first guess of what compiling takes, before it was seen: a small GPT took 15 to 40 s on two
cores. Any other variant: `OTHER_COMPILE_S`."""
OTHER_COMPILE_S = 5.0
REFERENCE_TIMES = 1.5
"""What references take, in times of what the baseline took alone."""
WARM_COMPILE = 0.15
"""Of a cold compilation, for a process that finds the cache filled."""
_DOING = {
    "import": "importing",
    "build": "building",
    "first call": "first call",
    "contract": "checking its output",
    "step": "memory",
    "warm-up": "warming up",
}
"""What a worker says it is at, in words."""


@dataclass
class Live:
    """The course of one case, for whoever watches it."""

    events: Events = field(default_factory=Silent)
    settings: Settings = field(default_factory=Settings)
    states: Sequence[ArmState] = ()
    measures: bool = True
    clock: Callable[[], float] = time.monotonic
    unit: str = "process"

    def __post_init__(self) -> None:
        self._watcher = self.events if isinstance(self.events, LiveEvents) else None
        self.steps = steps_of([state.spec for state in self.states], self.settings, self.measures)
        self._took: dict[str, float] = {}
        self._step, self._began = "", self.clock()
        self._rows: dict[str, ArmNow] = {}
        self._next = 0.0

    def note(self, text: str) -> None:
        """Say at once what should be known before anything runs."""
        if self._watcher is not None and text:
            self._watcher.note(text)

    # Steps.

    def step(self, name: str, text: str) -> None:
        """The next of the case's steps begins, or another part of it."""
        if name == self._step and self._watcher is not None:
            self._watcher.doing(f"{text}{self._place()}")
            return
        self._end_step()
        self._step, self._began = name, self.clock()
        self.events.phase(f"{text}{self._place()}")

    def _place(self) -> str:
        if self._step not in self.steps:
            return ""
        return f" (step {self.steps.index(self._step) + 1} of {len(self.steps)})"

    def _end_step(self) -> None:
        if self._step:
            self._took[self._step] = self.clock() - self._began
            self._step = ""

    # While a worker is waited for and nothing is timed against anything.

    def listener(self, state: ArmState) -> Callable[[object], None] | None:
        """What a worker that runs this arm alone is to report to; None where nobody watches."""
        watcher = self._watcher
        if watcher is None:
            return None

        def heard(said: object) -> None:
            if isinstance(said, Seen):
                self.seen(state, said)
            elif isinstance(said, str):
                compiles = said == "first call" and not state.spec.is_eager
                doing = "compiling" if compiles else _DOING.get(said, said)
                watcher.doing(f"{state.spec.name}: {doing}{self._place()}")
            else:
                watcher.tick()

        return heard

    def ticking(self) -> Callable[[object], None] | None:
        """The same for a worker of which only the time is told."""
        watcher = self._watcher
        if watcher is None:
            return None
        return lambda said: watcher.tick() if said is None else None

    def seen(self, state: ArmState, said: Seen) -> None:
        """Calls that were made while the arm ran alone: the first provisional figure."""
        if self._watcher is None or not said.call_ns:
            return
        calls = sorted(said.call_ns)
        long = calls[0] >= stats.LONG_STEP_NS
        seconds = calls[len(calls) // 2 if long else 0] / 1e9
        base = self._rows.get(self.states[0].spec.name) if self.states else None
        speedup = base.seconds / seconds if base and base.seconds and seconds else None
        if state is self.states[0]:
            speedup = None
        self._rows[state.spec.name] = ArmNow(state.spec.name, seconds, speedup=speedup)
        self._publish()

    # Figures from turns.

    def round(self, done: bool = False) -> None:
        """After a round of turns, or when a process of every arm is through (`done`)."""
        now = self.clock()
        if self._watcher is None or not (done or now >= self._next):
            return
        for row in provisional(self.states):
            self._rows[row.name] = row
        self._next = now + max(EVERY_S, (self.clock() - now) / COST_SHARE)
        self._publish()

    def _publish(self) -> None:
        rows = [self._rows.get(s.spec.name, ArmNow(s.spec.name)) for s in self.states]
        ended = [s.outcome.words if s.outcome is not Outcome.OK else "" for s in self.states]
        if self._watcher is not None:
            self._watcher.provisional(
                [
                    ArmNow(row.name, outcome=end) if end else replace(row, unit=self.unit)
                    for row, end in zip(rows, ended, strict=True)
                ]
            )

    # How long it will take.

    def expect(self, seconds: float, why: str) -> None:
        """Say what is still to come, where the caller knows it."""
        if self._watcher is not None:
            self._watcher.expect(seconds, why)

    def forecast(self) -> None:
        """Say what is still to come, from what the steps until now took."""
        self._end_step()
        if self._watcher is None or not self.states:
            return
        parts = expected(self.states, self.settings, self.steps, self._took)
        words = ", ".join(f"{name} {round(s)} s" for name, s in parts.items() if s >= 1)
        self._watcher.expect(sum(parts.values()), words)


def steps_of(arms: Sequence[ArmSpec], settings: Settings, measures: bool = True) -> list[str]:
    """The steps of a case by name, in order."""
    steps = [IMPORTING]
    for number, arm in enumerate(arms):
        steps.append(arm.name)
        checked = settings.check_outputs and arm.statement is None
        if checked and (number == 0 or settings.independent):
            steps.append(f"{REFERENCE} {arm.name}")
    return [*steps, MEASURING] if measures else steps


def expected(
    states: Sequence[ArmState], settings: Settings, steps: Sequence[str], took: dict[str, float]
) -> dict[str, float]:
    """Seconds of what has not been done yet, by what it is."""
    base = states[0].spec.name
    alone = took.get(base, 1.0)
    parts = dict.fromkeys(("compiling", "checks", "starting processes", "measuring"), 0.0)
    by_name = {state.spec.name: state for state in states}
    start_s = 0.0
    for state in states:
        compiling = _compiling(state, took.get(state.spec.name))
        start_s = max(start_s, 0.5 * alone + WARM_COMPILE * compiling)
        if state.spec.name not in took:
            parts["compiling"] += compiling
            parts["checks"] += alone
    for step in steps:
        if step not in took and step not in by_name and step.startswith(REFERENCE):
            parts["checks"] += REFERENCE_TIMES * alone
    if MEASURING in steps:
        does = settings.does
        processes = settings.replicates or does.least_processes
        parts["starting processes"] = processes * start_s
        parts["measuring"] = settings.budget_s * (0.5 if does.stops_when_decided else 1.0)
    return parts


def _compiling(state: ArmState, took: float | None) -> float:
    if not state.spec.compiles:
        return 0.0
    guess = COMPILE_S.get(state.spec.backend, OTHER_COMPILE_S)
    return guess if took is None else took


def provisional(states: Sequence[ArmState]) -> list[ArmNow]:
    """Arms that have samples: times and ratios as a report would have them, at 95 %."""
    arms = [state.measurement() for state in states]
    base = arms[0]
    if not base.turns:
        return []
    name = stats.estimator_of(base)
    rows = []
    for arm in arms:
        if not arm.turns:
            continue
        time, processes = _time(arm, name), len(stats.replicates_with_samples(arm))
        if arm is base:
            rows.append(
                ArmNow(arm.arm.name, time.value, _ends(time.lo, time.hi), None, None, processes)
            )
            continue
        found = stats.ratio(base, arm, name)
        if not found.time_ratio or not math.isfinite(found.time_ratio):
            continue
        low, high = found.interval
        rows.append(
            ArmNow(
                arm.arm.name,
                time.value,
                _ends(time.lo, time.hi),
                1 / found.time_ratio,
                _ends(1 / high if high else 0.0, 1 / low if low else math.inf),
                processes,
            )
        )
    return rows


def _time(arm: Measurement, name: str) -> stats.Interval:
    """By the estimator that leads; where no floor is known by now, the typical time."""
    found = stats.absolute(arm, name)
    known = math.isfinite(found.value)
    return found if known else stats.absolute(arm, stats.TYPICAL_ESTIMATOR)


def _ends(low: float, high: float) -> tuple[float, float] | None:
    return (low, high) if 0 < low <= high < math.inf else None
