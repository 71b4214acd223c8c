"""Replicates: fresh processes for all arms, which take turns, one at a time, in random order."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torchstone.conductor.case import Settings
from torchstone.conductor.check_outputs import combine
from torchstone.conductor.launch import CaseContext
from torchstone.conductor.solo import References, declared_changes, timed_shape
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, ended_by, patience
from torchstone.machine.noise import difference, snapshot
from torchstone.machine.processes import wait_until_quiet
from torchstone.measure.arm import changed, hash_file
from torchstone.measure.channel import CheckedCall, StartReport, TurnReport
from torchstone.records import ArmSpec, Outcome, OutcomeDetail, Replicate, TwoClocks, UsageError

# The processes of one replicate: one for each arm, or one for all arms together.

UNTOUCHED = "Measure it again, and leave it as it is until that is done."
SHARED_BY_ALL = ("python", "env", "allocator", "threads", "device", "precision", "mode", "folder")
"""What arms must have in common to run in one process: settings that hold for all of it."""


@dataclass
class WorkerSlot:
    """An arm with its process in this replicate."""

    state: ArmState
    worker: WorkerProcess
    sample_ns: int = 0
    evidence: list[tuple[Path, int]] = field(default_factory=list)


def may_share(arms: Sequence[ArmSpec]) -> str:
    """Why these arms cannot run in one process; empty where they can."""
    for name in SHARED_BY_ALL:
        if len({getattr(arm, name) for arm in arms}) > 1:
            return f"they differ in {name}"
    if any("freezing" in arm.modifiers for arm in arms):
        return "+freezing is a setting of the whole process"
    return ""


def survives(slot: WorkerSlot, act: Callable[[WorkerSlot], object]) -> bool:
    """Do something with a worker; its death is its arm's outcome and nobody else's."""
    if slot.worker.ended:  # of another arm in the same process
        return False
    try:
        act(slot)
    except (ArmEnded, UsageError) as ended:
        slot.state.end(explained(ended, slot))
        return False
    return True


def stop_all(slots: Sequence[WorkerSlot]) -> None:
    """End them in good order."""
    for slot in slots:
        strays = 0 if slot.worker.ended else slot.worker.stop()
        if strays:
            slot.state.notes.append(f"{strays} process(es) that outlived a worker were killed")


def kill_all(slots: Sequence[WorkerSlot]) -> None:
    """End them at once."""
    with ExitStack() as stack:  # all of them, also where Ctrl-C comes once more
        for slot in slots:
            stack.callback(slot.worker.kill)


def explained(ended: ArmEnded | UsageError, slot: WorkerSlot) -> ArmEnded:
    """Code that fails now and ran before has been edited, more often than not; then say so."""
    if isinstance(ended, UsageError):
        ended = ended_by(ended, slot.worker.phase)
    sources = slot.state.sources
    edited = changed(sources, {path: hash_file(path) for path in sources})
    detail = ended.detail
    if ended.outcome is not Outcome.ERROR or not edited or detail.remedy == UNTOUCHED:
        return ended
    message = f"{file_changed(edited)} ({detail.message.rstrip('.')})"
    return ArmEnded(ended.outcome, replace(detail, message=message, remedy=UNTOUCHED))


def file_changed(names: Sequence[str]) -> str:
    """What is said of files that were edited."""
    return f"the file changed while it was measured: {', '.join(names)}"


# How many processes, turns and samples fit the budget.

START_SHARE = 0.5
"""Starting processes may take about this share of the budget. More processes narrow an interval
faster than more turns do, until nothing is left for turns (benchmarks/aa.py)."""
LEAST_TURNS = 4
ENOUGH_PAIRS = 8
"""Rounds of calls that make a median with a variance of its own (`stats.LEAST_PAIRS` is 6). Taken
where they cost at most twice the budget."""
MOST_TURNS = 400
LEAST_SAMPLES = 4
SLOW_SAMPLES = 2
"""Of each process, where a sample is one execution of a statement that takes a second or more; of
each turn, where more of them would not fit the budget."""
LEAST_SHORT_TURNS = 2
"""Of those: a floor is made from three samples of a process."""
LEAST_PASSES = 2
"""A sample that goes through several shapes is several calls, so fewer of them make a turn."""
MOST_SAMPLES = 4000
"""Samples of less than 15 µs come only from a small `timeit -n`; more of them say nothing new."""
LENGTH_SPREAD = 0.5
"""A turn has up to this share more samples than needed, at random: an arm cannot know the last."""
HANDOVER_S = 0.003
MOST_OF_AN_ARM = 2_000_000
"""Samples of all turns and processes. Each is two or three numbers (wall, CPU, probe), and with
those of warm-up they have to stay well under the 10 million that the store keeps of an arm. Samples
of a length that we chose ourselves (0.25 ms and more) do not reach it in twelve processes."""


@dataclass(frozen=True)
class Plan:
    """Fixed when the first replicate is steady."""

    replicates: int
    turns: int
    samples: int | None = None
    """Of a turn, where so many are enough."""
    one_call: bool = False
    """Arms take turns call by call, so that neighbours in time are pairs."""

    @property
    def most_samples(self) -> int:
        """Of a turn, before the random few more: what all turns together can be kept with."""
        turns = self.replicates * self.turns
        return max(LEAST_SAMPLES, int(MOST_OF_AN_ARM / (1 + LENGTH_SPREAD)) // turns)


def check_asked(settings: Settings) -> None:
    """Refuse, before anything runs, more samples than can be kept."""
    if settings.samples is None:
        return
    most = MOST_OF_AN_ARM // max(1, settings.replicates or settings.does.least_processes)
    if settings.samples > most:
        raise UsageError(
            f"{settings.samples} samples in each process are more than can be kept.",
            f"Ask for at most {most}.",
        )


def make_plan(
    settings: Settings,
    start_s: float,
    cycle_s: float,
    slow_sample_s: float = 0.0,
    one_call: bool = False,
    statements_s: float = 0.0,
) -> Plan:
    """Replicates and turns per replicate, given what one replicate's start and one cycle cost.

    The budget is time for turns; starting the processes comes on top, and what that takes says how
    many there are. `slow_sample_s`: of a statement so slow that each execution counts; then there
    is one turn. `statements_s`: a sample of every arm, where all are statements; turns are shorter
    where the usual ones would not fit.
    """
    if settings.replicates is not None:
        replicates = max(1, settings.replicates)
    else:
        by_share = 1 + int(START_SHARE * settings.budget_s / max(start_s, 1e-3))
        kept = MOST_OF_AN_ARM // max(1, settings.samples or 1)
        least, most = settings.does.least_processes, settings.does.most_processes
        replicates = min(most, max(least, min(by_share, kept)))
    if settings.samples is not None:
        return Plan(replicates, 1)
    if slow_sample_s:
        fit = int(settings.budget_s / replicates / slow_sample_s) - 1  # the first one is apart
        return Plan(replicates, 1, min(MOST_SAMPLES, max(SLOW_SAMPLES, fit)))
    turns = math.floor(settings.budget_s / replicates / max(cycle_s, 1e-6))
    least = LEAST_TURNS
    if statements_s and turns < least:  # the first sample of a turn is apart
        turns = int(settings.budget_s / replicates / ((SLOW_SAMPLES + 1) * statements_s))
        return Plan(replicates, min(least, max(LEAST_SHORT_TURNS, turns)), SLOW_SAMPLES)
    if one_call and settings.does.stops_when_decided:
        affordable = math.floor(2 * settings.budget_s / replicates / max(cycle_s, 1e-6))
        least = max(LEAST_TURNS, min(ENOUGH_PAIRS, affordable))
    return Plan(replicates, min(MOST_TURNS, max(least, turns)), one_call=one_call)


def samples_per_turn(
    settings: Settings, plan: Plan, sample_ns: int, chance: random.Random, shapes: int = 1
) -> int:
    """Enough for the turn's shortest length, or what can be kept, and a random few more."""
    asked = settings.samples if plan.samples is None else plan.samples
    if asked is not None:
        return asked
    least = min(plan.most_samples, _least_samples(settings, sample_ns, shapes))
    return least + chance.randint(0, max(1, int(least * LENGTH_SPREAD)))


def _least_samples(settings: Settings, sample_ns: int, shapes: int) -> int:
    needed = math.ceil(settings.turn_ns / max(sample_ns, 1))
    least = max(LEAST_PASSES, math.ceil(LEAST_SAMPLES / shapes))
    return min(MOST_SAMPLES, max(least, needed))


def cycle_seconds(
    settings: Settings, sample_ns: list[int], shapes: int = 1, one_call: bool = False
) -> float:
    """One turn of every arm, with hand-over, first and final call."""
    if one_call:
        return sum(ns / 1e9 * 1.05 + HANDOVER_S for ns in sample_ns)
    total = 0.0
    for ns in sample_ns:
        least = _least_samples(settings, ns, shapes)
        total += (least * (1 + LENGTH_SPREAD / 2) + 2) * ns / 1e9 * 1.05 + HANDOVER_S
    return total


def seconds_left(plan: Plan, index: int, turn: int, in_turns_s: float, start_s: float) -> float:
    """After that turn: what the turns to come will take by those done, and the starts of further
    processes by the last one's."""
    done = index * plan.turns + turn + 1
    left = in_turns_s / done * (plan.replicates * plan.turns - done)
    return left + (plan.replicates - index - 1) * start_s


QUIET_LIMIT_S = 0.25
"""OpenMP threads spin on for milliseconds (libgomp) or up to 200 ms (others) after a call."""
LEAST_WARM_UP_S, MOST_WARM_UP_S, WARM_UP_SHARE = 0.5, 10.0, 0.05
WARM_UP_SLACK_S = 5.0
"""Slow calls report back at least every second; this is for the rest."""
TURNS_SLACK = 1.25
"""A process's turns end when they have taken this many times their share of the budget."""
RESTORED = 0.125
"""The share of calls before which a training step goes back to its start state, by chance: often
enough that weights do not train away to values that have times of their own."""
Place = tuple[int, int]
"""Replicate and round."""


@dataclass
class TurnScheduler:
    """What all replicates of a case share."""

    case: CaseContext
    references: dict[str, References]
    base: ArmState
    forked: bool
    """Processes are forked from templates, where there are any."""
    together: bool = False
    """All arms of a replicate run in one process."""
    ahead: dict[int, list[WorkerSlot]] = field(default_factory=dict)
    """Processes of replicates to come, built and waiting."""
    turn_number: int = 0
    start_s: float = 0.0
    """What the last processes took from their start until they were steady."""
    ahead_s: float = 0.0
    """What a replicate took whose processes were started ahead."""
    in_turns_s: float = 0.0
    """What all turns took until now: what the budget is for."""

    def __post_init__(self) -> None:
        self.settings, self.phase = self.case.settings, self.case.progress.phase
        self.chance = random.Random(self.settings.seed)

    def replicate(
        self,
        states: Sequence[ArmState],
        index: int,
        plan_when_steady: Callable[[list[int]], Plan],
        alone: bool = False,
    ) -> None:
        """Fresh processes: start all, warm up each, then turns."""
        began = time.monotonic()
        slots = self._start(states, index, alone)
        self.start_s = time.monotonic() - began + self.ahead_s
        try:
            if slots:
                plan = plan_when_steady([slot.sample_ns for slot in slots])
                with self.phase("turns"):
                    self._turns(slots, index, plan, alone)
            stop_all(slots)
        except BaseException:  # Ctrl-C: whoever is in the middle of a turn need not finish it
            kill_all(slots)
            raise
        with self.phase("check outputs"):
            for slot in slots:
                self._judge(slot)

    def start_ahead(self, states: Sequence[ArmState], indices: Sequence[int]) -> None:
        """Build the processes of the next replicates side by side, with their first calls."""
        began = time.monotonic()
        with self.phase("start processes"):
            for index in indices:
                self.ahead[index] = self._begin(states, index, self.together, ahead=True)
            for index in indices:
                ready = self._built(self.ahead[index])
                self._drop(self.ahead[index], ready)
                self.ahead[index] = ready
                for slot in ready:
                    wait_until_quiet(slot.worker.pid, QUIET_LIMIT_S)
        self.ahead_s = (time.monotonic() - began) / max(1, len(indices))

    def dismiss(self) -> None:
        """End the processes that were started ahead and are not needed."""
        while self.ahead:
            kill_all(self.ahead.popitem()[1])

    def _start(self, states: Sequence[ArmState], index: int, alone: bool) -> list[WorkerSlot]:
        """Build side by side (nothing is timed yet), warm up one after the other."""
        if index in self.ahead:
            begun = self.ahead.pop(index)
            built = [slot for slot in begun if slot.state.alive]
        else:
            with self.phase("start processes"):
                begun = self._begin(states, index, self.together and not alone)
                built = self._built(begun)
        try:
            self.chance.shuffle(built)
            warm = partial(self._warm_up, index=index, alone=alone)
            with self.phase("warm up"):
                ready = [slot for slot in built if survives(slot, warm)]
        except BaseException:
            kill_all(begun)
            raise
        ready = [slot for slot in ready if not slot.worker.ended]  # by another arm in it
        self._drop(begun, ready)
        return ready

    def _begin(
        self, states: Sequence[ArmState], index: int, together: bool, ahead: bool = False
    ) -> list[WorkerSlot]:
        """Have processes started and arms built, side by side; `_built` waits for it.

        `ahead`: with the first call, which compiles. Nothing that is timed may run meanwhile.
        """
        launcher, slots = self.case.launcher, list[WorkerSlot]()
        layout = random.Random(f"{self.settings.seed} layout {index}").randrange(2**32)
        template = index % self.settings.does.slots if self.forked else None
        try:
            for state in states:
                shared = slots[0].worker if together and slots else None
                try:
                    worker = shared or launcher.start(state.spec, layout=layout, slot=template)
                except UsageError as error:  # its interpreter, which was there before
                    state.end(ended_by(error, "start"))
                    continue
                slots.append(WorkerSlot(state, worker))
                worker.tell(
                    {
                        "do": "start",
                        "arm": state.spec,
                        "loops": state.loops,
                        "probe_bits": state.probe_bits,
                        "caches": launcher.caches(state.spec),
                        "ahead": ahead,
                    }
                )
        except BaseException:
            kill_all(slots)
            raise
        return slots

    def _built(self, slots: Sequence[WorkerSlot]) -> list[WorkerSlot]:
        """Those that are built; an arm whose process died has its outcome."""
        waiting = patience(self.settings)

        def wait(slot: WorkerSlot) -> None:
            slot.worker.listener = self.case.live.ticking()  # nothing is timed yet
            try:
                slot.worker.wait(waiting)
            finally:
                slot.worker.listener = None

        return [slot for slot in slots if survives(slot, wait)]

    def _drop(self, begun: Sequence[WorkerSlot], ready: Sequence[WorkerSlot]) -> None:
        """End the processes of which no arm is ready."""
        used = [slot.worker for slot in ready]
        kill_all([slot for slot in begun if slot.worker not in used])

    def _warm_up(self, slot: WorkerSlot, index: int, alone: bool) -> None:
        seed = self.chance.randrange(2**31)
        start = slot.worker.ask_for(
            StartReport,
            {
                "do": "turn",
                "arm": slot.state.spec.name,
                "warm_up": True,
                "seed": seed,
                "limit_s": self._warm_up_limit(),
            },
            patience(self.settings, slack_s=WARM_UP_SLACK_S),
        )
        edited = changed(slot.state.sources, start.sources)
        if edited:
            detail = OutcomeDetail(file_changed(edited), slot.worker.phase, UNTOUCHED)
            raise ArmEnded(Outcome.ERROR, detail)
        slot.sample_ns = start.sample_ns
        slot.state.replicates.append(
            Replicate(index, start.start_ns, start.warm_up, start.layout, alone)
        )
        wait_until_quiet(slot.worker.pid, QUIET_LIMIT_S)

    def _warm_up_limit(self) -> float:
        """A process that will not settle may not eat the budget."""
        share = self.settings.budget_s * WARM_UP_SHARE
        return min(MOST_WARM_UP_S, max(LEAST_WARM_UP_S, share))

    def _turns(self, slots: list[WorkerSlot], index: int, plan: Plan, alone: bool) -> None:
        checked = {slot.state.spec.name: self.chance.randrange(plan.turns) for slot in slots}
        before, began = self.in_turns_s, time.monotonic()
        most_s = TURNS_SLACK * self.settings.budget_s / plan.replicates
        for turn in range(plan.turns):
            self.in_turns_s = before + time.monotonic() - began
            late = self.in_turns_s - before > most_s and turn > max(checked.values())
            if late and turn >= LEAST_TURNS and not alone:
                break  # rounds take longer than planned, and nobody waits longer than asked
            order = [slot for slot in slots if slot.state.alive and not slot.worker.ended]
            self.chance.shuffle(order)
            seed = self.chance.randrange(2**31)
            for slot in order:
                is_checked = checked[slot.state.spec.name] == turn
                at = (index, turn)
                act = partial(self._turn, place=at, plan=plan, checked=is_checked)
                if plan.one_call:
                    act = partial(self._one_call, place=at, seed=seed, checked=is_checked)
                survives(slot, act)
                if not slot.worker.ended:
                    slot.worker.trim_stderr()
            done = (index * plan.turns + turn + 1) / (plan.replicates * plan.turns)
            left = seconds_left(plan, index, turn, self.in_turns_s, self.start_s)
            self.case.events.update(done, f"process {index + 1} of {plan.replicates}", left)
            self.case.live.round()

    def _turn(self, slot: WorkerSlot, place: Place, plan: Plan, checked: bool) -> None:
        """A turn of many samples, and one more call whose output may be checked."""
        spec = slot.state.spec
        seed = self.chance.randrange(2**31)
        reference = self._checked_call(slot, place) if checked else None
        last = reference or CheckedCall(seed + 1_000_000, timed_shape(spec, seed))
        samples = samples_per_turn(self.settings, plan, slot.sample_ns, self.chance, spec.shapes)
        slack = 10.0 * samples * slot.sample_ns / 1e9
        if spec.shapes > 1 and place[1] == 0:
            slack += self.settings.build_timeout_s  # new shapes may have to be compiled
        command = {
            "samples": samples,
            "sample_ns": slot.sample_ns,
            "seed": seed,
            "check_seed": last.seed,
            "check_shape": last.shape,
            "keep": reference is not None,
        }
        self._take_turn(slot, place, command, slack, reference)

    def _one_call(self, slot: WorkerSlot, place: Place, seed: int, checked: bool) -> None:
        """A turn of one call, with the same inputs for all arms of the round; a checked one has
        those of its reference."""
        reference = self._checked_call(slot, place) if checked else None
        # Now and then without need: an arm must not be able to tell a call that is checked.
        restore = reference is not None or self.chance.random() < RESTORED
        command = {
            "one_call": True,
            "seed": reference.seed if reference else seed,
            "restore": restore,
            "keep": reference is not None,
        }
        self._take_turn(slot, place, command, 10.0 * slot.sample_ns / 1e9, reference)

    def _checked_call(self, slot: WorkerSlot, place: Place) -> CheckedCall | None:
        """The call whose reference is known that this process's checked turn makes."""
        references = self.references.get(slot.state.spec.name)
        if references is None:
            return None
        return references.calls[1 + place[0] % (len(references.calls) - 1)]

    def _take_turn(
        self,
        slot: WorkerSlot,
        place: Place,
        command: dict[str, Any],
        slack: float,
        checked: CheckedCall | None,
    ) -> None:
        state, worker = slot.state, slot.worker
        before = snapshot(worker.pid)
        worker.phase = "turn"
        report, marked, cpu = worker.take_turn(
            TurnReport,
            {"do": "turn", "arm": state.spec.name, **command},
            lambda _: self.settings.step_timeout_s + slack,
        )
        after = snapshot(worker.pid)
        quiet_after, late = wait_until_quiet(worker.pid, QUIET_LIMIT_S)
        seen = report.turn
        noise = difference(before, after, seen.noise.wall_ns, seen.noise.cpu_ns)
        noise = replace(noise, late_cpu_ns=late, quiet_after_ns=quiet_after)
        # Turns of one round share their index, so that noise common to all arms can cancel.
        replicate, index = place
        taken = replace(seen, replicate=replicate, index=index, noise=noise)
        if marked is not None:
            one = report.marked_sample, marked.sample_ns
            clocks = TwoClocks(report.marked_ns, marked.whole_ns, report.cpu_ns, cpu, *one)
            taken = replace(taken, clocks=clocks)
        state.turns.append(replace(taken, checked=checked is not None))
        self.turn_number += 1
        state.late_recompiles += report.compiles
        state.note_integrity(report.integrity)
        if checked is not None:
            path = self.case.launcher.folder / f"timed-{self.turn_number}"
            ask = {"do": "evidence", "arm": state.spec.name, "path": str(path)}
            worker.ask(ask, patience(self.settings, 60.0))
            slot.evidence.append((path, checked.seed))

    def _judge(self, slot: WorkerSlot) -> None:
        """Outputs of timed turns, against the reference of their seeds."""
        state, references = slot.state, self.references.get(slot.state.spec.name)
        if references is None:
            return
        for path, seed in slot.evidence:
            found = references.evaluate(state, path, seed, declared_changes(state, self.base))
            path.unlink()
            state.agreement = combine(state.agreement, found, timed=True)
            if found.mismatch and state.outcome is Outcome.OK:
                state.wrong(Outcome.WRONG_ANSWER, found.mismatch, "timed turn")
