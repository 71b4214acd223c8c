"""The second part of a case: fresh processes whose arms take turns, until enough is known."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torchstone import stats
from torchstone.conductor.case import CaseProgress, Settings
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.references import References
from torchstone.conductor.state import ArmState
from torchstone.conductor.turn_scheduler import (
    Plan,
    TurnScheduler,
    cycle_seconds,
    make_plan,
    may_share,
)
from torchstone.machine.processes import memory_available
from torchstone.measure.warmup import SLOW_STATEMENT_NS
from torchstone.records import Outcome

MEMORY_SHARE = 0.8
"""Arms are resident together when their solo peaks take at most this share of free memory."""
SAMPLE_LIMIT_NS = 50_000_000
MOST_AHEAD = 3
"""Replicates whose processes are built side by side: two cores have enough to do with three."""


def measure_arms(
    case: CaseContext, states: Sequence[ArmState], references: dict[str, References]
) -> None:
    """Replicates until the intervals are narrow enough, the budget is spent, or no arm is left."""
    settings = case.settings
    _pin_loops(states)
    _pin_probes(case.launcher, states)
    one_call = _call_by_call(states, settings)
    rounds = TurnScheduler(case, references, states[0], forked=one_call)
    rounds.together = settings.together and not _apart(states)
    if one_call:
        with case.progress.phase("import libraries"):
            alive = [state.spec for state in states if state.alive]
            case.launcher.import_ahead(alive, settings.build_timeout_s)
    try:
        _replicates(case, rounds, states, one_call)
    finally:
        rounds.dismiss()


def _replicates(
    case: CaseContext, rounds: TurnScheduler, states: Sequence[ArmState], one_call: bool
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
            slow_s = min(sample_ns) / 1e9 if _slow_statements(states, sample_ns) else 0.0
            start_s = (time.monotonic() - began) * (arms if alone else 1)
            plan = make_plan(settings, start_s, cycle_s, slow_s, one_call)
            progress.looks = _looks(settings, plan)
        return plan

    while alive := [state for state in states if state.alive]:
        of = f" of {plan.replicates}" if plan else ""
        case.events.phase(f"measuring: process {index + 1}{of}")
        if plan is not None and one_call and not alone and index not in rounds.ahead:
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
        if plan is None or again:
            continue  # whoever is to be tried again is tried, also after the last process planned
        progress.stopped_by = _stopped_by(states, settings, plan, progress, index)
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


def _call_by_call(states: Sequence[ArmState], settings: Settings) -> bool:
    """Whether arms take turns of one call: where pairs of neighbours decide, and a sample is one
    call. By the pass alone of the baseline, so before anything is compared."""
    base = next((state for state in states if state.alive), states[0])
    pairs = stats.estimator_of(base.measurement()) == stats.PAIRS_ESTIMATOR
    return pairs and settings.samples is None and all(s.loops == 1 for s in states if s.alive)


def _slow_statements(states: Sequence[ArmState], sample_ns: Sequence[int]) -> bool:
    """Whether all arms are statements of which every execution counts."""
    timed = all(state.spec.statement is not None for state in states)
    return timed and min(sample_ns) >= SLOW_STATEMENT_NS


def _looks(settings: Settings, plan: Plan) -> tuple[int, ...]:
    """When precision is looked at: never before the end where the number was asked for."""
    return (plan.replicates,) if settings.replicates is not None else stats.looks(plan.replicates)


def _stopped_by(
    states: Sequence[ArmState], settings: Settings, plan: Plan, progress: CaseProgress, index: int
) -> str:
    """Why to stop now, or nothing. Precision is looked at only at the preset looks."""
    looks = progress.looks
    if index >= plan.replicates:
        progress.alpha = stats.alpha_at(len(looks) - 1, looks, settings.alpha)
        return "replicates" if settings.replicates is not None else "budget"
    if settings.replicates is None and index in looks:  # else so many were asked for
        alpha = stats.alpha_at(looks.index(index), looks, settings.alpha)
        if _is_precise(states, alpha, settings.within):
            progress.alpha = alpha
            return "precision"
    return ""


def _is_precise(states: Sequence[ArmState], alpha: float, within: float) -> bool:
    """Every ratio to the baseline is known well enough; of a single arm, its time."""
    arms = [state.measurement() for state in states if state.alive and state.turns]
    name = stats.estimator_of(arms[0])
    if len(arms) == 1:
        found = stats.absolute(arms[0], name, 1 - alpha)
        return stats.is_precise((found.lo, found.hi), within)
    return stats.stop([stats.ratio(arms[0], arm, name, 1 - alpha) for arm in arms[1:]], within)


def _forgive_oom(states: Sequence[ArmState]) -> bool:
    """A kill for lack of memory with other arms resident is not believed until it happens alone."""
    killed = [state for state in states if state.outcome is Outcome.OOM and state.solo is not None]
    for state in killed:
        state.notes.append("killed for lack of memory beside the other arms; tried again alone")
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


def _fitting(states: Sequence[ArmState]) -> int:
    """How many replicates' processes, all arms of each, fit into memory at once."""
    needed = 1
    for state in states:
        if state.alive and state.solo is not None and state.solo.memory is not None:
            memory = state.solo.memory
            needed += memory.before_bytes + memory.most_bytes
    return int(MEMORY_SHARE * memory_available() / needed)
