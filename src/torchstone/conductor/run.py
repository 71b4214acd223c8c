"""The story of a case: references, each arm alone, then turns in fresh processes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torchstone.conductor.case import CaseProgress, CaseResult, CaseSpec, Events, Settings, Silent
from torchstone.conductor.extra_checks import check_further
from torchstone.conductor.launch import (
    CaseContext,
    Launcher,
    Templates,
    open_templates,
)
from torchstone.conductor.live import IMPORTING, REFERENCE, Live
from torchstone.conductor.measuring import OUT_OF_TIME, last_alpha, measure_arms
from torchstone.conductor.references import (
    PendingReference,
    References,
    begin_references,
    count_flops,
    finish_references,
)
from torchstone.conductor.solo import (
    check_solo,
    check_structure,
    solo_pass,
    stop_if_hopeless,
    warm_toolchain,
)
from torchstone.conductor.state import ArmState
from torchstone.conductor.turn_scheduler import check_asked
from torchstone.conductor.worker import ArmEnded, OutOfTime, clean, ended_by, patience
from torchstone.machine.folders import own_folder
from torchstone.machine.processes import memory_available, usable_cores
from torchstone.measure.channel import CountReport
from torchstone.records import ArmSpec, Measurement, Outcome, UsageError
from torchstone.records.format import count, format_seconds
from torchstone.workloads import is_suite_model
from torchstone.workloads.target import parse_target

NO_SAMPLE = "Interrupted before a sample was taken."
NO_TIME = "The time of --total was over before a sample was taken."
MORE_TIME = "Give more time, or --fast."
ROOM_FOR_IDLE = 6 * 2**30
"""Free memory below which no process waits beside the one that is looked at alone."""


def run_case(
    case: CaseSpec, events: Events | None = None, templates: Templates | None = None
) -> CaseResult:
    """Measure every arm; deaths and wrong answers are outcomes, Ctrl-C keeps what there is.

    `templates` outlive the case where others follow it.
    """
    check_asked(case.settings)
    started = time.monotonic()
    states = [ArmState(spec) for spec in case.arms]
    progress = CaseProgress()
    with ExitStack() as stack:
        templates = templates or stack.enter_context(open_templates())
        launcher = Launcher(stack.enter_context(own_folder()), templates, case.until)
        events = events or Silent()
        live = Live(events, case.settings, states)
        context = CaseContext(launcher, case.settings, events, progress, live)
        live.note(too_many_threads(case.arms, usable_cores()))
        try:
            references = prepare_arms(context, states)
            if case.settings.count_flops and states[0].alive:
                with progress.phase("count operations"):
                    set_work(states, work_of(context, states[0], references))
            measure_arms(context, states, references)
        except KeyboardInterrupt as ended:
            _keep(states, progress, case.settings, out_of_time=isinstance(ended, OutOfTime))
    return CaseResult(
        arms=tuple(state.measurement() for state in states),
        replicates=progress.replicates,
        looks=progress.looks,
        alpha=progress.alpha,
        stopped_by=progress.stopped_by or "no arm left",
        elapsed_s=time.monotonic() - started,
        constant=frozenset(progress.constant),
        phases=progress.phases,
    )


def too_many_threads(arms: Sequence[ArmSpec], cores: int) -> str:
    """Said before anything runs; empty where every arm has a core for each thread."""
    asked = {arm.threads for arm in arms if arm.device == "cpu" and (arm.threads or 0) > cores}
    if not asked:
        return ""
    many = ", ".join(str(number) for number in sorted(filter(None, asked)))
    return (
        f"{many} threads on {count(cores, 'core')}: they will wait for each other. "
        f"--threads {cores} or fewer gives each a core."
    )


def _keep(
    states: Sequence[ArmState], progress: CaseProgress, settings: Settings, out_of_time: bool
) -> None:
    """What there is when a case ends before its time."""
    progress.stopped_by = OUT_OF_TIME if out_of_time else "interrupt"
    if progress.looks:  # some of the chance of error may have been spent by now
        progress.alpha = last_alpha(progress.looks, settings)
    message, remedy = (NO_TIME, MORE_TIME) if out_of_time else (NO_SAMPLE, "")
    for state in states:
        if not state.turns and state.outcome is Outcome.OK:
            state.wrong(Outcome.NOT_RUN, f"{message}{_alone(state)}", "", remedy)


def _alone(state: ArmState) -> str:
    """What is known of an arm without samples: no figure of a result, and better than nothing."""
    if state.solo is None:
        return ""
    return f" Alone, a call took about {format_seconds(state.solo.step_ns / 1e9, 2)}."


def prepare_arms(case: CaseContext, states: Sequence[ArmState]) -> dict[str, References]:
    """References and solo passes. Returns, by arm, the references that evaluate it."""
    settings, progress = case.settings, case.progress
    case.live.step(IMPORTING, IMPORTING)
    specs, base = [state.spec for state in states], states[0]
    suite = all(map(is_suite_model, specs))
    # Steps of suites' models are mostly long, and their replicates need both templates.
    slots = settings.does.slots if suite else 1
    with progress.phase("import libraries"):
        if suite:
            case.launcher.import_ahead(specs, settings.build_timeout_s, slots)
        else:  # a person waits for the baseline's first figure: what others need comes after it
            case.launcher.import_first(specs, settings.build_timeout_s)
    made: dict[str, References | ArmEnded] = {}
    judged_by: dict[str, References] = {}
    for state in states:
        if state is not base:
            with progress.phase("import libraries"):
                case.launcher.import_ahead(specs, settings.build_timeout_s, slots)
        with progress.phase("warm toolchain"):
            state.toolchain_ns = warm_toolchain(case, state.spec)
        with _reference_beside(case, state, base) as begun:
            with progress.phase(f"{state.spec.name} alone"):
                evidence = solo_pass(case, state)
            case.live.forecast()
            if evidence is None or not settings.check_outputs:
                continue
            evaluate_by = state if settings.independent else base
            with progress.phase("reference"):
                reference = _references_of(case, evaluate_by, made, begun)
        if isinstance(reference, ArmEnded):
            check_structure(state, evaluate_by, reference.detail.message, settings.independent)
            continue
        if state is evaluate_by:
            state.notes += reference.report.notes
        if reference.report.constant:
            progress.constant.add(state.spec.name)
        check_solo(state, evaluate_by, reference, evidence, settings.independent)
        stop_if_hopeless(state, base, settings)
        check_further(case, state, base)
        judged_by[state.spec.name] = reference
    return judged_by


@contextmanager
def _reference_beside(
    case: CaseContext, state: ArmState, base: ArmState
) -> Iterator[PendingReference | None]:
    """The reference at work while the baseline runs alone, where it has cores of its own.

    Nothing that is compared is timed there: an eager arm compiles nothing, memory is its own
    process's, and what a step takes is only looked at to plan the turns. Only of a suite's small
    models, which are sure to fit into memory side by side.
    """
    spec = state.spec
    threads = spec.threads or usable_cores()
    if (
        state is not base
        or not case.settings.check_outputs
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
    begun = begin_references(case, spec, 0)
    try:
        yield begun
    finally:
        begun.worker.kill()


def work_of(case: CaseContext, base: ArmState, references: dict[str, References]) -> CountReport:
    """What a step of the baseline does, as counted beside its reference or by itself."""
    reference = references.get(base.spec.name)
    if reference is not None and reference.work is not None:
        return reference.work
    return count_flops(case, base.spec)


def set_work(states: Sequence[ArmState], work: CountReport) -> None:
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
    case: CaseContext,
    state: ArmState,
    made: dict[str, References | ArmEnded],
    begun: PendingReference | None,
) -> References | ArmEnded:
    name = state.spec.name
    if name not in made:
        case.live.step(f"{REFERENCE} {name}", f"{name}: reference in float64")
        begun = begun or begin_references(case, state.spec, len(made))
        made[name] = finish_references(case, begun)
    return made[name]


# Arms looked at but not timed: contract, agreement with the reference, behaviour at the edges.

BEHAVIOUR_KEPT = 160
BOUNDARY_CASES = ("batch of one", "empty batch", "non-contiguous", "wrong dtype", "wrong device")


@dataclass(frozen=True)
class Inspection:
    """One arm: its record without samples, and what it does in each boundary case."""

    measurement: Measurement
    boundary: dict[str, str]


def inspect_arms(
    arms: Sequence[ArmSpec], settings: Settings, events: Events | None = None
) -> list[Inspection]:
    """The solo pass of every arm, then the boundary cases of those that ran."""
    states = [ArmState(spec) for spec in arms]
    with own_folder() as folder:
        events = events or Silent()
        live = Live(events, settings, states, measures=False)
        case = CaseContext(Launcher(folder), settings, events, live=live)
        prepare_arms(case, states)
        return [
            Inspection(state.measurement(), _boundary(case, state) if state.solo else {})
            for state in states
        ]


def _boundary(case: CaseContext, state: ArmState) -> dict[str, str]:
    """A case that kills the worker is recorded as such, and the others get a new worker."""
    case.events.phase(f"{state.spec.name}: boundary inputs")
    waiting = patience(case.settings, slack_s=case.settings.build_timeout_s)
    found: dict[str, str] = {}
    while len(found) < len(BOUNDARY_CASES):
        left = [case for case in BOUNDARY_CASES if case not in found]
        worker = case.launcher.start(state.spec)
        try:
            command = {"do": "boundary", "arm": state.spec, "cases": left}
            found.update(worker.ask(command, waiting))
        except (ArmEnded, UsageError) as error:
            ended = ended_by(error, worker.phase) if isinstance(error, UsageError) else error
            reached = worker.phase.removeprefix("boundary ")
            fatal = reached if reached in left else left[0]
            found[fatal] = f"{ended.outcome.value}: {ended.detail.message}"
        finally:
            worker.kill()
    # They quote user code, and a contract is made to be shown around.
    return {case: clean(text, state.spec)[:BEHAVIOUR_KEPT] for case, text in found.items()}
