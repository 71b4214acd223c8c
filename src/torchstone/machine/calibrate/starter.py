"""Has a calibration made in a process of its own, so that this one never imports torch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from torchstone.machine.calibrate.request import CPU, Request, Say, make_request, unsound
from torchstone.machine.hardware import ILLEGAL, ILLEGAL_REMEDY
from torchstone.machine.redact import redact_text, tail
from torchstone.records import Calibration, RecordError, UsageError, from_data

MODULE = "torchstone.machine.calibrate"
PATIENCE_S = 120.0
"""Beyond the time for samples: torch's import on a busy machine, first calls, touching pages."""
PATIENCE_TIMES = 3.0
MOST_OUTPUT = 16 << 20
_CHUNK = 65536
_STDERR_LINES = 3
ALWAYS_LEGAL = ("fp32", "fp64")
"""Their products need no instruction of a kind of their own."""
_AGAIN = "Try again; if it stays so, run `python -m torchstone.machine.calibrate` to see more."


def run_calibration(
    device: str = CPU,
    threads: Sequence[int] | None = None,
    dtypes: Sequence[str] | None = None,
    seconds: float | None = None,
    say: Say | None = None,
    only: Sequence[tuple[str, int]] | None = None,
    timeout_s: float | None = None,
) -> Calibration:
    """What `calibrate` returns, measured in another process of this interpreter.

    It is killed when `timeout_s` is over, at Ctrl-C and at any other error. Everything that can go
    wrong is a `UsageError`. Where an illegal instruction ends it, the types of numbers that need
    one are left out, and the notes say so.
    """
    request = make_request(device, threads, dtypes, seconds, only)
    try:
        return _measured(request, say, timeout_s)
    except Illegal as error:
        left = tuple(name for name in request.dtypes if name in ALWAYS_LEGAL)
        if only is not None or not left or left == request.dtypes:
            raise
        gone = ", ".join(name for name in request.dtypes if name not in left)
        found = _measured(replace(request, dtypes=left), say, timeout_s)
        note = f"{gone}: not measured; {error.message} {error.remedy}"
        return replace(found, notes=(*found.notes, note))


class Illegal(UsageError):
    """The calibration ended by an instruction that this machine does not know."""


def _measured(request: Request, say: Say | None, timeout_s: float | None) -> Calibration:
    device = request.device
    words = ["--json", "--device", device, "--seconds", repr(request.seconds)]
    if request.only:
        words += ["--only", *(f"{name}:{count}" for name, count in request.only)]
    else:
        words += ["--dtypes", *request.dtypes]
        words += ["--threads", *map(str, request.threads)] if device == CPU else []
    limit = PATIENCE_S + PATIENCE_TIMES * request.seconds if timeout_s is None else timeout_s
    return read_calibration([sys.executable, "-m", MODULE, *words], limit, say)


def read_calibration(command: Sequence[str], timeout_s: float, say: Say | None) -> Calibration:
    """Run a command that speaks as `python -m torchstone.machine.calibrate` does."""
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryFile() as stderr, _started(command, stderr) as process:
        found: Calibration | None = None
        for line in _lines(process, deadline, timeout_s):
            message = _parse(line)
            if "say" in message and say is not None:
                say(str(message["say"]))
            elif "error" in message:
                raise _their_error(message["error"])
            elif "calibration" in message:
                found = _decode(message["calibration"])
        if found is None:
            said = f"The calibration ended without a result{_why(process, stderr)}"
            if process.poll() == -ILLEGAL:
                raise Illegal(said, ILLEGAL_REMEDY)
            raise UsageError(said, _AGAIN)
        return found


@contextlib.contextmanager
def _started(command: Sequence[str], stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, gone with all its children at the end."""
    home = str(Path(__file__).resolve().parents[3])
    present = os.environ.get("PYTHONPATH", "")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (home, present)))}
    try:
        process = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(
            f"The calibration cannot be started: {error.strerror}.", "Check the interpreter."
        ) from None
    with process:
        try:
            yield process
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _lines(process: subprocess.Popen[bytes], deadline: float, timeout_s: float) -> Iterator[bytes]:
    """Whole lines of the output until it is closed."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    waiting = b""
    seen = 0
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([descriptor], [], [], max(0.0, left)) if left > 0 else ([],) * 3
        if not ready:
            raise UsageError(
                f"The calibration did not end within {timeout_s:g} s and was stopped.",
                "Ask for fewer dtypes or fewer seconds, or wait until the machine is less busy.",
            )
        chunk = os.read(descriptor, _CHUNK)
        seen += len(chunk)
        if not chunk or seen > MOST_OUTPUT:
            break
        *whole, waiting = (waiting + chunk).split(b"\n")
        yield from whole
    if waiting.strip():
        yield waiting
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))


def _parse(line: bytes) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        said = line[:80].decode(errors="replace")
        raise UsageError(f"The calibration said what cannot be read: {said!r}.", _AGAIN)
    return message


def _their_error(error: Any) -> UsageError:
    words = [str(word) for word in error] if isinstance(error, list) else [str(error)]
    message, remedy = (*words, "", "")[:2]
    return UsageError(redact_text(message, os.environ), remedy or _AGAIN)


def _decode(data: Any) -> Calibration:
    try:
        found = from_data(Calibration, data)
    except RecordError as error:
        raise UsageError(f"The calibration's result cannot be read: {error}.", _AGAIN) from None
    wrong = unsound(found)
    if wrong:
        raise UsageError(f"The calibration gave a figure that cannot be: {wrong}.", _AGAIN)
    return found


def _why(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> str:
    code = process.poll()
    ended = f" (exit code {code})" if code is not None and code >= 0 else ""
    if code is not None and code < 0:
        ended = f" (killed by signal {-code})"
    stderr.seek(0)
    said = tail(redact_text(stderr.read().decode(errors="replace"), os.environ), _STDERR_LINES)
    return f"{ended}: {' / '.join(said)}" if said else f"{ended}."
