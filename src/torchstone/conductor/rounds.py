"""Replicates: fresh processes for all arms, which take turns, one at a time, in random order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torchstone.conductor.case import Events, Settings
from torchstone.conductor.judge import combine
from torchstone.conductor.launch import Launcher
from torchstone.conductor.patience import patience
from torchstone.conductor.plan import Plan, samples_per_turn
from torchstone.conductor.references import References, timed_shape
from torchstone.conductor.solo import declared_changes
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, ended_by
from torchstone.machine.noise import difference, snapshot
from torchstone.machine.processes import wait_until_quiet
from torchstone.measure.reports import CheckedCall, StartReport, TurnReport
from torchstone.measure.sources import changed, hash_file
from torchstone.records import Noise, Outcome, OutcomeDetail, Replicate, Turn, UsageError

QUIET_LIMIT_S = 0.25
"""OpenMP threads spin on for milliseconds (libgomp) or up to 200 ms (others) after a call."""
LEAST_WARM_UP_S, MOST_WARM_UP_S, WARM_UP_SHARE = 0.5, 10.0, 0.05
WARM_UP_SLACK_S = 5.0
"""Slow calls report back at least every second; this is for the rest."""
UNTOUCHED = "Measure it again, and leave it as it is until that is done."


class Budget:
    """Wall time, counted from when the first replicate is steady."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started: float | None = None

    def start(self) -> None:
        """Begin, once."""
        if self.started is None:
            self.started = time.monotonic()

    def left(self) -> float:
        """Seconds that remain; all of them before the start."""
        return self.seconds - self.spent()

    def spent(self) -> float:
        """Seconds since the start; none before it."""
        return 0.0 if self.started is None else time.monotonic() - self.started


@dataclass
class Seat:
    """An arm with its process in this replicate."""

    state: ArmState
    worker: WorkerProcess
    sample_ns: int = 0
    evidence: list[tuple[Path, int]] = field(default_factory=list)


@dataclass
class Rounds:
    """What all replicates of a case share."""

    launcher: Launcher
    settings: Settings
    chance: random.Random
    references: dict[str, References]
    base: ArmState
    events: Events
    budget: Budget
    turn_number: int = 0
    start_s: float = 0.0
    """What the last processes took from their start until they were steady."""

    def replicate(
        self,
        states: Sequence[ArmState],
        index: int,
        plan_when_steady: Callable[[list[int]], Plan],
        alone: bool = False,
    ) -> None:
        """One process per arm: start all, warm up each, then turns."""
        began = time.monotonic()
        seats = self._start(states, index, alone)
        self.start_s = time.monotonic() - began
        try:
            if seats:
                plan = plan_when_steady([seat.sample_ns for seat in seats])
                self._turns(seats, index, plan)
            self._stop(seats)
        except BaseException:  # Ctrl-C: whoever is in the middle of a turn need not finish it
            _kill(seats)
            raise
        for seat in seats:
            self._judge(seat)

    def _stop(self, seats: Sequence[Seat]) -> None:
        for seat in seats:
            strays = seat.worker.stop()
            if strays:
                seat.state.notes.append(f"{strays} process(es) that outlived a worker were killed")

    def _start(self, states: Sequence[ArmState], index: int, alone: bool) -> list[Seat]:
        """Import and build side by side (nothing is timed yet), warm up one after the other."""
        seats: list[Seat] = []
        layout = self._layout(index)
        try:
            for state in states:
                try:
                    worker = self.launcher.start(state.spec, layout=layout)
                except UsageError as error:  # its interpreter, which was there before
                    state.end(ended_by(error, "start"))
                    continue
                seats.append(Seat(state, worker))
                worker.tell(
                    {
                        "do": "start",
                        "arm": state.spec,
                        "loops": state.loops,
                        "probe_bits": state.probe_bits,
                    }
                )
            built = [s for s in seats if self._alive(s, self._built)]
            self.chance.shuffle(built)
            warm = partial(self._warm_up, index=index, alone=alone)
            ready = [s for s in built if self._alive(s, warm)]
        except BaseException:
            _kill(seats)
            raise
        _kill([seat for seat in seats if seat not in ready])
        return ready

    def _alive(self, seat: Seat, act: Callable[[Seat], object]) -> bool:
        """Do something with a worker; its death is its arm's outcome and nobody else's."""
        try:
            act(seat)
        except (ArmEnded, UsageError) as ended:
            seat.state.end(explained(ended, seat))
            return False
        return True

    def _layout(self, index: int) -> int:
        """The same for all arms of a replicate, also where they run one after the other."""
        return random.Random(f"{self.settings.seed} layout {index}").randrange(2**32)

    def _built(self, seat: Seat) -> None:
        seat.worker.wait(patience(self.settings))

    def _warm_up(self, seat: Seat, index: int, alone: bool) -> None:
        seed = self.chance.randrange(2**31)
        start = seat.worker.ask_for(
            StartReport,
            {"do": "turn", "warm_up": True, "seed": seed, "limit_s": self._warm_up_limit()},
            patience(self.settings, slack_s=WARM_UP_SLACK_S),
        )
        edited = changed(seat.state.sources, start.sources)
        if edited:
            detail = OutcomeDetail(_edited(edited), seat.worker.phase, UNTOUCHED)
            raise ArmEnded(Outcome.ERROR, detail)
        seat.sample_ns = start.sample_ns
        seat.state.replicates.append(
            Replicate(index, start.start_ns, start.warm_up, start.layout, alone)
        )
        wait_until_quiet(seat.worker.pid, QUIET_LIMIT_S)

    def _warm_up_limit(self) -> float:
        """A process that will not settle may not eat the budget."""
        share = self.settings.budget_s * WARM_UP_SHARE
        return min(MOST_WARM_UP_S, max(LEAST_WARM_UP_S, share))

    def _turns(self, seats: list[Seat], index: int, plan: Plan) -> None:
        checked = {seat.state.spec.name: self.chance.randrange(plan.turns) for seat in seats}
        for turn in range(plan.turns):
            order = [seat for seat in seats if seat.state.alive]
            self.chance.shuffle(order)
            for seat in order:
                is_checked = checked[seat.state.spec.name] == turn
                act = partial(self._turn, index=index, plan=plan, turn=turn, checked=is_checked)
                self._alive(seat, act)
                if seat.state.alive:
                    seat.worker.trim_stderr()
            self._tell_progress(index, plan, turn)

    def _tell_progress(self, index: int, plan: Plan, turn: int) -> None:
        """The time left is the budget's, or what the work left will take by what is done.

        Slow steps take longer than the budget: a plan has a least number of processes and turns.
        """
        turns, planned = index * plan.turns + turn + 1, plan.replicates * plan.turns
        in_turns = max(0.0, self.budget.spent() - index * self.start_s)
        by_work = in_turns / turns * (planned - turns)
        by_work += (plan.replicates - index - 1) * self.start_s
        left = max(0.0, self.budget.left(), by_work)
        self.events.update(turns / planned, f"process {index + 1} of {plan.replicates}", left)

    def _turn(self, seat: Seat, index: int, plan: Plan, turn: int, checked: bool) -> None:
        state, worker = seat.state, seat.worker
        references = self.references.get(state.spec.name)
        checked = checked and references is not None
        seed = self.chance.randrange(2**31)
        last = CheckedCall(seed + 1_000_000, timed_shape(state.spec, seed))
        if checked and references is not None:
            last = references.calls[1 + index % (len(references.calls) - 1)]
        shapes = state.spec.shapes
        samples = samples_per_turn(self.settings, plan, seat.sample_ns, self.chance, shapes)
        slack = 10.0 * samples * seat.sample_ns / 1e9
        if shapes > 1 and turn == 0:
            slack += self.settings.build_timeout_s  # new shapes may have to be compiled
        before = snapshot(worker.pid)
        worker.phase = "turn"
        report = worker.ask_for(
            TurnReport,
            {
                "do": "turn",
                "samples": samples,
                "sample_ns": seat.sample_ns,
                "seed": seed,
                "check_seed": last.seed,
                "check_shape": last.shape,
                "keep": checked,
            },
            lambda _: self.settings.step_timeout_s + slack,
        )
        after = snapshot(worker.pid)
        quiet_after, late = wait_until_quiet(worker.pid, QUIET_LIMIT_S)
        noise = difference(before, after, report.turn_wall_ns, report.turn_cpu_ns)
        noise = replace(noise, late_cpu_ns=late, quiet_after_ns=quiet_after)
        state.turns.append(_turn_record(report, index, turn, noise, checked))
        self.turn_number += 1
        state.late_recompiles += report.compiles
        state.note_integrity(report.integrity)
        if checked:
            path = self.launcher.folder / f"timed-{self.turn_number}"
            worker.ask({"do": "evidence", "path": str(path)}, patience(self.settings, 60.0))
            seat.evidence.append((path, last.seed))

    def _judge(self, seat: Seat) -> None:
        """Outputs of timed turns, against the reference of their seeds."""
        references = self.references.get(seat.state.spec.name)
        for path, seed in seat.evidence:
            if references is None:
                continue
            changes = declared_changes(seat.state, self.base)
            found = references.judge(seat.state, path, seed, changes)
            path.unlink()
            seat.state.agreement = combine(seat.state.agreement, found, timed=True)
            if found.mismatch and seat.state.outcome is Outcome.OK:
                seat.state.wrong(Outcome.WRONG_ANSWER, found.mismatch, "timed turn")


def _kill(seats: Sequence[Seat]) -> None:
    with ExitStack() as stack:  # all of them, also where Ctrl-C comes once more
        for seat in seats:
            stack.callback(seat.worker.kill)


def explained(ended: ArmEnded | UsageError, seat: Seat) -> ArmEnded:
    """Code that fails now and ran before has been edited, more often than not; then say so."""
    if isinstance(ended, UsageError):
        ended = ended_by(ended, seat.worker.phase)
    sources = seat.state.sources
    edited = changed(sources, {path: hash_file(path) for path in sources})
    detail = ended.detail
    if ended.outcome is not Outcome.ERROR or not edited or detail.remedy == UNTOUCHED:
        return ended
    message = f"{_edited(edited)} ({detail.message.rstrip('.')})"
    return ArmEnded(ended.outcome, replace(detail, message=message, remedy=UNTOUCHED))


def _edited(names: Sequence[str]) -> str:
    return f"the file changed while it was measured: {', '.join(names)}"


def _turn_record(
    report: TurnReport, replicate: int, index: int, noise: Noise, checked: bool
) -> Turn:
    """Turns of one round share their index, so that noise common to all arms can cancel."""
    return Turn(
        replicate=replicate,
        index=index,
        wall_ns=report.wall_ns,
        cpu_ns=report.cpu_ns,
        probe_ns=report.probe_ns,
        probe_every=report.probe_every,
        first_ns=report.first_ns,
        minor_faults=report.minor_faults,
        major_faults=report.major_faults,
        noise=noise,
        checked=checked,
    )
