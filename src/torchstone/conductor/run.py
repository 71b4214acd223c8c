"""The story of a case: references, each arm alone, then turns in fresh processes.

The second part of a case: fresh processes whose arms take turns, until enough is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from torchstone import stats
from torchstone.conductor.case import CaseProgress, CaseResult, CaseSpec, Events, Settings, Silent
from torchstone.conductor.extra_checks import check_further
from torchstone.conductor.launch import CaseContext, Launcher, Templates, open_templates
from torchstone.conductor.solo import (
    PendingReference,
    References,
    begin_references,
    check_solo,
    check_structure,
    count_flops,
    finish_references,
    solo_pass,
    stop_if_hopeless,
    warm_toolchain,
)
from torchstone.conductor.state import IMPORTING, MEASURING, REFERENCE, ArmState, Live
from torchstone.conductor.turn_scheduler import (
    Plan,
    TurnScheduler,
    check_asked,
    cycle_seconds,
    make_plan,
    may_share,
)
from torchstone.conductor.worker import ArmEnded, OutOfTime, clean, ended_by, patience
from torchstone.machine.folders import own_folder
from torchstone.machine.processes import memory_available, usable_cores
from torchstone.measure.channel import CountReport
from torchstone.measure.warmup import SLOW_STATEMENT_NS
from torchstone.records import ArmSpec, Estimate, Measurement, Outcome, UsageError
from torchstone.records.format import count, format_seconds
from torchstone.workloads import is_suite_model
from torchstone.workloads.target import parse_target

MEMORY_SHARE = 0.8
"""Arms are resident together when their solo peaks take at most this share of free memory."""
SAMPLE_LIMIT_NS = 50_000_000
PRECISE, DECIDED, OUT_OF_TIME = "precision", "decided", "total"
"""Why it ended; the others are `budget`, `replicates`, `interrupt` and `no arm left`."""
CHECKED, ADOPTED = "checked", "adopted"
"""Beside `DECIDED`, settings of `Settings.until`."""
TIME_USED = 0.9
"""Of the time that is left, for starting processes and turns; the rest is for checks."""
LEAST_BUDGET_S = 0.5
MOST_AHEAD = 3
"""Replicates whose processes are built side by side: two cores have enough to do with three."""


def measure_arms(
    case: CaseContext, states: Sequence[ArmState], references: dict[str, References]
) -> None:
    """Replicates until the intervals are narrow enough, the budget is spent, or no arm is left."""
    settings = case.settings
    pin_loops(states)
    _pin_probes(case.launcher, states)
    one_call = call_by_call(states, settings)
    forked = one_call or settings.does.forks_short_steps or settings.screening
    rounds = TurnScheduler(case, references, states[0], forked)
    rounds.together = settings.together and not _apart(states)
    if forked:
        with case.progress.phase("import libraries"):
            alive = [state.spec for state in states if state.alive]
            case.launcher.import_ahead(alive, settings.build_timeout_s, settings.does.slots)
    try:
        _replicates(case, rounds, states, one_call, forked)
    finally:
        rounds.dismiss()


def _replicates(
    case: CaseContext,
    rounds: TurnScheduler,
    states: Sequence[ArmState],
    one_call: bool,
    forked: bool,
) -> None:
    settings, progress, index = case.settings, case.progress, 0
    alone = _fitting(states) < 1
    plan: Plan | None = None

    def plan_when_steady(sample_ns: list[int]) -> Plan:
        nonlocal plan
        if plan is None:
            arms = len([state for state in states if state.alive])
            every = sample_ns * (arms if alone else 1)
            cycle_s = cycle_seconds(settings, every, states[0].spec.shapes, one_call)
            timed = all(state.spec.statement is not None for state in states)
            slow_s = min(sample_ns) / 1e9 if timed and min(sample_ns) >= SLOW_STATEMENT_NS else 0.0
            start_s = (time.monotonic() - began) * (arms if alone else 1)
            fitting = within_time(settings, case.launcher.until, start_s)
            statements_s = sum(every) / 1e9 if timed else 0.0
            plan = make_plan(fitting, start_s, cycle_s, slow_s, one_call, statements_s)
            progress.looks = _looks(settings, plan)
        return plan

    while alive := [state for state in states if state.alive]:
        if settings.until == ADOPTED and alive == [states[0]] and len(states) > 1:
            return  # nobody is left to be compared with the baseline
        of = f" of {plan.replicates}" if plan else ""
        case.live.step(MEASURING, f"measuring: process {index + 1}{of}")
        if plan is not None and forked and not alone and index not in rounds.ahead:
            rounds.start_ahead(alive, _next_batch(states, plan, progress.looks, index))
        for group in [[state] for state in alive] if alone else [alive]:
            began = time.monotonic()
            rounds.replicate(group, index, plan_when_steady, alone)
        again = _try_apart(rounds, alive)
        if not again and not alone and _forgive_oom(states):
            again = alone = True
            rounds.dismiss()
        index += 1
        progress.replicates = index
        case.live.round(done=True)
        if plan is None or again:
            continue  # whoever is to be tried again is tried, also after the last process planned
        progress.stopped_by = stopped_by(states, settings, plan, progress, index)
        if progress.stopped_by:
            return


def _apart(states: Sequence[ArmState]) -> str:
    """Why the arms are not in one process although that was asked for; the baseline says so."""
    reason = may_share([state.spec for state in states])
    if reason:
        states[0].notes.append(f"arms ran in processes of their own: {reason}")
    return reason


def _try_apart(rounds: TurnScheduler, were_alive: Sequence[ArmState]) -> bool:
    """An end in a process that all arms share is not believed until it happens in one's own."""
    ended = [state for state in were_alive if not state.alive]
    if not rounds.together or not ended:
        return False
    for state in ended:
        why = state.detail.message
        state.notes.append(f"ended beside the other arms in one process; tried again apart: {why}")
        state.forgive()
    rounds.together = False
    rounds.dismiss()
    return True


def _next_batch(states: Sequence[ArmState], plan: Plan, looks: Sequence[int], index: int) -> range:
    """The replicates until the next look, as many as fit into memory side by side."""
    until = next(look for look in (*looks, plan.replicates, index + 1) if look > index)
    return range(index, min(until, index + max(1, min(MOST_AHEAD, _fitting(states)))))


def call_by_call(states: Sequence[ArmState], settings: Settings) -> bool:
    """Whether arms take turns of one call: where pairs of neighbours decide, and a sample is one
    call. By the pass alone of the baseline, so before anything is compared."""
    base = next((state for state in states if state.alive), states[0])
    pairs = stats.estimator_of(base.measurement()) == stats.PAIRS_ESTIMATOR
    return pairs and settings.samples is None and all(s.loops == 1 for s in states if s.alive)


def _looks(settings: Settings, plan: Plan) -> tuple[int, ...]:
    """When precision is looked at: never before the end where the number was asked for."""
    asked = settings.replicates is not None and settings.until != ADOPTED
    return (plan.replicates,) if asked else stats.looks(plan.replicates)


def stopped_by(
    states: Sequence[ArmState], settings: Settings, plan: Plan, progress: CaseProgress, index: int
) -> str:
    """Why to stop now, or nothing. Precision is looked at only at the preset looks."""
    looks = progress.looks
    if index >= plan.replicates:
        progress.alpha = last_alpha(looks, settings)
        return "replicates" if settings.replicates is not None else "budget"
    asked = settings.replicates is not None and settings.until != ADOPTED
    if not asked and index in looks:
        alpha = stats.alpha_at(looks.index(index), looks, settings.alpha, settings.does.early_share)
        rules = ((PRECISE, _is_precise), (DECIDED, _is_decided), (DECIDED, _is_gated))
        for reason, reached in rules:
            if reached(states, alpha, settings):
                progress.alpha = alpha
                return reason
    return ""


def last_alpha(looks: Sequence[int], settings: Settings) -> float:
    """The chance of error that is left for the last analysis."""
    return stats.alpha_at(len(looks) - 1, looks, settings.alpha, settings.does.early_share)


def within_time(settings: Settings, until: float | None, start_s: float) -> Settings:
    """With a budget that fits what is left of the whole time, beside the starts of processes."""
    if until is None:
        return settings
    left = TIME_USED * (until - time.monotonic())
    processes = settings.replicates or settings.does.least_processes
    fits = max(LEAST_BUDGET_S, left - (processes - 1) * start_s)
    return replace(settings, budget_s=min(settings.budget_s, fits))


def _is_decided(states: Sequence[ArmState], alpha: float, settings: Settings) -> bool:
    """Every ratio is clear of the margin or inside it, where that is enough; corrected by
    Bonferroni, which asks for more than Holm's correction of the verdicts does."""
    arms = [state.measurement() for state in states if state.alive and state.turns]
    if not settings.does.stops_when_decided or len(arms) < 2:
        return False
    level = 1 - alpha / (len(arms) - 1)
    name = stats.estimator_of(arms[0])
    found = (stats.ratio(arms[0], arm, name, level) for arm in arms[1:])
    return all(stats.is_clear(one.interval, settings.margin) for one in found)


def _is_precise(states: Sequence[ArmState], alpha: float, settings: Settings) -> bool:
    """Every ratio to the baseline is known well enough; of a single arm, its time."""
    within = settings.within
    arms = [state.measurement() for state in states if state.alive and state.turns]
    name = stats.estimator_of(arms[0])
    if len(arms) == 1:
        found = stats.absolute(arms[0], name, 1 - alpha)
        return stats.is_precise((found.lo, found.hi), within)
    return stats.stop([stats.ratio(arms[0], arm, name, 1 - alpha) for arm in arms[1:]], within)


def _is_gated(states: Sequence[ArmState], alpha: float, settings: Settings) -> bool:
    """Whether whoever asked would be told the same by more data (`Settings.until`)."""
    arms = [state.measurement() for state in states if state.alive and state.turns]
    told = _UNTIL.get(settings.until)
    if told is None or len(arms) < 2:
        return False
    level, name = 1 - alpha / (len(arms) - 1), stats.estimator_of(arms[0])
    found = (stats.ratio(arms[0], arm, name, level) for arm in arms[1:])
    return all(told(one, settings.margin) for one in found)


def _on_one_side(found: Estimate, margin: float) -> bool:
    """Slower by more than the margin, or not, for sure."""
    return found.interval[1] <= 1 + margin or found.interval[0] > 1 + margin


def _is_adopted_or_not(found: Estimate, margin: float) -> bool:
    """Faster by more than half the margin, or not, for sure."""
    edge = 1 / (1 + stats.least_effect(0.0, margin))
    return found.interval[1] < edge or found.interval[0] > edge


_UNTIL = {DECIDED: _on_one_side, CHECKED: stats.is_decided, ADOPTED: _is_adopted_or_not}


def _forgive_oom(states: Sequence[ArmState]) -> bool:
    """A kill for lack of memory with other arms resident is not believed until it happens alone."""
    killed = [state for state in states if state.outcome is Outcome.OOM and state.solo is not None]
    for state in killed:
        state.notes.append("killed for lack of memory beside the other arms; tried again alone")
        state.forgive()
    return bool(killed)


def pin_loops(states: Sequence[ArmState]) -> None:
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


def _fitting(states: Sequence[ArmState]) -> int:
    """How many replicates' processes, all arms of each, fit into memory at once."""
    needed = 1
    for state in states:
        if state.alive and state.solo is not None and state.solo.memory is not None:
            memory = state.solo.memory
            needed += memory.before_bytes + memory.most_bytes
    return int(MEMORY_SHARE * memory_available() / needed)


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
    return progress.result((state.measurement() for state in states), started)


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
