"""A case whose arms are objects of this process: no workers, one process, arms by turns.

The statistics are those of any case, over stretches of the session instead of fresh processes: a
stretch is many rounds in a row, so that slow changes of the machine show as differences between
stretches (batch means). What fresh processes would show, another memory layout or another state of
the allocator, is not in the interval; the rule `session` says so.

Objects of the running process as workloads, and what measuring them here must put back.
"""

from __future__ import annotations

import copy
import math
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torchstone import stats
from torchstone.conductor.case import CaseProgress, CaseResult, Events, Settings, Silent
from torchstone.conductor.check_outputs import combine
from torchstone.conductor.run import NO_SAMPLE, call_by_call, pin_loops, stopped_by
from torchstone.conductor.solo import References, check_solo, checked_calls, declared_changes
from torchstone.conductor.state import ArmState, Live
from torchstone.conductor.turn_scheduler import (
    RESTORED,
    TURNS_SLACK,
    Plan,
    cycle_seconds,
    samples_per_turn,
)
from torchstone.conductor.worker import ArmEnded, clean, without_ours
from torchstone.machine.folders import own_folder
from torchstone.machine.noise import difference, snapshot
from torchstone.measure.allocations import with_tensors
from torchstone.measure.arm import Built, Phase, build
from torchstone.measure.channel import CheckedCall, Seen
from torchstone.measure.reference import make_float64, make_references
from torchstone.measure.solo import solo
from torchstone.measure.turns import Turns
from torchstone.measure.worker import failure_of
from torchstone.records import (
    NO_REFERENCE,
    ArmSpec,
    Measurement,
    Outcome,
    OutcomeDetail,
    Replicate,
    UsageError,
)
from torchstone.workloads import Workload


@contextmanager
def kept_state(workloads: Sequence[Workload]) -> Iterator[None]:
    """Random generators, gradient mode, threads, and the mode of each module are as before."""
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        numpy = sys.modules.get("numpy")
        if numpy is not None and "numpy.random" in sys.modules:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        torch = sys.modules.get("torch")
        if torch is not None:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            for module in _modules(torch, workloads):
                stack.callback(setattr, module, "training", module.training)
        yield


def _modules(torch: Any, workloads: Sequence[Workload]) -> Iterator[Any]:
    for workload in workloads:
        call = workload.call
        owner = call if isinstance(call, torch.nn.Module) else getattr(call, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            yield from owner.modules()


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Without what native code writes to standard error: torch's profiler tells of each start."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def own_workload(workload: Workload, arm: ArmSpec) -> Workload:
    """The object itself where running it changes nothing of it, else a copy.

    Training moves weights, a precision casts them, and a technique may change the module.
    """
    if arm.mode == "inference" and arm.precision == "fp32" and "+" not in arm.variant:
        return workload
    try:
        return replace(workload, call=copy.deepcopy(workload.call))
    except Exception as error:  # user classes may refuse for any reason
        raise UsageError(
            f"{arm.name} needs a copy of the object, which cannot be copied: {error}.",
            "Write a factory `def make(): ...` in a file, and name it: path.py:make.",
        ) from error


MOST_STRETCHES, LEAST_STRETCHES = 4, 3
"""Few and long: what hangs together in time must fit into a stretch. With neighbouring rounds
correlated by 0.5, intervals of four stretches of twelve rounds hold the truth in 95 %, by 0.8 in
90 %; of eight stretches of six, in 92 % and 78 % (tests/stats/test_stretches.py)."""
LEAST_ROUNDS = 4
"""Of a stretch: fewer have no middle to speak of."""
TURN_NS = 20_000_000
"""Of steps below 10 ms. No other process has to get going, so arms can be closer neighbours."""
LAST_SAMPLES = 10
"""Of warm-up, whose middle says how long a sample takes now."""
CHECKED = 2
"""Outputs with a reference: of the first call, and of one timed call in each stretch."""
UNCAUGHT = (KeyboardInterrupt, UsageError)
"""What is not an arm's outcome: Ctrl-C is the user's, and so is a mistake in the request."""


@dataclass(frozen=True)
class SessionArm:
    """An arm and the object that it runs."""

    spec: ArmSpec
    workload: Workload


@dataclass
class _Slot:
    """An arm on its way, with what it is measured by."""

    arm: SessionArm
    state: ArmState
    built: Built | None = None
    turns: Turns | None = None
    restore: Callable[[], None] | None = None
    evidence: list[tuple[Path, CheckedCall]] = field(default_factory=list)
    sample_ns: int = 1


@dataclass
class _Session:
    slots: list[_Slot]
    settings: Settings
    events: Events
    live: Live
    progress: CaseProgress
    folder: Path
    references: dict[str, References] = field(default_factory=dict)

    @property
    def states(self) -> list[ArmState]:
        return [slot.state for slot in self.slots]


def run_session(
    arms: Sequence[SessionArm], settings: Settings, events: Events | None = None
) -> CaseResult:
    """Measure every arm in this process; errors are outcomes, Ctrl-C keeps what there is."""
    started, progress = time.monotonic(), CaseProgress()
    slots = [_Slot(arm, ArmState(arm.spec)) for arm in arms]
    settings = replace(settings, turn_ns=TURN_NS)
    with kept_state([arm.workload for arm in arms]), own_folder() as folder:
        events = events or Silent()
        live = Live(events, settings, [slot.state for slot in slots], unit="stretch")
        session = _Session(slots, settings, events, live, progress, folder)
        try:
            _prepare(session)
            _measure(session)
        except KeyboardInterrupt:
            progress.stopped_by = "interrupt"
            for state in session.states:
                if not state.turns and state.outcome is Outcome.OK:
                    state.wrong(Outcome.NOT_RUN, NO_SAMPLE, "")
    return progress.result((_measurement(state) for state in session.states), started)


def _measurement(state: ArmState) -> Measurement:
    """Without what a session cannot know: compiling from empty caches, the process's own memory."""
    made = state.measurement()
    cost = made.compile and replace(made.compile, cold_ns=None, warm_ns=None)
    memory = made.memory and replace(
        made.memory,
        source="none",
        peak_bytes=None,
        step_peak_bytes=None,
        start_peak_bytes=None,
        overhead_bytes=None,
    )
    return replace(made, compile=cost, memory=memory)


def _prepare(session: _Session) -> None:
    """Build each arm, look at its first call and its steady step, and check its first output."""
    base = session.slots[0].state
    for slot in session.slots:
        session.events.phase(f"{slot.state.spec.name}: first call")
        with session.progress.phase(f"{slot.state.spec.name} alone"):
            evidence = _guarded(slot, partial(_look, session))
        if evidence is None or not session.settings.check_outputs:
            continue
        judge = slot if session.settings.independent else session.slots[0]
        with session.progress.phase("reference"):
            found = _references(session, judge)
        if found is None:
            continue
        if found.report.constant:
            session.progress.constant.add(slot.state.spec.name)
        path = session.folder / "solo" / str(session.slots.index(slot))
        check_solo(slot.state, judge.state, found, path, session.settings.independent)
        session.references[slot.state.spec.name] = found
    if not base.alive:
        for slot in session.slots[1:]:
            slot.state.notes.append("the baseline did not run")


def _guarded(slot: _Slot, act: Callable[[_Slot, Phase], object]) -> object:
    """Do something with an arm; an error in its code is its outcome, and gives None."""
    where = ["start"]
    try:
        return act(slot, where.append)
    except UNCAUGHT:
        raise
    except BaseException as error:  # SystemExit of user code too
        spec, failure = slot.state.spec, failure_of(error, where[-1])
        outcomes = {"not_supported": Outcome.NOT_SUPPORTED, "oom": Outcome.OOM}
        text = clean(without_ours("\n".join(failure.traceback)), spec)
        detail = OutcomeDetail(
            clean(failure.message, spec),
            failure.phase,
            failure.remedy,
            stderr=tuple(text.splitlines()),
        )
        slot.state.end(ArmEnded(outcomes.get(failure.kind, Outcome.ERROR), detail))
        return None


def _look(session: _Session, slot: _Slot, phase: Phase) -> bool:
    """The solo pass of an arm, in this process."""
    spec, settings = slot.state.spec, session.settings
    slot.built = build(spec, phase, own_workload(slot.arm.workload, spec))
    prepared = slot.built.prepared
    if prepared is not None and prepared.keep_start is not None:
        slot.restore = prepared.keep_start()
    folder = session.folder / "solo"
    folder.mkdir(exist_ok=True)
    path = str(folder / str(session.slots.index(slot)))
    seed = checked_calls(spec, settings)[0].seed
    report, _ = solo(
        spec,
        phase,
        seed,
        path,
        settings.loops,
        {},
        secrets.token_bytes(16),
        seen=lambda calls: session.live.seen(slot.state, Seen(tuple(calls))),
        built=slot.built,
    )
    if report.memory is not None:
        with quiet_stderr():
            found = with_tensors(slot.built, phase, report.memory)
        report = replace(report, memory=found.memory)
    slot.state.solo, slot.state.loops = report, report.loops
    slot.state.integrity, slot.state.probe_bits = report.integrity, report.probe_bits
    return True


def _references(session: _Session, judge: _Slot) -> References | None:
    """The checking arm's answers as plain eager code and in float64, made once."""
    name = judge.state.spec.name
    if name in session.references:
        return session.references[name]
    spec, calls = judge.state.spec, checked_calls(judge.state.spec, session.settings)[:CHECKED]
    session.events.phase(f"{name}: reference in float64")
    folder = session.folder / f"references-{session.slots.index(judge)}"
    folder.mkdir(exist_ok=True)
    try:
        # Never the object itself: nudged weights and casts are for copies.
        workload = own_workload(judge.arm.workload, replace(spec, mode="training"))
        report, made = make_references(spec, _silent, calls, str(folder), workload)
        found = References(folder, calls, report, make_float64(made, _silent))
    except Exception as error:  # whatever a copy or a call raises: the arm is timed all the same
        judge.state.notes.append(f"{NO_REFERENCE}: {clean(str(error), spec)}")
        return None
    session.references[name] = found
    return found


def _no_mark() -> None:
    """Nobody times the turns from another process: both clocks would be this one's."""


def _silent(_: str) -> None:
    """Nobody places a death in our own process."""


def _measure(session: _Session) -> None:
    """Stretches of rounds until the intervals are narrow enough or the budget is spent."""
    settings, progress, states = session.settings, session.progress, session.states
    slots = [slot for slot in session.slots if slot.state.alive]
    if not slots:
        return
    pin_loops(states)
    for slot in slots:
        _start_turns(slot)
    one_call = call_by_call(states, settings)
    plan = _plan(settings, [slot.sample_ns for slot in slots], one_call)
    progress.looks = stats.looks(plan.replicates)
    chance = random.Random(settings.seed)
    session.live.expect(settings.budget_s, "measuring")
    began = time.monotonic()
    for index in range(plan.replicates):
        session.events.phase(f"measuring: stretch {index + 1} of {plan.replicates}")
        with progress.phase("turns"):
            _stretch(session, index, plan, chance, began)
        with progress.phase("check outputs"):
            for slot in slots:
                _judge(session, slot)
        progress.replicates = index + 1
        if not any(slot.state.alive for slot in slots):
            return
        progress.stopped_by = stopped_by(states, settings, plan, progress, index + 1)
        spent = time.monotonic() - began > TURNS_SLACK * settings.budget_s
        if not progress.stopped_by and spent and index + 1 >= LEAST_STRETCHES:
            looks = progress.looks
            progress.alpha = stats.alpha_at(len(looks) - 1, looks, settings.alpha)
            progress.stopped_by = "budget"
        if progress.stopped_by:
            return


def _start_turns(slot: _Slot) -> None:
    state, solo_report = slot.state, slot.state.solo
    assert solo_report is not None
    turns = Turns(state.spec, _silent, state.loops, state.probe_bits, {}, built=slot.built)
    if slot.restore is not None:
        slot.restore()
        turns.restore = slot.restore
    turns.first_call_ns = solo_report.first_call_ns
    # As they are now, not the fastest: on a crowded machine the two differ by a hundred times.
    last = sorted(solo_report.warm_up.wall_ns[-LAST_SAMPLES:])
    call_ns = last[len(last) // 2] / solo_report.loops
    slot.turns, slot.sample_ns = turns, max(1, round(call_ns * state.loops))


def _plan(settings: Settings, sample_ns: list[int], one_call: bool) -> Plan:
    """As many rounds as the budget has, in stretches that each have enough."""
    cycle_s = cycle_seconds(settings, sample_ns, one_call=one_call)
    rounds = math.floor(settings.budget_s / max(cycle_s, 1e-6))
    stretches = min(MOST_STRETCHES, max(LEAST_STRETCHES, rounds // LEAST_ROUNDS))
    return Plan(stretches, max(LEAST_ROUNDS, rounds // stretches), one_call=one_call)


def _stretch(
    session: _Session, index: int, plan: Plan, chance: random.Random, began: float
) -> None:
    slots = [slot for slot in session.slots if slot.turns is not None and slot.state.alive]
    for slot in slots:
        assert slot.state.solo is not None
        slot.state.replicates.append(Replicate(index, 0, slot.state.solo.warm_up, "shared"))
    checked = {slot.state.spec.name: chance.randrange(plan.turns) for slot in slots}
    limit = TURNS_SLACK * session.settings.budget_s * (index + 1) / plan.replicates
    for turn in range(plan.turns):
        late = time.monotonic() - began > limit and turn > max(checked.values())
        if late and turn >= LEAST_ROUNDS:
            break  # rounds take longer than planned, and nobody waits longer than asked
        order = [slot for slot in slots if slot.state.alive]
        chance.shuffle(order)
        seed = chance.randrange(2**31)
        for slot in order:
            keep = checked[slot.state.spec.name] == turn
            act = partial(_turn, session, (index, turn), plan, chance, seed, keep)
            _guarded(slot, act)
        done = (index * plan.turns + turn + 1) / (plan.replicates * plan.turns)
        left = (time.monotonic() - began) * (1 - done) / done
        session.events.update(done, f"stretch {index + 1} of {plan.replicates}", left)
        session.live.round()


def _turn(
    session: _Session,
    place: tuple[int, int],
    plan: Plan,
    chance: random.Random,
    seed: int,
    keep: bool,
    slot: _Slot,
    phase: Phase,
) -> None:
    """One turn of one arm: a call, or a block of samples for short steps."""
    state, turns = slot.state, slot.turns
    assert turns is not None
    phase("turn")
    references = session.references.get(state.spec.name)
    call = references.calls[-1] if keep and references is not None else None
    before = snapshot(os.getpid())
    if plan.one_call:
        restore = call is not None or chance.random() < RESTORED
        report = turns.one_call(_no_mark, call.seed if call else seed, restore, call is not None)
    else:
        samples = samples_per_turn(session.settings, plan, slot.sample_ns, chance)
        last = call or CheckedCall(seed + 1_000_000)
        report = turns.turn(
            _no_mark, samples, slot.sample_ns, seed, last.seed, last.shape, call is not None
        )
    seen = report.turn.noise
    noise = difference(before, snapshot(os.getpid()), seen.wall_ns, seen.cpu_ns)
    taken = replace(report.turn, replicate=place[0], index=place[1], noise=noise)
    state.turns.append(replace(taken, checked=call is not None))
    state.late_recompiles += report.compiles
    state.note_integrity(report.integrity)
    if call is not None:
        path = session.folder / f"timed-{len(state.turns)}-{session.slots.index(slot)}"
        turns.write_evidence(str(path))
        slot.evidence.append((path, call))


def _judge(session: _Session, slot: _Slot) -> None:
    """Outputs of timed turns against their reference."""
    state, references = slot.state, session.references.get(slot.state.spec.name)
    while slot.evidence and references is not None:
        path, call = slot.evidence.pop()
        changes = declared_changes(state, session.slots[0].state)
        found = references.evaluate(state, path, call.seed, changes)
        path.unlink()
        state.agreement = combine(state.agreement, found, timed=True)
        if found.mismatch and state.outcome is Outcome.OK:
            state.wrong(Outcome.WRONG_ANSWER, found.mismatch, "timed turn")
