"""A script or a module, profiled as a whole: run as Python would run it, in the same terminal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from torchstone.conductor import Events, signal_name
from torchstone.conductor.case import Silent
from torchstone.conductor.launch import arm_environment
from torchstone.lab.profile import (
    ProfileRequest,
    ProfilingFailed,
    check_request,
    house_on_path,
    short_name,
    stamp,
)
from torchstone.profile import read_profile
from torchstone.profile.child_script import FAILED, INTERRUPTED, ScriptRequest
from torchstone.profile.cost import cost_of, take_turns
from torchstone.records import ArmSpec, Cost, Profile, UsageError, to_data

CHILD = "torchstone.profile.child_script"
SHORT_RUN_S = 5.0
"""Programs that take longer are not run again and again to see what profiling costs."""
PAIRS = 3
RUNS = 4 * PAIRS
"""A pair, and a pair of the control."""
GRACE_S = 10.0
"""After Ctrl-C, for the program to end and its profile to be written."""
_NOT_ASKED = (
    "What profiling costs was not measured: the program would have to run again and again, and it "
    "may do things. --cost allows it."
)
_ENDED_BADLY = "What profiling costs was not measured: the program did not end well."
_NOT_WANTED = "What profiling costs was not measured: --no-cost."
_STOPPED = "What profiling costs was not measured: it was interrupted."
_TOO_LONG = f"What profiling costs was not measured: a run takes longer than {SHORT_RUN_S:g} s."


class NotTheSameAgain(Exception):
    """The program ended otherwise when it was run again: its time is that of something else."""

    def __init__(self, code: int) -> None:
        super().__init__(
            f"What profiling costs was not measured: run again, the program ended {_end(code)}. "
            "It does not do the same again."
        )


_OF_TARGETS = ("steps", "variant", "vs", "mode", "precision", "device", "allocator", "timeout_s")
"""What only a target can be asked for: a program is run as it is."""


@dataclass(frozen=True)
class ScriptRun:
    """Profiles, one a way, and the code that the program ended with."""

    profiles: tuple[Profile, ...]
    code: int


def _no_progress() -> AbstractContextManager[Events]:
    return nullcontext(Silent())


def profile_script(
    request: ProfileRequest,
    progress: Callable[[], AbstractContextManager[Events]] = _no_progress,
    keep: Callable[[Profile], object] | None = None,
) -> ScriptRun:
    """Run the program once for each way, under a probe; a profile is kept whatever its end.

    `keep` is given every profile as soon as it is there: a later way may fail. `progress` is there
    while the program runs silently; at other times the terminal is the program's own.
    """
    check_request(request)
    _check_program(request)
    found, code = [], 0
    for way in request.ways:
        profile, code, took = _run_once(request, way)
        profile = replace(profile, label=f"{short_name(request.what)} ({way})")
        cost, note = None, _ENDED_BADLY
        if not code:
            try:
                cost, note = _cost(request, way, took, progress)
            except KeyboardInterrupt:  # the profile is there: only its cost is given up
                cost, note, code = None, _STOPPED, INTERRUPTED
        notes = (*profile.notes, *((note,) if note else ()))
        found.append(stamp(replace(profile, cost=cost, notes=notes), request))
        if keep is not None:
            keep(found[-1])
        if code:
            break
    return ScriptRun(tuple(found), code)


def _check_program(request: ProfileRequest) -> None:
    if not request.module and not os.path.exists(request.what):
        raise UsageError(
            f"There is no file {request.what}.",
            "Give a script, `-m MODULE`, or a target such as model.py:make.",
        )
    plain = ProfileRequest(request.what)
    given = [one for one in _OF_TARGETS if getattr(request, one) != getattr(plain, one)]
    if given:
        words = " and ".join(f"--{one.removesuffix('_s')}" for one in given)
        raise UsageError(
            f"{words} {'is' if len(given) == 1 else 'are'} for a target.",
            "Leave it away for a program, which decides that itself.",
        )
    if request.threads is not None and request.threads < 1:
        raise UsageError(f"{request.threads} threads cannot do anything.", "Give 1 or more.")


def _run_once(request: ProfileRequest, way: str) -> tuple[Profile, int, float]:
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        path = Path(folder) / "program.profile.json"
        started = time.perf_counter()
        with _started(request, way, folder, path) as process:
            code = _wait(process)
        took = time.perf_counter() - started
        failed = Path(f"{path}{FAILED}")
        if failed.exists():
            raise ProfilingFailed(*json.loads(failed.read_text(encoding="utf-8")))
        if not path.exists():
            raise ProfilingFailed(
                f"{request.what} ended {_end(code)} before its profile could be written.",
                "A program that ends by os._exit, exec or a signal leaves none.",
            )
        return read_profile(path, "torchstone"), code if code >= 0 else 128 - code, took


def _end(code: int) -> str:
    return f"by {signal_name(-code)}" if code < 0 else f"with code {code}"


@contextmanager
def _started(
    request: ProfileRequest, way: str, folder: str, path: Path, silent: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    asked = ScriptRequest(
        name=request.what,
        path=str(path),
        parent=os.getpid(),
        arguments=request.arguments,
        module=request.module,
        how=way,
        options=replace(
            request.options, files=() if request.module else (os.path.abspath(request.what),)
        ),
    )
    note = Path(folder) / "request.json"
    note.write_text(json.dumps(to_data(asked)), encoding="utf-8")
    nowhere = subprocess.DEVNULL if silent else None
    threads = arm_environment(ArmSpec(name="", target=request.what, threads=request.threads))
    env = {**os.environ, **threads, "PYTHONPATH": house_on_path()}
    env.setdefault("KINETO_LOG_LEVEL", "99")
    with subprocess.Popen(
        [sys.executable, "-m", CHILD, str(note)],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        env=env,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Its exit code. Ctrl-C is the program's to answer; its profile is waited for."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        if not _terminal_told():
            with contextlib.suppress(OSError):
                process.send_signal(signal.SIGINT)
        try:
            return process.wait(GRACE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            raise KeyboardInterrupt from None


def _terminal_told() -> bool:
    """Whether the terminal has sent the signal to the program as well: we share its group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _cost(
    request: ProfileRequest,
    way: str,
    took: float,
    progress: Callable[[], AbstractContextManager[Events]],
) -> tuple[Cost | None, str]:
    """Whole processes in turns, silent ones; only where it was asked for and a run is short."""
    if not request.cost:
        return None, _NOT_ASKED if request.cost is None else _NOT_WANTED
    if took > SHORT_RUN_S:
        return None, _TOO_LONG
    with progress() as events:
        try:
            return _timed_again(request, way, events), ""
        except NotTheSameAgain as reason:
            return None, str(reason)


def _timed_again(request: ProfileRequest, way: str, events: Events) -> Cost:
    size, runs = 0, 0
    name = short_name(request.what)
    events.phase(f"{name} ({way}): {RUNS} silent runs show what profiling costs")

    def run(of_way: str) -> float:
        nonlocal size, runs
        events.update(runs / RUNS, f"{name}: run {runs + 1} of {RUNS}", None)
        runs += 1
        with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
            path = Path(folder) / "again.profile.json"
            started = time.perf_counter()
            with _started(request, of_way, folder, path, silent=True) as process:
                code = process.wait()
            took = time.perf_counter() - started
            if code:  # the profiled run ended with 0, or there would be no cost to measure
                raise NotTheSameAgain(code)
            size = path.stat().st_size if path.exists() else size
            return took

    turns = take_turns(lambda: run(""), lambda: run(way), least=PAIRS, most=PAIRS)
    return cost_of(turns, footprint_bytes=size)


__all__ = ["INTERRUPTED", "ScriptRun", "profile_script"]
