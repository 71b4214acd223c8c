"""`torchstone doctor`: is this machine fit to measure on, today?"""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata, util
from pathlib import Path

from torchstone import stats
from torchstone.conductor import Events, Settings
from torchstone.conductor.calibration import run_calibration
from torchstone.conductor.case import Silent
from torchstone.lab import bench
from torchstone.lab.bench import measure_unsaved, new_id
from torchstone.lab.peaks import known_peaks
from torchstone.lab.recording import Recorder
from torchstone.machine import hardware, loaded_allocator, machine_id
from torchstone.machine.doctor import View, allowed_cores, examine, watch
from torchstone.machine.hardware import ILLEGAL_REMEDY
from torchstone.machine.memory import usual_allocator
from torchstone.records import (
    DRAM,
    ArmSpec,
    Calibration,
    DoctorReport,
    Estimate,
    Finding,
    Level,
    Measurement,
    Outcome,
    Peak,
    Result,
    TorchstoneError,
    UsageError,
)
from torchstone.records.format import count, percent
from torchstone.store.limits import now, seconds_of
from torchstone.store.machines import FloorSummary

# The doctor and the calibration: make one, or say which is in force and whether it still holds.


COMMAND = "torchstone doctor --calibrate"
_HOUR, _DAY = 3600.0, 86400.0
_calibration = partial(Finding, "calibration")


def calibrate(
    device: str,
    recorder: Recorder,
    events: Events,
    run_calibration: Callable[..., Calibration] = run_calibration,
) -> tuple[Calibration | None, Finding]:
    """Measure the peaks again and keep them."""
    events.phase("calibrating")
    try:
        made = run_calibration(device=device, say=events.phase)
    except (TorchstoneError, ImportError) as error:
        return None, _calibration(
            Level.WARN,
            f"could not be measured: {getattr(error, 'message', error)}",
            remedy=getattr(error, "remedy", "") or "Install torch, then try again.",
        )
    with recorder.collect_errors("The calibration was not kept"):
        recorder.save_calibration(made)
    return made, _said(made, f"measured just now: {_ceilings(made)}")


def _said(known: Calibration, said: str) -> Finding:
    """What is in force; a warning where part of it ends any program here."""
    for note in known.notes:
        if ILLEGAL_REMEDY in note:
            said += f"; {note.partition(';')[0]}: an illegal instruction"
            return _calibration(Level.WARN, said, _figures(known), ILLEGAL_REMEDY)
    return _calibration(Level.OK, said, _figures(known))


def in_force(
    machine_id: str, device: str, recorder: Recorder
) -> tuple[Calibration | None, Finding]:
    """The newest of this machine and device."""
    known, stale = known_peaks(recorder, machine_id, device)
    command = COMMAND if device == "cpu" else f"{COMMAND} --device {device}"
    if known is None:
        return None, _calibration(
            Level.NOTE,
            "none yet, so no figure can be held against what this machine can do",
            remedy=f"Run `{command}`; it takes about half a minute.",
        )
    said = f"made {_age(known.created)}: {_ceilings(known)}"
    if not stale:
        return known, _said(known, said)
    remedy = f"Run `{command}`: it is too old, or the machine or torch has changed."
    return known, _calibration(Level.NOTE, f"stale, {said}", _figures(known), remedy)


def _age(created: str) -> str:
    """`12 minutes ago`, `3 hours ago`, `2 days ago`; the date as it is where it cannot be read."""
    then = seconds_of(created)
    if then is None:
        return created
    seconds = max(0.0, time.time() - then)
    for length, word in ((_DAY, "day"), (_HOUR, "hour"), (60.0, "minute")):
        if seconds >= length:
            return f"{count(int(seconds // length), word)} ago"
    return "just now"


def _ceilings(calibration: Calibration) -> str:
    """The best of each kind, in a few words."""
    best = _best(calibration)
    compute, memory, clock = (best.get(name) for name in ("compute", "memory", "clock"))
    parts = []
    if compute is not None:
        parts.append(f"{compute.dtype} {compute.value / 1e9:.3g} GFLOP/s{_threads(compute)}")
    if memory is not None:
        parts.append(f"memory {memory.value / 1e9:.3g} GB/s{_threads(memory)}")
    if clock is not None:
        parts.append(f"clock {clock.value / 1e9:.3g} GHz")
    return ", ".join(parts) or "its peaks are unknown"


def _threads(peak: Peak) -> str:
    return f" on {count(peak.threads, 'thread')}" if peak.threads else ""


def _best(calibration: Calibration) -> dict[str, Peak]:
    """The highest peak of each kind that there is."""
    kinds = {
        "compute": [peak for peak in calibration.compute if not peak.sparse],
        "memory": [p for p in calibration.bandwidth if p.level == DRAM and not p.sparse],
        "clock": [calibration.clock] if calibration.clock is not None else [],
    }
    return {name: max(of, key=lambda peak: peak.value) for name, of in kinds.items() if of}


def _figures(calibration: Calibration) -> dict[str, float]:
    return {name: peak.value for name, peak in _best(calibration).items()}


# The A/A of the doctor: two identical arms for a few seconds, and what that says of today.


_identical = partial(Finding, "identical")
TARGET = "torchstone.workloads.load:run()"
ARMS = ("identical arm", "its twin")
BUDGET_S = 4.0
REPLICATES = 4
"""Fresh processes an arm: fewer give an interval that no effect would leave."""
GOOD = 0.02
"""The default margin: what lies below it counts as the same anyway."""


@dataclass(frozen=True)
class Seen:
    """What the A/A gave. `smallest` is the smallest difference that could have been shown."""

    finding: Finding
    estimate: Estimate | None = None
    smallest: float | None = None
    interrupted: bool = False


def measure_identical(
    recorder: Recorder,
    events: Events | None = None,
    target: str = TARGET,
    budget_s: float = BUDGET_S,
) -> Seen:
    """Measure the same function as two arms; remember what they differed by."""
    settings = Settings(budget_s=budget_s, replicates=REPLICATES, check_outputs=False)
    arms = tuple(ArmSpec(name, target, allocator=usual_allocator()) for name in ARMS)
    # Without the recorder: no third arm runs along, and no earlier floor hides a difference.
    result = measure_unsaved(arms, settings, None, events, (), "doctor")
    return see(result, recorder)


def see(result: Result, recorder: Recorder) -> Seen:
    """What the two arms of a result say of this machine."""
    interrupted = result.method.stopped_by == "interrupt"
    base, twin = result.arms
    failed = next((arm for arm in result.arms if arm.outcome is not Outcome.OK), None)
    if failed is not None and not interrupted:
        return Seen(_broken(failed))
    estimate = _estimate(base, twin)
    if estimate is None:
        said = "interrupted" if interrupted else "too few processes gave samples"
        return Seen(_unknown(said), interrupted=interrupted)
    differ = bench.differ(base, twin, result.method.margin)
    shown = result.comparisons[0].smallest_detectable if result.comparisons else None
    if differ or (shown is not None and shown <= bench.USELESS):
        bench.remember(recorder, base, estimate)
    floor = bench.aa_floor(recorder, base)
    smallest = None if shown is None or not math.isfinite(shown) else max(shown, floor)
    finding = _judge(estimate, differ, smallest, result.method.budget_s, _steps(base))
    return Seen(finding, estimate, smallest, interrupted)


def _steps(base: Measurement) -> str:
    """What the A/A stands for: it says nothing of longer steps, or of several threads."""
    return f"steps of {bench.conditions(base).step_class} on one thread"


def _estimate(base: Measurement, twin: Measurement) -> Estimate | None:
    if not (base.turns and twin.turns):
        return None
    found = stats.ratio(base, twin, stats.estimator_of(base))
    usable = found.replicates > 1 and math.isfinite(found.time_ratio)
    return found if usable else None


def _judge(
    estimate: Estimate, differ: bool, smallest: float | None, budget_s: float, steps: str
) -> Finding:
    apart = abs(estimate.time_ratio - 1)
    figures = {"difference": apart, "processes": float(estimate.replicates)}
    if smallest is not None:
        figures["smallest_detectable"] = smallest
    if differ:
        return _identical(
            Level.FAIL,
            f"two identical programs differ by {percent(apart)} here",
            figures,
            "Do not believe differences of that size today; make the machine quieter and look "
            "again.",
        )
    if smallest is None:
        return _unknown("the spread of the samples has no bound")
    said = (
        f"two identical programs ({steps}) differ by {percent(apart)} in {budget_s:g} s: "
        f"differences under {percent(smallest)} cannot be seen in such steps here today"
    )
    if smallest <= GOOD:
        return _identical(Level.OK, said, figures)
    if smallest <= bench.USELESS:
        remedy = "A longer --budget shows smaller ones; a quieter machine helps more."
        return _identical(Level.WARN, said, figures, remedy)
    remedy = "Make the machine quieter, or measure on another."
    return _identical(Level.FAIL, said, figures, remedy)


# What identical arms have differed by here, by length of step and threads.


_history = partial(Finding, "history")
MOST_KINDS = 6
"""Named in a sentence; the figures have all."""


def history(machine: str, recorder: Recorder) -> Finding:
    """From the identical arms that `bench`, `run` and the doctor have measured on this machine.
    Nothing is said of kinds of steps that were never measured."""
    found: list[FloorSummary] = []
    with recorder.collect_errors("What identical arms differ by could not be looked up"):
        found = recorder.read(lambda store: store.aa_floors(machine)) or []
    worst: dict[tuple[int, str], tuple[float, int]] = {}
    for one in found:
        key = (one.conditions.threads, one.conditions.step_class)
        value, seen = worst.get(key, (0.0, 0))
        worst[key] = (max(value, one.value), seen + one.observations)
    if not worst:
        return _history(
            Level.NOTE,
            "no identical arms have been stored yet, so of longer or threaded steps nothing is "
            "known: they need more than the figure above",
            remedy="`torchstone bench` learns it as it goes: one comparison in twenty carries a "
            "second baseline.",
        )
    figures = {_kind(*key): value for key, (value, _) in worst.items()}
    said = [
        f"{_kind(*key)} {percent(value)} ({count(seen, 'pair')})"
        for key, (value, seen) in sorted(worst.items())
    ]
    more = f" and {len(said) - MOST_KINDS} more" if len(said) > MOST_KINDS else ""
    level = Level.WARN if max(figures.values()) > bench.USELESS else Level.OK
    remedy = "Identical arms differed by more than a fifth: make the machine quieter."
    return _history(
        level,
        f"identical arms seldom differed by more than this here: {', '.join(said[:MOST_KINDS])}"
        f"{more}",
        figures,
        remedy if level is Level.WARN else "",
    )


def _kind(threads: int, step_class: str) -> str:
    return f"{count(threads, 'thread')}, {step_class}"


def _unknown(why: str) -> Finding:
    said = f"what can be told apart here is not known: {why}"
    return _identical(Level.NOTE, said, remedy="Run `torchstone doctor` again.")


def _broken(arm: Measurement) -> Finding:
    said = arm.detail.message or "no message"
    return _identical(
        Level.FAIL,
        f"a plain function could not be measured: it ended as {arm.outcome.value} ({said})",
        remedy="Nothing can be measured here before that is mended.",
    )


TORCH_TIMEOUT_S = 120.0
"""Importing torch takes seconds, on a loaded machine ten times that."""
_DEVICE = re.compile(r"[a-z]+(:\d+)?")
_ASK_TORCH = "import torch; print(torch.__version__, torch.get_num_threads())"


@dataclass(frozen=True)
class DoctorRequest:
    """`torchstone doctor`, as asked."""

    device: str = "cpu"
    identical: bool = True
    calibrate: bool = False
    root: Path = Path("/")


@dataclass(frozen=True)
class Visit:
    """What the doctor found, and whether it was cut short by Ctrl-C."""

    report: DoctorReport
    interrupted: bool = False


def doctor(
    request: DoctorRequest,
    recorder: Recorder,
    events: Events | None = None,
    run_calibration: Callable[..., Calibration] = run_calibration,
    torch: Mapping[str, str] | None = None,
) -> Visit:
    """Look at the machine, measure two identical arms, see to the calibration, keep the report.

    `torch` is its version and threads, where they are known already.
    """
    if not _DEVICE.fullmatch(request.device):
        raise UsageError(f"There is no device {request.device!r}.", "Write cpu, cuda or cuda:1.")
    recorder.check()
    events = events or Silent()
    seen: Seen | None = None
    calibration: Calibration | None = None
    cpu, memory = hardware.describe_cpu(), hardware.memory_bytes()
    machine = machine_id(cpu, hardware.cache_sizes(), memory)
    torch = _ask_torch(events) if torch is None else torch
    events.phase("watching the machine for a second")
    findings = [*examine(_view(request, torch))]
    interrupted = False
    try:
        if request.identical:
            seen = measure_identical(recorder, events)
            findings.append(seen.finding)
            if seen.interrupted:
                raise KeyboardInterrupt
            findings.append(history(machine, recorder))
        calibration, found = (
            calibrate(request.device, recorder, events, run_calibration)
            if request.calibrate
            else in_force(machine, request.device, recorder)
        )
        findings.append(found)
    except KeyboardInterrupt:  # what was found until then is kept
        interrupted = True
    report = DoctorReport(
        id=new_id(),
        machine_id=machine,
        created=now(),
        findings=tuple(findings),
        identical=seen.estimate if seen else None,
        smallest_detectable=seen.smallest if seen else None,
        calibration=calibration.id if calibration else "",
        machine=_describe(cpu, memory, torch),
    )
    with recorder.collect_errors("The report was not kept"):
        recorder.write(lambda store: store.save_doctor(report))
    return Visit(report, interrupted)


def _ask_torch(events: Events) -> dict[str, str]:
    """Version and threads of the torch that a worker would meet, asked in another process."""
    if util.find_spec("torch") is None:
        return {}
    events.phase("asking torch for its threads")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            check=False,
        )
        words = done.stdout.split()
    except (OSError, subprocess.SubprocessError):
        words = []
    return dict(zip(("version", "threads"), words or [_torch_version()], strict=False))


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "unknown"


def _view(request: DoctorRequest, torch: Mapping[str, str]) -> View:
    return View(
        root=request.root,
        env=dict(os.environ),
        cores=allowed_cores(),
        device=request.device,
        window=watch(),
        torch=torch,
        malloc=loaded_allocator(),
        administrator=hasattr(os, "geteuid") and os.geteuid() == 0,
    )


def _describe(cpu: Mapping[str, str], memory: int, torch: Mapping[str, str]) -> dict[str, str]:
    described = {
        "cpu": cpu.get("model", ""),
        "cores": cpu.get("logical_cores", ""),
        "allowed_cores": cpu.get("affinity", ""),
        "memory_bytes": str(memory),
        "system": f"{platform.system()} {platform.release()}".strip(),
        "python": platform.python_version(),
        "torch": torch.get("version", ""),
    }
    return {key: value for key, value in described.items() if value}
