"""The story of a case: references, each arm alone, then turns in fresh processes."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchstone import stats
from torchstone.conductor.case import CaseResult, CaseSpec, Events, Settings, Silent
from torchstone.conductor.launch import Launcher
from torchstone.conductor.patience import patience
from torchstone.conductor.plan import Plan, check_asked, cycle_seconds, make_plan
from torchstone.conductor.references import (
    REFERENCE_CACHE,
    Begun,
    References,
    Work,
    begin_references,
    count_flops,
    finish_references,
)
from torchstone.conductor.rounds import Budget, Rounds
from torchstone.conductor.solo import judge_form, judge_solo, solo_pass, warm_toolchain
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded
from torchstone.machine.cgroup import usable_cores
from torchstone.machine.processes import memory_available
from torchstone.measure.warmup import SLOW_STATEMENT_NS
from torchstone.records import ArmSpec, Outcome
from torchstone.workloads import is_suite_model
from torchstone.workloads.target import parse_target

MEMORY_SHARE = 0.8
"""Arms are resident together when their solo peaks take at most this share of free memory."""
SAMPLE_LIMIT_NS = 50_000_000
NO_SAMPLE = "Interrupted before a sample was taken."
ROOM_FOR_IDLE = 6 * 2**30
"""Free memory below which no process waits beside the one that is looked at alone."""


def run_case(case: CaseSpec, events: Events | None = None) -> CaseResult:
    """Measure every arm; deaths and wrong answers are outcomes, Ctrl-C keeps what there is."""
    check_asked(case.settings)
    events = events or Silent()
    started = time.monotonic()
    states = [ArmState(spec) for spec in case.arms]
    course = Course()
    with case_folder() as folder:
        launcher = Launcher(folder)
        try:
            references = prepare_arms(launcher, states, case.settings, events, course)
            if case.settings.count_flops and states[0].alive:
                set_work(states, work_of(launcher, states[0], case.settings, references, events))
            measure_arms(launcher, states, case.settings, references, events, course)
        except KeyboardInterrupt:
            course.stopped_by = "interrupt"
            if course.looks:  # some of the chance of error may have been spent by now
                last = len(course.looks) - 1
                course.alpha = stats.alpha_at(last, course.looks, case.settings.alpha)
            for state in states:
                if not state.turns and state.outcome is Outcome.OK:
                    state.wrong(Outcome.NOT_RUN, NO_SAMPLE, "")
    return CaseResult(
        arms=tuple(state.measurement() for state in states),
        replicates=course.replicates,
        looks=course.looks,
        alpha=course.alpha,
        stopped_by=course.stopped_by or "no arm left",
        elapsed_s=time.monotonic() - started,
        constant=frozenset(course.constant),
    )


class Course:
    """How the case went, filled in as it goes."""

    def __init__(self) -> None:
        self.replicates = 0
        self.looks: tuple[int, ...] = ()
        self.alpha = 0.05
        self.stopped_by = ""
        self.constant: set[str] = set()


@contextmanager
def case_folder() -> Iterator[Path]:
    """Payload, caches and evidence of one case; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="torchstone-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare_arms(
    launcher: Launcher,
    states: Sequence[ArmState],
    settings: Settings,
    events: Events,
    course: Course,
) -> dict[str, References]:
    """References and solo passes. Returns, by arm, the references that judge it."""
    try:
        launcher.import_ahead(_first_workers(states, settings), patience(settings))
        return _prepare_each(launcher, states, settings, events, course)
    finally:
        launcher.dismiss()


def _first_workers(
    states: Sequence[ArmState], settings: Settings
) -> list[tuple[ArmSpec, str | None]]:
    """The baseline's solo process, its reference's, and the next arm's solo process.

    Only of a suite's models, whose libraries take seconds to import, and no more than three, where
    there is room: an idle process holds half a gigabyte.
    """
    if memory_available() < ROOM_FOR_IDLE:
        return []
    specs = [state.spec for state in states[:2] if is_suite_model(state.spec)]
    wanted: list[tuple[ArmSpec, str | None]] = [(spec, None) for spec in specs]
    if settings.check_outputs and states[0].spec in specs:
        wanted.append((states[0].spec, REFERENCE_CACHE))
    return wanted


def _prepare_each(
    launcher: Launcher,
    states: Sequence[ArmState],
    settings: Settings,
    events: Events,
    course: Course,
) -> dict[str, References]:
    base = states[0]
    made: dict[str, References | ArmEnded] = {}
    judged_by: dict[str, References] = {}
    for state in states:
        state.toolchain_ns = warm_toolchain(launcher, state.spec, settings)
        with _reference_beside(launcher, state, base, settings) as begun:
            evidence = solo_pass(launcher, state, settings, events)
            if evidence is None or not settings.check_outputs:
                continue
            judge_by = state if settings.independent else base
            reference = _references_of(launcher, judge_by, settings, events, made, begun)
        if isinstance(reference, ArmEnded):
            judge_form(state, judge_by, reference.detail.message, settings.independent)
            continue
        if state is judge_by:
            state.notes += reference.report.notes
        if reference.report.constant:
            course.constant.add(state.spec.name)
        judge_solo(state, judge_by, reference, evidence, settings.independent)
        judged_by[state.spec.name] = reference
    return judged_by


@contextmanager
def _reference_beside(
    launcher: Launcher, state: ArmState, base: ArmState, settings: Settings
) -> Iterator[Begun | None]:
    """The reference at work while the baseline runs alone, where it has cores of its own.

    Nothing that is compared is timed there: an eager arm compiles nothing, memory is its own
    process's, and what a step takes is only looked at to plan the turns. Only of a suite's small
    models, which are sure to fit into memory side by side.
    """
    spec = state.spec
    threads = spec.threads or usable_cores()
    if (
        state is not base
        or not settings.check_outputs
        or not (
            is_suite_model(spec)
            and parse_target(spec.target).scale == "small"
            and spec.variant == "eager"
        )
        or spec.device != "cpu"
        or usable_cores() < 2 * threads
        or memory_available() < ROOM_FOR_IDLE
    ):
        yield None
        return
    begun = begin_references(launcher, spec, settings, 0)
    try:
        yield begun
    finally:
        begun.worker.kill()


def work_of(
    launcher: Launcher,
    base: ArmState,
    settings: Settings,
    references: dict[str, References],
    events: Events,
) -> Work:
    """What a step of the baseline does, as counted beside its reference or by itself."""
    reference = references.get(base.spec.name)
    if reference is not None and reference.work is not None:
        return reference.work
    return count_flops(launcher, base.spec, settings, events)


def set_work(states: Sequence[ArmState], work: Work) -> None:
    """The baseline's count holds for every arm that computes the same in the same precision.

    It is one of the base shape, so it says nothing of arms that are timed at others.
    """
    base = states[0].spec
    if work.note:
        states[0].notes.append(work.note)
    for state in states:
        same = all(
            getattr(state.spec, name) == getattr(base, name)
            for name in ("target", "statement", "mode", "precision", "shapes")
        )
        state.flops = work.flops if same and state.spec.shapes == 1 else None


def _references_of(
    launcher: Launcher,
    state: ArmState,
    settings: Settings,
    events: Events,
    made: dict[str, References | ArmEnded],
    begun: Begun | None,
) -> References | ArmEnded:
    name = state.spec.name
    if name not in made:
        events.phase(f"{name}: reference in float64")
        begun = begun or begin_references(launcher, state.spec, settings, len(made))
        made[name] = finish_references(launcher, begun, settings)
    return made[name]


def measure_arms(
    launcher: Launcher,
    states: Sequence[ArmState],
    settings: Settings,
    references: dict[str, References],
    events: Events,
    course: Course,
) -> None:
    """Replicates until the intervals are narrow enough, the budget is spent, or no arm is left."""
    _pin_loops(states)
    _pin_probes(launcher, states)
    alone = not _fit_together(states)
    budget = Budget(settings.budget_s)
    chance = random.Random(settings.seed)
    rounds = Rounds(launcher, settings, chance, references, states[0], events, budget)
    plan: Plan | None = None
    start_s = 0.0

    def plan_when_steady(sample_ns: list[int]) -> Plan:
        nonlocal plan, start_s
        start_s = time.monotonic() - began
        budget.start()
        if plan is None:
            arms = len([state for state in states if state.alive])
            every = sample_ns * (arms if alone else 1)
            cycle_s = cycle_seconds(settings, every, states[0].spec.shapes)
            slow_s = min(sample_ns) / 1e9 if _slow_statements(states, sample_ns) else 0.0
            plan = make_plan(settings, start_s * (arms if alone else 1), cycle_s, slow_s)
            course.looks = _looks(settings, plan)
        return plan

    index = 0
    while any(state.alive for state in states):
        events.phase(f"measuring: process {index + 1}" + (f" of {plan.replicates}" if plan else ""))
        alive = [state for state in states if state.alive]
        for group in [[state] for state in alive] if alone else [alive]:
            began = time.monotonic()
            rounds.replicate(group, index, plan_when_steady, alone)
        again = not alone and _forgive_oom(states)
        alone = alone or again
        index += 1
        course.replicates = index
        if plan is None or again:
            continue  # whoever is to be tried again is tried, also after the last process planned
        course.stopped_by = _stopped_by(states, settings, plan, course, index, budget, start_s)
        if course.stopped_by:
            return


def _slow_statements(states: Sequence[ArmState], sample_ns: Sequence[int]) -> bool:
    """Whether all arms are statements of which every execution counts."""
    timed = all(state.spec.statement is not None for state in states)
    return timed and min(sample_ns) >= SLOW_STATEMENT_NS


def _looks(settings: Settings, plan: Plan) -> tuple[int, ...]:
    """When precision is looked at: never before the end where the number was asked for."""
    return (plan.replicates,) if settings.replicates is not None else stats.looks(plan.replicates)


def _stopped_by(
    states: Sequence[ArmState],
    settings: Settings,
    plan: Plan,
    course: Course,
    index: int,
    budget: Budget,
    start_s: float,
) -> str:
    """Why to stop now, or nothing. Precision is looked at only at the preset looks."""
    if index >= plan.replicates:
        course.alpha = stats.alpha_at(len(course.looks) - 1, course.looks, settings.alpha)
        return "replicates" if settings.replicates is not None else "budget"
    if settings.replicates is not None:
        return ""  # so many were asked for
    if index in course.looks:
        alpha = stats.alpha_at(course.looks.index(index), course.looks, settings.alpha)
        if _is_precise(states, alpha, settings.within):
            course.alpha = alpha
            return "precision"
    # Slower starts than planned must not run far past the budget; three processes are the least.
    if index >= 3 and budget.left() < start_s:
        course.alpha = stats.alpha_at(len(course.looks) - 1, course.looks, settings.alpha)
        return "budget"
    return ""


def _is_precise(states: Sequence[ArmState], alpha: float, within: float) -> bool:
    """Every ratio to the baseline is known well enough; of a single arm, its time."""
    arms = [state.measurement() for state in states if state.alive and state.turns]
    name = stats.DECIDING_ESTIMATOR
    if len(arms) == 1:
        found = stats.absolute(arms[0], name, 1 - alpha)
        return stats.is_precise((found.lo, found.hi), within)
    return stats.stop([stats.ratio(arms[0], arm, name, 1 - alpha) for arm in arms[1:]], within)


def _forgive_oom(states: Sequence[ArmState]) -> bool:
    """A kill for want of memory with other arms resident is not believed until it happens alone."""
    killed = [state for state in states if state.outcome is Outcome.OOM and state.solo is not None]
    for state in killed:
        state.notes.append("killed for want of memory beside the other arms; tried again alone")
        state.forgive()
    return bool(killed)


def _pin_loops(states: Sequence[ArmState]) -> None:
    """The same block of calls for all arms, unless the slowest one's sample would be long."""
    alive = [state for state in states if state.alive and state.solo is not None]
    if not alive:
        return
    most = max(state.loops for state in alive)
    slowest = max(state.solo.step_ns for state in alive if state.solo is not None)
    if most * slowest <= SAMPLE_LIMIT_NS:
        for state in alive:
            state.loops = most


def _pin_probes(launcher: Launcher, states: Sequence[ArmState]) -> None:
    """One size of probe for all processes of an interpreter: their times are compared."""
    sizes: dict[str, int | None] = {}
    for state in states:
        if state.alive and state.solo is not None:
            python = launcher.interpreter(state.spec)
            state.probe_bits = sizes.setdefault(python, state.solo.probe_bits)


def _fit_together(states: Sequence[ArmState]) -> bool:
    needed = 0
    for state in states:
        if state.alive and state.solo is not None and state.solo.memory is not None:
            memory = state.solo.memory
            needed += memory.before_bytes + memory.most_bytes
    return needed <= MEMORY_SHARE * memory_available()
