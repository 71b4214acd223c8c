"""The first part of a case: references, then each arm alone."""

from __future__ import annotations

import getpass
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torchstone.conductor.case import Events, Settings
from torchstone.conductor.judge import (
    Output,
    combine,
    compare_leaves,
    judge,
    out_of_range,
    read_evidence,
)
from torchstone.conductor.launch import Launcher, arm_environment
from torchstone.conductor.promises import remarks, undeclared_change
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess
from torchstone.measure.conditioning import furthest
from torchstone.measure.reports import CheckedCall, CountReport, ReferenceReport, SoloReport
from torchstone.records import DROPOUT_NOTE, Agreement, ArmSpec, Flops, Outcome, UsageError

CHECKED_CALLS = 4
"""References per case: one for the solo pass, the others for outputs of timed turns."""
SEED_STEP = 101
REFERENCE_CACHE = "reference"
SOLO_SLACK_S = 10.0
"""For what the solo pass does besides steps: evidence, environment, page faults."""
COUNT_SLOWDOWN = 4.0
"""A step under the counting mode: two runs, and some microseconds more for every op."""
_BUILDING = ("start", "import", "build", "first call", "reference", "contract")
_TOOLCHAIN_VARIANTS = ("inductor", "aoti")


def patience(settings: Settings, slack_s: float = 0.0) -> Callable[[str], float]:
    """The time-out of a phase: building and compiling have one, steps another."""

    def of_phase(phase: str) -> float:
        if phase in _BUILDING:
            return settings.build_timeout_s
        return settings.step_timeout_s + slack_s

    return of_phase


def checked_calls(spec: ArmSpec, settings: Settings) -> tuple[CheckedCall, ...]:
    """The solo pass's at the base shape, then those of timed turns, at every shape timed."""
    count = CHECKED_CALLS if spec.shapes == 1 else max(CHECKED_CALLS, 1 + spec.shapes)
    shapes = [0, *(timed_shape(spec, i) for i in range(count - 1))]
    return tuple(
        CheckedCall(settings.seed + SEED_STEP * (i + 1), shape) for i, shape in enumerate(shapes)
    )


def timed_shape(spec: ArmSpec, number: int) -> int:
    """One of the shapes that timed turns use."""
    return 1 + number % spec.shapes if spec.shapes > 1 else 0


MOST_JUMP = 0.1
"""Relative error up to which a jump at a kink is thought of; a wrong answer is mostly further."""


@dataclass(frozen=True)
class Work:
    """What counting found: operations and bytes of a step, or why there is no figure."""

    flops: Flops | None
    note: str = ""


@dataclass(frozen=True)
class References:
    """The baseline's outputs for the checked calls, on disk."""

    folder: Path
    calls: tuple[CheckedCall, ...]
    report: ReferenceReport
    work: Work | None = None
    look_closer: Callable[[CheckedCall, Path], str] | None = None
    """Writes how far more nudges move the baseline, or says why it could not."""

    def judge(
        self, state: ArmState, evidence: Path, seed: int, changes: frozenset[str]
    ) -> Agreement:
        """One output of an arm against the reference of its seed.

        Before an arm is called wrong by a little, the baseline is nudged many more times: a jump
        that five runs did not show may still be the baseline's own.
        """
        fp64 = self._read("fp64", seed) if self.report.method == "fp64" else None
        eager, found = self._read("eager", seed), read_evidence(evidence)
        reason = self.report.reason
        moved = self._moved(seed)
        agreed = judge(state.spec, found, eager, fp64, changes, reason, moved)
        if not (agreed.mismatch and 0.0 < agreed.rmse <= MOST_JUMP):
            return agreed
        moved = furthest(moved, self._moved_further(seed, state))
        return judge(state.spec, found, eager, fp64, changes, reason, moved)

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
        return judge(spec, again, first, None, frozenset())

    def out_of_range(self) -> bool:
        """Whether the baseline itself is not finite where float64 is, for the first seed."""
        if self.report.method != "fp64":
            return False
        seed = self.calls[0].seed
        return out_of_range(self._read("eager", seed), self._read("fp64", seed))


@dataclass(frozen=True)
class Begun:
    """References that a process is at work on."""

    spec: ArmSpec
    folder: Path
    calls: tuple[CheckedCall, ...]
    worker: WorkerProcess


def begin_references(launcher: Launcher, spec: ArmSpec, settings: Settings, number: int) -> Begun:
    """Run the baseline as plain eager code, and in float64, in a process of its own."""
    folder = launcher.folder / f"references-{number}"
    folder.mkdir()
    calls = checked_calls(spec, settings)
    worker = launcher.start(spec, cache=REFERENCE_CACHE)
    worker.tell({"do": "reference", "arm": spec, "calls": calls, "folder": str(folder)})
    return Begun(spec, folder, calls, worker)


def finish_references(
    launcher: Launcher, begun: Begun, settings: Settings
) -> References | ArmEnded:
    """Wait for them. The process is there and built, and nothing is ever timed in it, so
    operations are counted in it too."""
    spec, worker = begun.spec, begun.worker
    try:
        slack_s = settings.build_timeout_s
        report = worker.wait_for(ReferenceReport, patience(settings, slack_s=slack_s))
        work = _count_in(worker, spec, settings) if settings.count_flops else None
    except ArmEnded as ended:
        return ended
    finally:
        worker.kill()
    closer = partial(_look_closer, launcher, spec, settings)
    return References(begun.folder, begun.calls, report, work, closer)


def _look_closer(
    launcher: Launcher, spec: ArmSpec, settings: Settings, call: CheckedCall, path: Path
) -> str:
    """In a process of its own, as references are made; a failure leaves no file but a sentence."""
    worker = launcher.start(spec, cache=REFERENCE_CACHE)
    try:
        worker.ask(
            {"do": "closer", "arm": spec, "call": call, "path": str(path)},
            patience(settings, slack_s=settings.build_timeout_s),
        )
    except ArmEnded as ended:
        path.unlink(missing_ok=True)
        return f"no closer look at the baseline's own rounding: {ended.detail.message}"
    finally:
        worker.kill()
    return ""


def solo_pass(
    launcher: Launcher, state: ArmState, settings: Settings, events: Events
) -> Path | None:
    """Run one arm alone; returns its evidence file, or None if it did not get that far."""
    spec = state.spec
    seed = checked_calls(spec, settings)[0].seed
    events.phase(f"{spec.name}: alone (build, contract, memory)")
    evidence = launcher.folder / f"solo-{seed}-{len(list(launcher.folder.glob('solo-*')))}"
    worker = launcher.start(spec)
    try:
        state.solo = worker.ask_for(
            SoloReport,
            {
                "do": "solo",
                "arm": spec,
                "check_seed": seed,
                "evidence": "" if spec.statement else str(evidence),
                "loops": settings.loops,
                "arm_env": dict(arm_environment(spec)),
                "salt": launcher.salt,
            },
            patience(settings, slack_s=SOLO_SLACK_S),
        )
        state.integrity = state.solo.integrity
        state.loops = state.solo.loops
    except ArmEnded as ended:
        state.end(ended)
        return None
    finally:
        strays = worker.stop()
    if strays:
        state.notes.append(f"{strays} process(es) that outlived the arm's solo process were killed")
    return None if spec.statement else evidence


def judge_solo(
    state: ArmState, base: ArmState, references: References, evidence: Path, independent: bool
) -> None:
    """Set the arm's outcome by its first output."""
    changes = declared_changes(state, base)
    found = references.judge(state, evidence, references.calls[0].seed, changes)
    state.agreement = combine(None, found, timed=False)
    if state is base:
        problem = _nondeterminism(state, references, found)
        if problem:
            state.wrong(Outcome.NONDETERMINISTIC, problem, "contract")
            return
    if base.outcome is Outcome.NONDETERMINISTIC:
        state.wrong(
            Outcome.NONDETERMINISTIC,
            "the baseline gives no fixed answer to compare with",
            "contract",
        )
    elif found.mismatch:
        state.wrong(Outcome.WRONG_ANSWER, found.mismatch, "contract", _why_wrong(state, references))
    elif not independent and state is not base:
        _hold_to_promises(state, base, changes)


def _why_wrong(state: ArmState, references: References) -> str:
    """What to do where a right answer can hardly be expected."""
    if references.out_of_range():
        return (
            "The baseline itself gives NaN or infinities where float64 does not: choose another "
            "precision, or weights and inputs that stay within the range of this one."
        )
    contract = state.solo.contract if state.solo else None
    if contract is None or DROPOUT_NOTE not in contract.notes:
        return ""
    return (
        "The model has dropout, and a compiler draws other masks than eager code: set every p to 0 "
        "to compare the two."
    )


def declared_changes(state: ArmState, base: ArmState) -> frozenset[str]:
    """What may differ: what the variant says, and what the two arms' settings say."""
    extra = set()
    if state.spec.precision != base.spec.precision:
        extra.add("dtype")
    if state.spec.device != base.spec.device:
        extra.add("device")
    return state.changes | extra


def _nondeterminism(state: ArmState, references: References, found: Agreement) -> str:
    again = references.repeats_itself(state.spec)
    if again.mismatch:
        return f"two runs from one seed differ: {again.mismatch}"
    contract = state.solo.contract if state.solo else None
    weights = references.report.weights_hash
    if state.spec.precision == "fp32" and contract and contract.weights_hash != weights:
        return "two processes with one seed build different weights: the factory is not seeded"
    if found.mismatch and state.spec.variant == "eager" and not references.out_of_range():
        return f"two processes with one seed differ: {found.mismatch}"
    return ""


def _hold_to_promises(state: ArmState, base: ArmState, changes: frozenset[str]) -> None:
    """Its answer is right; is all else as the variant said?"""
    mine = state.solo.contract if state.solo else None
    other = base.solo.contract if base.solo else None
    if mine is None or other is None:
        return
    difference = compare_leaves(other.inputs, mine.inputs, changes)
    if difference and len(mine.inputs) == len(other.inputs):
        state.notes.append(f"inputs differ in form from the baseline's: {difference}")
    if state.spec.target == base.spec.target:
        change = undeclared_change(other, mine, changes)
        if change:
            message = f"{change}, which {state.spec.variant} does not say it changes"
            state.wrong(Outcome.WRONG_ANSWER, message, "contract")
            return
    state.notes += remarks(other, mine, changes)


def count_flops(launcher: Launcher, spec: ArmSpec, settings: Settings, events: Events) -> Work:
    """Count in a process of its own, where no reference was made."""
    spec = replace(spec, variant="eager")
    events.phase(f"{spec.name}: counting operations")
    worker = launcher.start(spec, cache="count")
    try:
        return _count_in(worker, spec, settings)
    finally:
        worker.kill()


def _count_in(worker: WorkerProcess, spec: ArmSpec, settings: Settings) -> Work:
    """A failure is a note, no outcome."""
    try:
        counted = worker.ask_for(
            CountReport,
            {"do": "count", "arm": replace(spec, variant="eager")},
            patience(settings, slack_s=COUNT_SLOWDOWN * settings.step_timeout_s),
        )
        return Work(counted.flops)
    except ArmEnded as ended:
        return Work(None, f"FLOPs not counted: {ended.detail.message}")
    except UsageError as error:
        return Work(None, f"FLOPs not counted: {error.message}")


def warm_toolchain(launcher: Launcher, spec: ArmSpec, settings: Settings) -> int | None:
    """Pay the compiler's own one-time cost (precompiled headers) where it has not been paid yet."""
    if spec.variant.split("+")[0] not in _TOOLCHAIN_VARIANTS or _headers_exist():
        return None
    worker = launcher.start(spec, cache="toolchain")
    try:
        return int(worker.ask({"do": "toolchain", "arm": spec}, patience(settings)))
    except ArmEnded:
        return None  # the arm itself will meet the same trouble, and say so
    finally:
        worker.kill()


def _headers_exist() -> bool:
    """Inductor keeps precompiled headers outside its cache folder, by user name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return False
    user = "".join(c if c not in r'\/:*?"<>|' else "_" for c in name)
    folder = Path(tempfile.gettempdir()) / f"torchinductor_{user}" / "precompiled_headers"
    return folder.is_dir() and bool(os.listdir(folder))
