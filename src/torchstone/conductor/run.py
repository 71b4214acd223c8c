"""The story of a case: references, each arm alone, then turns in fresh processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchstone import stats
from torchstone.conductor.case import CaseProgress, CaseResult, CaseSpec, Events, Settings, Silent
from torchstone.conductor.launch import (
    SLOTS,
    CaseContext,
    Launcher,
    Templates,
    open_templates,
)
from torchstone.conductor.measuring import measure_arms
from torchstone.conductor.references import (
    PendingReference,
    References,
    begin_references,
    count_flops,
    finish_references,
)
from torchstone.conductor.solo import check_solo, check_structure, solo_pass, warm_toolchain
from torchstone.conductor.state import ArmState
from torchstone.conductor.turn_scheduler import check_asked
from torchstone.conductor.worker import ArmEnded, clean, ended_by, patience
from torchstone.machine.processes import memory_available, usable_cores
from torchstone.measure.channel import CountReport
from torchstone.records import ArmSpec, Measurement, Outcome, UsageError
from torchstone.workloads import is_suite_model
from torchstone.workloads.target import parse_target

NO_SAMPLE = "Interrupted before a sample was taken."
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
        launcher = Launcher(stack.enter_context(case_folder()), templates)
        context = CaseContext(launcher, case.settings, events or Silent(), progress)
        try:
            references = prepare_arms(context, states)
            if case.settings.count_flops and states[0].alive:
                with progress.phase("count operations"):
                    set_work(states, work_of(context, states[0], references))
            measure_arms(context, states, references)
        except KeyboardInterrupt:
            progress.stopped_by = "interrupt"
            if progress.looks:  # some of the chance of error may have been spent by now
                last = len(progress.looks) - 1
                progress.alpha = stats.alpha_at(last, progress.looks, case.settings.alpha)
            for state in states:
                if not state.turns and state.outcome is Outcome.OK:
                    state.wrong(Outcome.NOT_RUN, NO_SAMPLE, "")
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


@contextmanager
def case_folder() -> Iterator[Path]:
    """Payload, caches and evidence of one case; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="torchstone-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare_arms(case: CaseContext, states: Sequence[ArmState]) -> dict[str, References]:
    """References and solo passes. Returns, by arm, the references that evaluate it."""
    settings, progress = case.settings, case.progress
    case.events.phase("importing libraries")
    with progress.phase("import libraries"):
        specs = [state.spec for state in states]
        # Steps of suites' models are mostly long, and their replicates need both templates.
        slots = SLOTS if all(map(is_suite_model, specs)) else 1
        case.launcher.import_ahead(specs, settings.build_timeout_s, slots)
    base = states[0]
    made: dict[str, References | ArmEnded] = {}
    judged_by: dict[str, References] = {}
    for state in states:
        with progress.phase("warm toolchain"):
            state.toolchain_ns = warm_toolchain(case, state.spec)
        with _reference_beside(case, state, base) as begun:
            with progress.phase(f"{state.spec.name} alone"):
                evidence = solo_pass(case, state)
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
        case.events.phase(f"{name}: reference in float64")
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
    with case_folder() as folder:
        case = CaseContext(Launcher(folder), settings, events or Silent())
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
