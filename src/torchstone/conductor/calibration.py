"""A calibration in a process of its own, so that this one never imports torch."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchstone.conductor.worker import ArmEnded, Spawn, WorkerProcess
from torchstone.machine.calibrate.request import CPU, Request, Say, make_request, unsound
from torchstone.machine.folders import own_folder
from torchstone.machine.hardware import ILLEGAL
from torchstone.records import ArmSpec, Calibration, Outcome, UsageError

TIMEOUT_S = 120.0
"""Beyond the time for samples: torch's import on a busy machine, first calls, touching pages."""
TIMES_SECONDS = 3.0
ALWAYS_LEGAL = ("fp32", "fp64")
"""Their products need no instruction of a kind of their own."""
PROGRAM = "from torchstone.measure.worker import main; main()"
_LAST_LINES = 3
_AGAIN = "Try again; if it stays so, see whether `python -c 'import torch'` works here."


class Illegal(UsageError):
    """The calibration ended by an instruction that this machine does not know."""


def run_calibration(
    device: str = CPU,
    threads: Sequence[int] | None = None,
    dtypes: Sequence[str] | None = None,
    seconds: float | None = None,
    say: Say | None = None,
    only: Sequence[tuple[str, int]] | None = None,
    timeout_s: float | None = None,
) -> Calibration:
    """What `calibrate` makes of such a request (`make_request`), measured in another process.

    That is killed when `timeout_s` is over, at Ctrl-C and at any other error. Everything that can
    go wrong is a `UsageError`. Where an illegal instruction ends it, the types of numbers that need
    one are left out, and the notes say so.
    """
    request = make_request(device, threads, dtypes, seconds, only)
    limit = TIMEOUT_S + TIMES_SECONDS * request.seconds if timeout_s is None else timeout_s
    try:
        return _measured(request, say, limit)
    except Illegal as error:
        left = tuple(name for name in request.dtypes if name in ALWAYS_LEGAL)
        if only is not None or not left or left == request.dtypes:
            raise
        gone = ", ".join(name for name in request.dtypes if name not in left)
        found = _measured(replace(request, dtypes=left), say, limit)
        note = f"{gone}: not measured; {error.message} {error.remedy}"
        return replace(found, notes=(*found.notes, note))


def _measured(request: Request, say: Say | None, limit_s: float) -> Calibration:
    deadline = time.monotonic() + limit_s

    def left(phase: str) -> float:
        if say is not None and phase != "start":
            say(phase)
        return max(0.0, deadline - time.monotonic())

    path = (str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", ""))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    with own_folder() as folder:
        arm = ArmSpec("calibration", "")
        worker = WorkerProcess(arm, Spawn([sys.executable, "-c", PROGRAM]), env, Path(folder))
        try:
            command = {"do": "calibrate", "request": request}
            found = worker.ask_for(Calibration, command, left)
        except ArmEnded as ended:
            raise _as_error(ended, limit_s) from None
        finally:
            worker.kill()
    wrong = unsound(found)
    if wrong:
        raise UsageError(f"The calibration gave a figure that cannot be: {wrong}.", _AGAIN)
    return found


def _as_error(ended: ArmEnded, limit_s: float) -> UsageError:
    detail = ended.detail
    if ended.outcome is Outcome.TIMEOUT:
        return UsageError(
            f"The calibration did not end within {limit_s:g} s and was stopped.",
            "Ask for fewer dtypes or fewer seconds, or wait until the machine is less busy.",
        )
    last = " / ".join(line.strip() for line in detail.stderr[-_LAST_LINES:])
    said = f"The calibration ended without a result: {detail.message}" + (last and f" ({last})")
    kind = Illegal if detail.signal == ILLEGAL.name else UsageError
    return kind(f"{said}.", detail.remedy or _AGAIN)
