"""The first part of a case: each arm alone, and its first answer evaluated."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torchstone.conductor.case import Settings
from torchstone.conductor.check_outputs import combine, compare_leaves, remarks, undeclared_change
from torchstone.conductor.launch import CaseContext, arm_environment
from torchstone.conductor.references import References, checked_calls
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, patience
from torchstone.measure.channel import NO_TENSORS, SoloReport, TensorReport
from torchstone.records import (
    DROPOUT_NOTE,
    NO_REFERENCE,
    Agreement,
    ArmSpec,
    Outcome,
    UsageError,
)

HOPELESS = "stopped early"
SOLO_SLACK_S = 10.0
"""For what the solo pass does besides steps: evidence, environment, page faults."""


def solo_pass(case: CaseContext, state: ArmState) -> Path | None:
    """Run one arm alone; returns its evidence file, or None if it did not get that far."""
    launcher, settings, spec = case.launcher, case.settings, state.spec
    seed = checked_calls(spec, settings)[0].seed
    case.live.step(spec.name, f"{spec.name}: building, checking output and memory")
    evidence = launcher.folder / f"solo-{seed}-{len(list(launcher.folder.glob('solo-*')))}"
    worker = launcher.start(spec)
    worker.listener = case.live.listener(state)
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
                "deeper": settings.does.looks_deeper,
            },
            patience(settings, slack_s=SOLO_SLACK_S),
        )
        state.integrity = state.solo.integrity
        state.loops = state.solo.loops
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
