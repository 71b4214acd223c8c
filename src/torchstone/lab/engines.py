"""Where the cases of a run are measured: here, one after another, or on the nodes of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torchstone.conductor import Events, Settings, Templates, open_templates
from torchstone.lab.bench import measure_unsaved
from torchstone.lab.metrics import metrics_of, unmeasured
from torchstone.lab.recording import Recorder, this_machine
from torchstone.lab.request import distinct
from torchstone.lab.run_plan import Group, arm_of, command_of_case
from torchstone.machine.hardware import describe_cpu
from torchstone.machine.processes import usable_cores
from torchstone.records import (
    CASE_KIND,
    CaseKey,
    CaseMetrics,
    Outcome,
    Result,
    Run,
    UsageError,
)
from torchstone.records.plugins import Registry, did_you_mean
from torchstone.store.heartbeat import Heartbeat

LOCAL = "local"
ENGINES = Registry(
    "torchstone.engines",
    {LOCAL: "torchstone.lab.engines:Local", "ray": "torchstone.lab.ray_engine:RayEngine"},
)

Placed = tuple[int, CaseMetrics]
"""A case's place in the plan, and its figures."""


class CaseEvents(Events, Protocol):
    """Who wants to know how the cases of a run get on."""

    def case_started(
        self, index: int, total: int, key: CaseKey, seconds_left: float | None
    ) -> None:
        """A case begins."""

    def case_times(self, phases: Any) -> None:
        """Where the wall time of the case that has just ended went, in seconds."""

    def note(self, text: str) -> None:
        """Something that a reader must know, such as why the run waits."""


@dataclass(frozen=True)
class Machine:
    """What a run is measured on: one kind of machine, whether one or many of it."""

    id: str
    name: str
    cores: int
    """That a process can use."""
    spare_cores: int = 0
    """Of those, left to the engine's own processes."""
    notes: tuple[str, ...] = ()
    """What a reader of the run must know, such as the nodes."""


class Clock:
    """What a group takes on average, and what that means for the rest."""

    def __init__(self, groups_left: int, total_budget_s: float | None) -> None:
        self.started = time.monotonic()
        self.left = groups_left
        self.finished = 0
        self.total_budget_s = total_budget_s

    def tick(self) -> None:
        """One more group is done."""
        self.finished += 1
        self.left -= 1

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def is_over(self) -> bool:
        """No further case may be started."""
        return self.total_budget_s is not None and self.elapsed >= self.total_budget_s

    @property
    def seconds_left(self) -> float | None:
        """By the average so far; None before the first has ended."""
        if not self.finished:
            return None
        by_average = self.elapsed / self.finished * self.left
        if self.total_budget_s is None:
            return by_average
        return min(by_average, max(0.0, self.total_budget_s - self.elapsed))


@dataclass(frozen=True)
class Work:
    """What is left of a run, and who is told about it."""

    run: Run
    groups: Sequence[Group]
    settings: Settings
    recorder: Recorder
    events: CaseEvents
    sign: Heartbeat
    clock: Clock
    before: int
    """Cases that have ended before the first group, of `total`."""
    total: int
    keep: Callable[[Result | None, Sequence[Placed]], bool]
    """Store what was measured here; False: the database refused it."""
    show: Callable[[Sequence[Placed]], None]
    """Tell of cases that were stored elsewhere."""


class Engine(Protocol):
    """Measures the groups of a run. A plug-in of `torchstone.engines` is called with the address
    that the user gave, empty without one."""

    def machine(self, db: str | None, like: str = "") -> Machine:
        """What will be measured on: of several kinds the one whose id is `like`, where it is there.
        A `UsageError` where it cannot be done, or not into this database."""

    def carry_out(self, work: Work) -> str:
        """Measure until all is done or the time is over; why it ended: `done`, `total budget`,
        `storage` or `nodes`."""

    def close(self) -> None:
        """Let go of what was held."""


@contextmanager
def open_engine(name: str, address: str) -> Iterator[Engine]:
    """The engine of that name."""
    known = ENGINES.by_name()
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"There is no engine {name!r}.", f"{hint}Known: {', '.join(known)}.")
    engine: Engine = known[name].load()(address)
    try:
        yield engine
    finally:
        engine.close()


class Local:
    """This machine, one group after another. Libraries are imported once for all cases, in
    templates."""

    def __init__(self, address: str = "") -> None:
        if address:
            raise UsageError(
                "--address names a cluster, and the local engine has none.", "Add --engine ray."
            )

    def machine(self, db: str | None, like: str = "") -> Machine:
        """This one."""
        return Machine(this_machine(), describe_cpu().get("model", ""), usable_cores())

    def carry_out(self, work: Work) -> str:
        """One group after another."""
        index = work.before
        with open_templates() as templates:
            for group in work.groups:
                if work.clock.is_over:
                    return "total budget"
                shown = group.cases[0][1].key
                work.events.case_started(index, work.total, shown, work.clock.seconds_left)
                work.sign.now(shown.name, index, work.total)
                figures, result = measure_group(
                    group, work.settings, work.recorder, work.events, templates
                )
                if not work.keep(result, figures):
                    return "storage"
                if result is not None:
                    work.events.case_times(result.method.phases)
                index += len(group.cases)
                work.clock.tick()
        return "done"

    def close(self) -> None:
        """Nothing is held."""


def measure_group(
    group: Group, settings: Settings, recorder: Recorder, events: Events, templates: Templates
) -> tuple[list[Placed], Result | None]:
    """One baseline and the arms compared with it. Whatever happens is a row."""
    first = group.cases[0][1]
    base = arm_of(first, "eager", settings.seed)
    arms = distinct([base, *(arm_of(case, seed=settings.seed) for _, case in group.cases)])
    commands = [command_of_case(case, settings) for _, case in group.cases]
    label = first.key.name
    try:
        result = measure_unsaved(
            arms, settings, recorder, events, commands[0], CASE_KIND, label, templates
        )
    except UsageError as error:  # the target itself cannot be used: an outcome like others
        words = f"{error.message} {error.remedy}".strip()
        return ended_as(group, settings, Outcome.ERROR, words), None
    if result.method.stopped_by == "interrupt":
        raise KeyboardInterrupt
    return [
        (position, metrics_of(result, case, arm.arm.name, command))
        for (position, case), arm, command in zip(
            group.cases, result.arms[1:], commands, strict=True
        )
    ], result


def ended_as(group: Group, settings: Settings, outcome: Outcome, reason: str) -> list[Placed]:
    """The rows of a group of which nothing could be measured."""
    return [
        (at, unmeasured(case, outcome, reason, command_of_case(case, settings)))
        for at, case in group.cases
    ]
