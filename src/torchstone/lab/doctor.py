"""`torchstone doctor`: is this machine fit to measure on, today?"""

from __future__ import annotations

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

from torchstone.conductor import Events
from torchstone.conductor.case import Silent
from torchstone.lab.bench import new_id
from torchstone.lab.doctor_calibration import calibrate, in_force
from torchstone.lab.doctor_identical import measure_identical
from torchstone.lab.keeping import Keeper
from torchstone.machine import hardware, loaded_allocator, machine_id
from torchstone.machine.doctor import View, allowed_cores, examine, watch
from torchstone.records import Calibration, DoctorReport, Estimate, Finding, UsageError

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
    keeper: Keeper,
    events: Events | None = None,
    run_calibration: Callable[..., Calibration] | None = None,
    torch: Mapping[str, str] | None = None,
) -> Visit:
    """Look at the machine, measure two identical arms, see to the calibration, keep the report.

    `torch` is its version and threads, where they are known already.
    """
    if not _DEVICE.fullmatch(request.device):
        raise UsageError(f"There is no device {request.device!r}.", "Write cpu, cuda or cuda:1.")
    keeper.check()
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
            _identical(chart, keeper, events)
        chart.calibration, found = (
            calibrate(request.device, keeper, events, run_calibration)
            if request.calibrate
            else in_force(machine, request.device, keeper)
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
    with keeper.forgiving("The report was not kept"):
        keeper.save_doctor(report)
    return Visit(report, interrupted)


def _identical(chart: _Chart, keeper: Keeper, events: Events) -> None:
    seen = measure_identical(keeper, events)
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
