"""References: the baseline's answers, made in a process of their own, and the arms held to them.

What is lost on the way costs as little of the check as it must: without float64 there is eager
code, and whoever has no reference at all is evaluated by the form of its answer (`conductor.solo`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torchstone.conductor.case import Settings
from torchstone.conductor.check_outputs import Output, evaluate, out_of_range, read_evidence
from torchstone.conductor.launch import CaseContext
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, clean, ended_by, patience
from torchstone.measure.channel import FLOAT64_FAILED, CheckedCall, CountReport, ReferenceReport
from torchstone.measure.reference import furthest
from torchstone.records import Agreement, ArmSpec, UsageError

SEED_STEP = 101
REFERENCE_CACHE = "reference"
COUNT_SLOWDOWN = 4.0
"""A step under the counting mode: two runs, and some microseconds more for every op."""
REASON_KEPT = 160
MOST_JUMP = 0.1
"""Relative error up to which a jump at a kink is thought of; a wrong answer is mostly further."""


def checked_calls(spec: ArmSpec, settings: Settings) -> tuple[CheckedCall, ...]:
    """The solo pass's at the base shape, then those of timed turns, at every shape timed."""
    count = settings.does.checked_calls
    count = count if spec.shapes == 1 else max(count, 1 + spec.shapes)
    shapes = [0, *(timed_shape(spec, i) for i in range(count - 1))]
    return tuple(
        CheckedCall(settings.seed + SEED_STEP * (i + 1), shape) for i, shape in enumerate(shapes)
    )


def timed_shape(spec: ArmSpec, number: int) -> int:
    """One of the shapes that timed turns use."""
    return 1 + number % spec.shapes if spec.shapes > 1 else 0


@dataclass(frozen=True)
class References:
    """The baseline's outputs for the checked calls, on disk."""

    folder: Path
    calls: tuple[CheckedCall, ...]
    report: ReferenceReport
    no_float64: str = ""
    """Why float64 is not among them; empty where it is."""
    work: CountReport | None = None
    look_closer: Callable[[CheckedCall, Path], str] | None = None
    """Writes how far more nudges move the baseline, or says why it could not."""

    def evaluate(
        self, state: ArmState, evidence: Path, seed: int, changes: frozenset[str]
    ) -> Agreement:
        """One output of an arm against the reference of its seed.

        Before an arm is called wrong by a little, the baseline is nudged many more times: a jump
        that five runs did not show may still be the baseline's own.
        """
        fp64 = None if self.no_float64 else self._read("fp64", seed)
        eager, found = self._read("eager", seed), read_evidence(evidence)
        reason = self.no_float64
        moved = self._moved(seed)
        agreed = evaluate(state.spec, found, eager, fp64, changes, reason, moved)
        if not (agreed.mismatch and 0.0 < agreed.rmse <= MOST_JUMP):
            return agreed
        moved = furthest(moved, self._moved_further(seed, state))
        return evaluate(state.spec, found, eager, fp64, changes, reason, moved)

    def _moved(self, seed: int) -> dict[str, float]:
        found: dict[str, float] = json.loads((self.folder / f"moved-{seed}").read_text())
        return found

    def _moved_further(self, seed: int, state: ArmState) -> dict[str, float]:
        """Looked for once; empty, with a note, where it cannot be."""
        path = self.folder / f"further-{seed}"
        call = next(call for call in self.calls if call.seed == seed)
        if not path.exists() and self.look_closer is not None:
            failure = self.look_closer(call, path)
            if failure:
                state.notes.append(failure)
        found: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _read(self, kind: str, seed: int) -> list[Output]:
        return read_evidence(self.folder / f"{kind}-{seed}")

    def repeats_itself(self, spec: ArmSpec) -> Agreement:
        """The baseline's first seed, run twice from the same state."""
        seed = self.calls[0].seed
        first, again = self._read("eager", seed), self._read("again", seed)
        return evaluate(spec, again, first, None, frozenset())

    def out_of_range(self) -> bool:
        """Whether the baseline itself is not finite where float64 is, for the first seed."""
        if self.no_float64:
            return False
        seed = self.calls[0].seed
        return out_of_range(self._read("eager", seed), self._read("fp64", seed))


@dataclass(frozen=True)
class PendingReference:
    """References that a process is at work on."""

    spec: ArmSpec
    folder: Path
    calls: tuple[CheckedCall, ...]
    worker: WorkerProcess


def begin_references(case: CaseContext, spec: ArmSpec, number: int) -> PendingReference:
    """Run the baseline as plain eager code, and in float64, in a process of its own."""
    folder = case.launcher.folder / f"references-{number}"
    folder.mkdir()
    calls = checked_calls(spec, case.settings)
    worker = case.launcher.start(spec, cache=REFERENCE_CACHE)
    worker.tell({"do": "reference", "arm": spec, "calls": calls, "folder": str(folder)})
    worker.tell({"do": "float64"})
    return PendingReference(spec, folder, calls, worker)


def finish_references(case: CaseContext, begun: PendingReference) -> References | ArmEnded:
    """Wait for them. The process is there and built, and nothing is ever timed in it, so
    operations are counted in it too, unless it did not live through float64."""
    spec, worker, settings = begun.spec, begun.worker, case.settings
    worker.listener, work = case.live.ticking(), None
    try:
        waiting = patience(settings, slack_s=settings.build_timeout_s)
        report = worker.wait_for(ReferenceReport, waiting)
        report = replace(report, notes=tuple(_short(note, spec) for note in report.notes))
        no_float64 = _wait_for_float64(worker, waiting)
        if settings.count_flops and not worker.ended:
            work = _count_in(worker, spec, settings)
    except ArmEnded as ended:
        return ended
    except UsageError as error:  # the arm was built before; what is wrong now came later
        return ended_by(error, worker.phase)
    finally:
        worker.kill()
    closer = partial(_look_closer, case, spec)
    return References(begun.folder, begun.calls, report, no_float64, work, closer)


def _wait_for_float64(worker: WorkerProcess, waiting: Callable[[str], float]) -> str:
    """Why there is none; whatever ended the process, eager code's answers are on disk."""
    try:
        reason = worker.wait_for(str, waiting)
    except ArmEnded as ended:
        reason = f"{FLOAT64_FAILED}: {ended.detail.message}"
    return _short(reason, worker.arm)


def _short(text: str, arm: ArmSpec) -> str:
    return clean(text, arm)[:REASON_KEPT]


def _look_closer(case: CaseContext, spec: ArmSpec, call: CheckedCall, path: Path) -> str:
    """In a process of its own, as references are made; a failure leaves no file but a sentence."""
    worker = case.launcher.start(spec, cache=REFERENCE_CACHE)
    command = {"do": "closer", "arm": spec, "call": call, "path": str(path)}
    try:
        worker.ask(command, patience(case.settings, slack_s=case.settings.build_timeout_s))
    except (ArmEnded, UsageError) as ended:
        path.unlink(missing_ok=True)
        return f"no closer look at the baseline's own rounding: {ended.args[0]}"
    finally:
        worker.kill()
    return ""


def count_flops(case: CaseContext, spec: ArmSpec) -> CountReport:
    """Count in a process of its own, where no reference was made."""
    spec = replace(spec, variant="eager")
    case.events.phase(f"{spec.name}: counting operations")
    worker = case.launcher.start(spec, cache="count")
    try:
        return _count_in(worker, spec, case.settings)
    finally:
        worker.kill()


def _count_in(worker: WorkerProcess, spec: ArmSpec, settings: Settings) -> CountReport:
    """A failure is a note, no outcome."""
    waiting = patience(settings, slack_s=COUNT_SLOWDOWN * settings.step_timeout_s)
    command = {"do": "count", "arm": replace(spec, variant="eager")}
    try:
        return worker.ask_for(CountReport, command, waiting)
    except (ArmEnded, UsageError) as ended:
        return CountReport(None, f"FLOPs not counted: {ended.args[0]}")
