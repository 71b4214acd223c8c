"""The first part of a case: each arm alone, and its first answer evaluated.

References: the baseline's answers, made in a process of their own, and the arms held to them.

What is lost on the way costs as little of the check as it must: without float64 there is eager
code, and whoever has no reference at all is evaluated by the form of its answer (`conductor.solo`).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torchstone.conductor.case import Settings
from torchstone.conductor.check_outputs import (
    Output,
    combine,
    compare_leaves,
    evaluate,
    out_of_range,
    read_evidence,
    remarks,
    undeclared_change,
)
from torchstone.conductor.launch import CaseContext, arm_environment
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, clean, ended_by, patience
from torchstone.measure.channel import (
    FLOAT64_FAILED,
    NO_TENSORS,
    CheckedCall,
    CountReport,
    ReferenceReport,
    SoloReport,
    TensorReport,
)
from torchstone.measure.reference import furthest
from torchstone.records import DROPOUT_NOTE, NO_REFERENCE, Agreement, ArmSpec, Outcome, UsageError

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


HOPELESS = "stopped early"
SOLO_SLACK_S = 10.0
"""For what the solo pass does besides steps: evidence, environment, page faults."""


def solo_pass(case: CaseContext, state: ArmState) -> Path | None:
    """Run one arm alone; returns its evidence file, or None if it did not get that far."""
    launcher, settings, spec = case.launcher, case.settings, state.spec
    seed = checked_calls(spec, settings)[0].seed
    case.live.step(spec.name, f"{spec.name}: building, checking output and memory")
    evidence = launcher.folder / f"solo-{seed}-{len(list(launcher.folder.glob('solo-*')))}"
    launcher.begin_cold(spec)
    worker = launcher.start(spec)
    worker.listener = case.live.listener(state)
    try:
        solo = worker.ask_for(
            SoloReport,
            {
                "do": "solo",
                "arm": spec,
                "check_seed": seed,
                "evidence": "" if spec.statement else str(evidence),
                "loops": settings.loops,
                "arm_env": dict(arm_environment(spec)),
                "salt": launcher.salt,
                "deeper": settings.does.looks_deeper,
            },
            patience(settings, slack_s=SOLO_SLACK_S),
        )
        first_call_ns = launcher.cold_first_call(spec, solo.first_call_ns)
        state.solo = replace(solo, first_call_ns=first_call_ns)
        state.integrity = solo.integrity
        state.loops = solo.loops
        if settings.does.looks_deeper:
            _look_at_tensors(worker, state, settings)
    except ArmEnded as ended:
        state.end(ended)
        return None
    finally:
        # Whoever is not through (Ctrl-C) need not finish: only a whole pass ends in good order.
        strays = worker.stop() if state.solo is not None else worker.kill()
    if strays:
        state.notes.append(f"{strays} process(es) that outlived the arm's solo process were killed")
    return None if spec.statement else evidence


def _look_at_tensors(worker: WorkerProcess, state: ArmState, settings: Settings) -> None:
    """Add the memory of the arm's tensors; what goes wrong here is a note, the arm is measured."""
    solo = state.solo
    if solo is None or solo.memory is None or state.spec.statement is not None:
        return
    try:
        found = worker.ask_for(
            TensorReport,
            {"do": "tensors", "memory": solo.memory},
            patience(settings, slack_s=SOLO_SLACK_S),
        )
    except (ArmEnded, UsageError) as ended:
        found = TensorReport(solo.memory, f"{NO_TENSORS}: {ended}")
    state.solo = replace(solo, memory=found.memory)
    if found.note:
        state.notes.append(found.note)


def check_solo(
    state: ArmState, base: ArmState, references: References, evidence: Path, independent: bool
) -> None:
    """Set the arm's outcome by its first output."""
    changes = declared_changes(state, base)
    found = references.evaluate(state, evidence, references.calls[0].seed, changes)
    state.agreement = combine(None, found, timed=False)
    if state is base:
        problem, remedy = _nondeterminism(state, references, found)
        if problem:
            state.wrong(Outcome.NONDETERMINISTIC, problem, "contract", remedy)
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


def stop_if_hopeless(state: ArmState, base: ArmState, settings: Settings) -> None:
    """By the steps that both took alone: what is so much slower there will not win in turns."""
    if settings.hopeless is None or state is base or not state.alive:
        return
    if state.solo is None or base.solo is None or not base.solo.step_ns:
        return
    ratio = state.solo.step_ns / base.solo.step_ns
    if ratio > settings.hopeless:
        said = f"{HOPELESS}: alone a step takes {ratio:.1f} times as long as the baseline's"
        state.wrong(Outcome.NOT_RUN, f"{said} (limit {settings.hopeless:g})", "solo")


def check_structure(state: ArmState, base: ArmState, reason: str, independent: bool) -> None:
    """Without any reference nobody knows the values; the form of the answer still counts."""
    state.agreement = Agreement("none", f"{NO_REFERENCE}: {reason}")
    mine = state.solo.contract if state.solo else None
    other = base.solo.contract if base.solo else None
    if independent or state is base or mine is None or other is None:
        return
    changes = declared_changes(state, base)
    difference = compare_leaves(other.outputs, mine.outputs, changes)
    if difference:
        state.wrong(Outcome.WRONG_ANSWER, difference, "contract")
    else:
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


SEED_EACH_CALL = (
    "Draw random numbers from a generator that the call seeds itself, or leave them out (dropout: "
    "p=0 or eval()); for atomics, torch.use_deterministic_algorithms(True)."
)
SEED_THE_DATA = (
    "random, numpy.random and torch are seeded before the file is imported and before its factory "
    "is called. Seed other sources yourself: numpy.random.default_rng(0), "
    "torch.Generator().manual_seed(0); use no time, hash() or order of a set."
)


def _nondeterminism(state: ArmState, references: References, found: Agreement) -> tuple[str, str]:
    """What differs, and what to do about it; empty where nothing does."""
    again = references.repeats_itself(state.spec)
    if again.mismatch:
        return f"two runs from one seed differ: {again.mismatch}", SEED_EACH_CALL
    contract = state.solo.contract if state.solo else None
    weights = references.report.weights_hash
    if state.spec.precision == "fp32" and contract and contract.weights_hash != weights:
        return (
            "two processes with one seed build different weights: they are not seeded",
            SEED_THE_DATA,
        )
    if found.mismatch and state.spec.variant == "eager" and not references.out_of_range():
        return f"two processes with one seed differ: {found.mismatch}", SEED_THE_DATA
    return "", ""


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


def warm_toolchain(case: CaseContext, spec: ArmSpec) -> int | None:
    """Pay the compiler's own one-time cost (precompiled headers) where it has not been paid yet.

    Nanoseconds; None where there was nothing to pay.
    """
    if spec.backend not in VARIANTS:
        return None
    env = case.launcher.environment(spec, "toolchain")
    mark = mark_of(case.launcher.interpreter(spec), env, spec)
    if mark is not None and mark.holds:
        return None
    before = mark.headers() if mark is not None else None
    worker = case.launcher.start(spec, cache="toolchain")
    try:
        spent = worker.ask_for(int, {"do": "toolchain", "arm": spec}, patience(case.settings))
    except ArmEnded:
        return None  # the arm itself will meet the same problem, and say so
    finally:
        worker.kill()
    if mark is None:
        return spent
    mark.put()
    return spent if mark.headers() != before else None


# Whether the compiler's own one-time cost has been paid on this machine.
#
# Inductor precompiles headers and keeps them for all cases, outside their caches. It knows each by
# its text, the command line and the compiler, so a new torch, a new compiler or another kind of
# compilation pays again. What was paid is remembered in a file beside the headers, and holds while
# they are there.

VARIANTS = ("inductor", "aoti")
"""Kinds of compilation that precompile headers, each its own."""
ASK_TIMEOUT_S = 60.0
"""For an interpreter that starts and reads two files; it takes a tenth of a second."""
MOST_BYTES = 1_000_000
_SETTINGS = ("CXX", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS")
_ASK = r"""
import getpass, importlib.util, json, os, re, sys, tempfile
sys.path[:] = [folder for folder in sys.path if folder]
spec = importlib.util.find_spec("torch")
origin = spec.origin if spec and spec.origin else ""
version = os.path.join(os.path.dirname(origin), "version.py")
text = open(version, encoding="utf-8").read() if origin and os.path.isfile(version) else ""
try:
    user = getpass.getuser()
except (KeyError, ImportError, OSError):
    user = f"uid_{os.getuid()}"
folder = "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)
print(json.dumps([sys.version, origin, text, os.path.join(tempfile.gettempdir(), folder)]))
"""
"""Asked of the arm's interpreter: its torch, not imported, and where inductor keeps its files."""


@dataclass(frozen=True)
class Mark:
    """What says that the headers of one kind of compilation have been made."""

    path: Path
    folder: Path

    @property
    def holds(self) -> bool:
        """Whether they have, and all of them are still there."""
        try:
            if self.path.stat().st_size > MOST_BYTES:
                return False
            made = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(made, list) and self.headers() >= {str(name) for name in made}

    def headers(self) -> frozenset[str]:
        """The precompiled headers that are there now."""
        try:
            return frozenset(name for name in os.listdir(self.folder) if name.endswith(".gch"))
        except OSError:
            return frozenset()

    def put(self) -> None:
        """Remember those that are there now. Where that cannot be, they are asked for again."""
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(exist_ok=True)
            part.write_text(json.dumps(sorted(self.headers())), "utf-8")
            os.replace(part, self.path)
        except OSError:
            return


def mark_of(python: str, env: Mapping[str, str], spec: ArmSpec) -> Mark | None:
    """By interpreter, torch, compiler and kind of compilation; None where that cannot be told."""
    asked = _output([python, "-c", _ASK], env)
    compiler = _output([env.get("CXX") or "g++", "--version"], env)
    try:
        version, origin, torch, folder = json.loads(asked)
    except (ValueError, TypeError):
        return None
    settings = [env.get(name, "") for name in _SETTINGS]
    kind = [spec.backend, spec.device.split(":")[0]]
    parts = json.dumps([python, version, origin, torch, compiler, settings, kind])
    name = hashlib.sha256(parts.encode()).hexdigest()[:16]
    place = Path(folder)
    return Mark(place / f"torchstone-toolchain-{name}.json", place / "precompiled_headers")


def _output(command: list[str], env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
