"""`torchstone monitor` and `torchstone top`: running a script under a monitor, and reading what
monitors write. Nothing here is in the training's process."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchstone.lab.peaks import known_peaks
from torchstone.lab.recording import Recorder, this_machine
from torchstone.monitor.journal import (
    PROFILE_REQUEST,
    MonitorRecord,
    find_record,
    monitors_folder,
    running_records,
)
from torchstone.monitor.script import MonitoredScript
from torchstone.monitor.session import new_id
from torchstone.monitor.views import MonitorView
from torchstone.profile import read_profile
from torchstone.profile.child_script import ScriptRequest
from torchstone.records import Peak, TorchstoneError, UsageError, to_data

CHILD = "torchstone.monitor.script"


@dataclass(frozen=True)
class MonitorRequest:
    """What was asked for."""

    what: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    name: str = ""
    sinks: tuple[str, ...] = ()


# Running.


def run_script(request: MonitorRequest, started: Callable[[str], None]) -> tuple[int, Path]:
    """Run the program under a monitor; its exit code, and the folder of the record."""
    if not request.module and not os.path.exists(request.what):
        raise UsageError(
            f"There is no file {request.what}.",
            "Give a script, `-m MODULE`, or one of the commands list, show, compare.",
        )
    name = request.name or Path(request.what).stem
    ident = new_id(name)
    folder = monitors_folder() / ident
    script = ScriptRequest(
        name=request.what,
        path="",
        parent=os.getpid(),
        arguments=request.arguments,
        module=request.module,
    )
    asked = MonitoredScript(script, ident, name, str(folder), request.sinks)
    with tempfile.TemporaryDirectory(prefix="torchstone-") as place:
        note = Path(place) / "request.json"
        note.write_text(json.dumps(to_data(asked)), encoding="utf-8")
        with subprocess.Popen([sys.executable, "-m", CHILD, str(note)]) as process:
            started(ident)
            code = _wait(process)
    return (code if code >= 0 else 128 - code), folder


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C is the program's to answer; it is passed on where the terminal did not do that."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                with contextlib.suppress(OSError):
                    process.send_signal(signal.SIGINT)


def compute_peak(view: MonitorView) -> Peak | None:
    """What this machine can do in the model's dtype and threads; None where it is not known."""
    if not view.flops_per_step:
        return None
    recorder, peak = Recorder(saves=False), None
    with recorder.collect_errors(""):
        found, stale = known_peaks(recorder, this_machine(), view.device)
        if found is not None and not stale:
            peak = found.peak(view.dtype, view.threads)
    return peak


# A profile on demand.


def ask_for_profile(
    name: str | None, steps: int, how: str, timeout_s: float, db: str | None
) -> tuple[str, Recorder]:
    """Ask a running monitor for a profile of its next steps, wait for it, and keep it; its id."""
    record = _running(name)
    path = record.folder / PROFILE_REQUEST
    request = {"id": secrets.token_hex(8), "steps": steps, "how": how}
    before = set(record.folder.glob("profile-*.profile.json"))
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(request), encoding="utf-8")
    os.replace(temporary, path)
    end = time.monotonic() + timeout_s
    known = {id(event) for rank in record.ranks for event in rank.events}
    while time.monotonic() < end:
        time.sleep(0.2)
        record.read()
        said = [
            event
            for rank in record.ranks
            for event in rank.events
            if event.what == "profile" and id(event) not in known
        ]
        found = sorted(set(record.folder.glob("profile-*.profile.json")) - before)
        if said and found:
            recorder = Recorder(db)
            profile = read_profile(found[0], "torchstone")
            with recorder.collect_errors(f"The profile is not stored, but in {found[0]}"):
                recorder.save_profile(profile)
            return profile.id, recorder
        if said:
            raise TorchstoneError(said[0].text, "Try --how sample.")
        if not record.running:
            raise TorchstoneError(f"{record.id} ended before its steps were profiled.")
    raise TorchstoneError(
        f"{record.id} has not finished {steps} steps within {timeout_s:g} s.",
        "The profile is written when it has: see `torchstone monitor show`.",
    )


def _running(name: str | None) -> MonitorRecord:
    if name is not None:
        record = find_record(name)
        if not record.running:
            raise UsageError(f"{record.id} does not run.", "`torchstone top` lists what runs.")
        return record
    found = running_records()
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            "No monitor runs on this machine.", "Start one: torchstone monitor SCRIPT."
        )
    ids = ", ".join(one.id for one in found[:5])
    raise UsageError(f"Several monitors run: {ids}.", "Name one: torchstone top ID --profile 20.")
