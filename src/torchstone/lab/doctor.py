"""`torchstone doctor`: is this machine fit to measure on, today?"""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata, util
from pathlib import Path

from torchstone import stats
from torchstone.conductor import Events, Settings
from torchstone.conductor.case import Silent
from torchstone.lab import aa_test
from torchstone.lab.bench import measure_unsaved, new_id
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
from torchstone.records.format import percent

# The doctor and the calibration: make one, or say which is in force and whether it still holds.


DOCTOR_CALIBRATION_NAME = "calibration"
COMMAND = "torchstone doctor --calibrate"
_HOUR, _DAY = 3600.0, 86400.0


def calibrate(
    device: str,
    recorder: Recorder,
    events: Events,
    run_calibration: Callable[..., Calibration] | None = None,
) -> tuple[Calibration | None, Finding]:
    """Measure the peaks again and keep them."""
    events.phase("calibrating")
    try:
        made = (run_calibration or _runner())(device=device, say=events.phase)
    except (TorchstoneError, ImportError) as error:
        return None, Finding(
            DOCTOR_CALIBRATION_NAME,
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
            return Finding(
                DOCTOR_CALIBRATION_NAME, Level.WARN, said, _figures(known), ILLEGAL_REMEDY
            )
    return Finding(DOCTOR_CALIBRATION_NAME, Level.OK, said, _figures(known))


def _runner() -> Callable[..., Calibration]:
    from torchstone.conductor.calibration import run_calibration

    return run_calibration


def in_force(
    machine_id: str, device: str, recorder: Recorder
) -> tuple[Calibration | None, Finding]:
    """The newest of this machine and device."""
    known = recorder.calibration(machine_id, device.split(":")[0])
    if known is None:
        return None, Finding(
            DOCTOR_CALIBRATION_NAME,
            Level.NOTE,
            "none yet, so no figure can be held against what this machine can do",
            remedy=f"Run `{_command(device)}`; it takes about half a minute.",
        )
    said = f"made {_age(known.created)}: {_ceilings(known)}"
    if _is_stale(known, device):
        return known, Finding(
            DOCTOR_CALIBRATION_NAME,
            Level.NOTE,
            f"stale, {said}",
            _figures(known),
            f"Run `{_command(device)}`: it is too old, or the machine or torch has changed.",
        )
    return known, _said(known, said)


def _command(device: str) -> str:
    return COMMAND if device == "cpu" else f"{COMMAND} --device {device}"


def _is_stale(known: Calibration, device: str) -> bool:
    try:
        from torchstone.machine.calibrate import fingerprint, is_stale
    except ImportError:  # a part of it is missing: then nothing can be said against it
        return False
    return is_stale(known, datetime.now(timezone.utc), fingerprint(device, known.device_name))


def _age(created: str) -> str:
    """`12 minutes ago`, `3 hours ago`, `2 days ago`; the date as it is where it cannot be read."""
    try:
        then = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return created
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    seconds = max(0.0, (datetime.now(timezone.utc) - then).total_seconds())
    for length, word in ((_DAY, "day"), (_HOUR, "hour"), (60.0, "minute")):
        if seconds >= length:
            amount = int(seconds // length)
            return f"{amount} {word}{'' if amount == 1 else 's'} ago"
    return "just now"


def _ceilings(calibration: Calibration) -> str:
    """The best of each kind, in a few words."""
    parts = []
    compute = _best(calibration.compute)
    if compute is not None:
        parts.append(f"{compute.dtype} {compute.value / 1e9:.3g} GFLOP/s{_threads(compute)}")
    memory = _best(tuple(peak for peak in calibration.bandwidth if peak.level == DRAM))
    if memory is not None:
        parts.append(f"memory {memory.value / 1e9:.3g} GB/s{_threads(memory)}")
    if calibration.clock is not None:
        parts.append(f"clock {calibration.clock.value / 1e9:.3g} GHz")
    return ", ".join(parts) or "its peaks are unknown"


def _threads(peak: Peak) -> str:
    return f" on {peak.threads} thread{'' if peak.threads == 1 else 's'}" if peak.threads else ""


def _best(peaks: tuple[Peak, ...]) -> Peak | None:
    dense = [peak for peak in peaks if not peak.sparse]
    return max(dense, key=lambda peak: peak.value, default=None)


def _figures(calibration: Calibration) -> dict[str, float]:
    known = {
        "compute": _best(calibration.compute),
        "memory": _best(tuple(peak for peak in calibration.bandwidth if peak.level == DRAM)),
        "clock": calibration.clock,
    }
    return {name: peak.value for name, peak in known.items() if peak is not None}


# The A/A of the doctor: two identical arms for a few seconds, and what that says of today.


DOCTOR_IDENTICAL_NAME = "identical"
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
    differ = aa_test.differ(base, twin, result.method.margin)
    shown = result.comparisons[0].smallest_detectable if result.comparisons else None
    if differ or (shown is not None and shown <= aa_test.USELESS):
        aa_test.remember(recorder, base, estimate)
    floor = aa_test.aa_floor(recorder, base)
    smallest = None if shown is None or not math.isfinite(shown) else max(shown, floor)
    finding = _judge(estimate, differ, smallest, result.method.budget_s)
    return Seen(finding, estimate, smallest, interrupted)


def _estimate(base: Measurement, twin: Measurement) -> Estimate | None:
    if not (base.turns and twin.turns):
        return None
    found = stats.ratio(base, twin, stats.estimator_of(base))
    usable = found.replicates > 1 and math.isfinite(found.time_ratio)
    return found if usable else None


def _judge(estimate: Estimate, differ: bool, smallest: float | None, budget_s: float) -> Finding:
    apart = abs(estimate.time_ratio - 1)
    figures = {"difference": apart, "processes": float(estimate.replicates)}
    if smallest is not None:
        figures["smallest_detectable"] = smallest
    if differ:
        return Finding(
            DOCTOR_IDENTICAL_NAME,
            Level.FAIL,
            f"two identical programs differ by {percent(apart)} here",
            figures,
            "Do not believe differences of that size today; make the machine quieter and look "
            "again.",
        )
    if smallest is None:
        return _unknown("the spread of the samples has no bound")
    said = (
        f"two identical programs differ by {percent(apart)} in {budget_s:g} s: "
        f"differences under {percent(smallest)} cannot be seen here today"
    )
    if smallest <= GOOD:
        return Finding(DOCTOR_IDENTICAL_NAME, Level.OK, said, figures)
    if smallest <= aa_test.USELESS:
        return Finding(
            DOCTOR_IDENTICAL_NAME,
            Level.WARN,
            said,
            figures,
            "A longer --budget shows smaller ones; a quieter machine helps more.",
        )
    return Finding(
        DOCTOR_IDENTICAL_NAME,
        Level.FAIL,
        said,
        figures,
        "Make the machine quieter, or measure on another.",
    )


def _unknown(why: str) -> Finding:
    return Finding(
        DOCTOR_IDENTICAL_NAME,
        Level.NOTE,
        f"what can be told apart here is not known: {why}",
        remedy="Run `torchstone doctor` again.",
    )


def _broken(arm: Measurement) -> Finding:
    said = arm.detail.message or "no message"
    return Finding(
        DOCTOR_IDENTICAL_NAME,
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


class _Chart:
    """The findings as they come in: Ctrl-C keeps those that there are."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.identical: Estimate | None = None
        self.smallest: float | None = None
        self.calibration: Calibration | None = None


def doctor(
    request: DoctorRequest,
    recorder: Recorder,
    events: Events | None = None,
    run_calibration: Callable[..., Calibration] | None = None,
    torch: Mapping[str, str] | None = None,
) -> Visit:
    """Look at the machine, measure two identical arms, see to the calibration, keep the report.

    `torch` is its version and threads, where they are known already.
    """
    if not _DEVICE.fullmatch(request.device):
        raise UsageError(f"There is no device {request.device!r}.", "Write cpu, cuda or cuda:1.")
    recorder.check()
    events = events or Silent()
    chart = _Chart()
    cpu, memory = hardware.describe_cpu(), hardware.memory_bytes()
    machine = machine_id(cpu, hardware.cache_sizes(), memory)
    torch = _ask_torch(events) if torch is None else torch
    events.phase("watching the machine for a second")
    chart.findings += examine(_view(request, torch))
    interrupted = False
    try:
        if request.identical:
            _identical(chart, recorder, events)
        chart.calibration, found = (
            calibrate(request.device, recorder, events, run_calibration)
            if request.calibrate
            else in_force(machine, request.device, recorder)
        )
        chart.findings.append(found)
    except KeyboardInterrupt:
        interrupted = True
    report = DoctorReport(
        id=new_id(),
        machine_id=machine,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        findings=tuple(chart.findings),
        identical=chart.identical,
        smallest_detectable=chart.smallest,
        calibration=chart.calibration.id if chart.calibration else "",
        machine=_describe(cpu, memory, torch),
    )
    with recorder.collect_errors("The report was not kept"):
        recorder.save_doctor(report)
    return Visit(report, interrupted)


def _identical(chart: _Chart, recorder: Recorder, events: Events) -> None:
    seen = measure_identical(recorder, events)
    chart.findings.append(seen.finding)
    chart.identical, chart.smallest = seen.estimate, seen.smallest
    if seen.interrupted:
        raise KeyboardInterrupt


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
    except (OSError, subprocess.SubprocessError):
        return _torch_version()
    words = done.stdout.split()
    return dict(zip(("version", "threads"), words, strict=False)) or _torch_version()


def _torch_version() -> dict[str, str]:
    try:
        return {"version": metadata.version("torch")}
    except metadata.PackageNotFoundError:
        return {"version": "unknown"}


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
