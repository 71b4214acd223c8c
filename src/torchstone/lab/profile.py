"""`torchstone profile`: a target's steady step, looked at in one way or in several."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone.conductor import ArmEnded, Events, signal_name
from torchstone.conductor.case import BUILD_TIMEOUT_S, STEP_TIMEOUT_S, Silent
from torchstone.conductor.launch import arm_environment
from torchstone.conductor.worker import Spawn, WorkerProcess
from torchstone.lab.bench import new_id
from torchstone.lab.recording import this_machine
from torchstone.lab.request import check_arm, check_threads, distinct, option_words, repeated
from torchstone.lab.secrets import public_arm, public_words
from torchstone.machine.folders import own_folder
from torchstone.machine.memory import usual_allocator
from torchstone.profile import read_profile
from torchstone.profile.child_script import FAILED, INTERRUPTED, ScriptRequest
from torchstone.profile.context import check_sampling, cost_of, take_turns
from torchstone.profile.probes import ProbeOptions, choose_probe
from torchstone.profile.probes.pyspy import watch
from torchstone.records import (
    ArmSpec,
    Cost,
    Profile,
    TorchstoneError,
    UsageError,
    from_data,
    to_data,
)

PROFILE_CHILD = "torchstone.profile.child"
ALL = "all"
COMPARED = ("count", "sample", "trace")
"""What `all` puts side by side."""
_BUILDING = (
    *("start", "import", "build", "first call", "warm-up"),
    *("profiling", "counting", "writing"),
)
"""A pass takes seconds where a step takes milliseconds, so it gets the time of building."""
_MOST_LINES = 3


@dataclass(frozen=True)
class ProfileRequest:
    """What was asked for. A script or a module has arguments; a target has the rest."""

    what: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    how: str = "sample"
    steps: int | None = None
    variant: str = "eager"
    vs: tuple[str, ...] = ()
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None
    allocator: str = ""
    """Empty: see `allocator_of`."""
    seed: int = 0
    cost: bool | None = None
    """None: of a target yes; of a script no, because it would be run again and again."""
    timeout_s: float = STEP_TIMEOUT_S
    build_timeout_s: float = BUILD_TIMEOUT_S
    options: ProbeOptions = field(default_factory=ProbeOptions)

    @property
    def is_target(self) -> bool:
        """Whether it names a target (`model.py:make`, `timm:resnet18`) and not a program."""
        return not self.module and is_target(self.what)

    @property
    def ways(self) -> tuple[str, ...]:
        """One, or those that are compared."""
        return COMPARED if self.how == ALL else (self.how,)


class ProfilingFailed(TorchstoneError):
    """The target did not survive, or did not work, under the profiler."""


def is_target(text: str) -> bool:
    """`model.py:make`, `pkg.module:make` or `timm:resnet18`; a path of a file is a script."""
    return ":" in text and not os.path.isfile(text)


def short_name(what: str) -> str:
    """A target or a program to be known by: of a path that leads elsewhere, the file's name."""
    if not os.path.isabs(what) and not what.startswith(os.pardir):
        return what
    near = os.path.relpath(what)
    return os.path.basename(what) if near.startswith(os.pardir) else near


def check_request(request: ProfileRequest) -> None:
    """Refuse what cannot work, before anything is started."""
    check_sampling(request.options.rate_hz, request.options.clock)
    if request.steps is not None and request.steps < 1:
        raise UsageError(f"{request.steps} steps cannot be profiled.", "Give 1 or more.")
    for way in request.ways:
        choose_probe(way, request.options)
    if request.is_target and request.arguments:
        raise UsageError(f"{request.what} is a target and takes no arguments.", "Leave them away.")


def profile_target(
    request: ProfileRequest,
    events: Events | None = None,
    keep: Callable[[Profile], object] | None = None,
) -> tuple[Profile, ...]:
    """Each variant in a process of its own: built, warmed up, then profiled in each way.

    `keep` is given every profile as soon as it is there: a later one may fail.
    """
    check_request(request)
    events = events or Silent()
    arms = _arms(request)
    found: list[Profile] = []
    for arm in arms:
        name = short_name(arm.target)
        name = f"{name} {arm.variant}" if len(arms) > 1 else name
        with _child(arm) as (worker, folder):
            try:
                for profile in _profiles(request, worker, folder, name, events):
                    found.append(replace(stamp(profile, request), arm=public_arm(arm)))
                    if keep is not None:
                        keep(found[-1])
            except ArmEnded as ended:
                raise _failed(name, request, ended) from None
    return tuple(found)


def allocator_of(request: ProfileRequest) -> str:
    """As elsewhere for a target's time. Memory that is kept hides from a look at resident memory
    what is freed and taken again, and a program is run as it would be without us."""
    own = request.how == "memory" or not request.is_target
    return request.allocator or ("default" if own else usual_allocator())


def _arms(request: ProfileRequest) -> list[ArmSpec]:
    base = ArmSpec(
        name="",
        target=request.what,
        mode=request.mode,
        precision=request.precision,
        device=request.device,
        threads=request.threads,
        allocator=allocator_of(request),
        seed=request.seed,
    )
    arms = distinct(
        [replace(base, name=one, variant=one) for one in (request.variant, *request.vs)]
    )
    for arm in arms:
        check_arm(arm)
    return arms


def _profiles(
    request: ProfileRequest, worker: WorkerProcess, folder: Path, name: str, events: Events
) -> Iterator[Profile]:

    def patience(phase: str) -> float:
        return request.build_timeout_s if phase in _BUILDING else 10 * request.timeout_s

    events.phase(f"{name}: building and warming up")
    worker.ask({"do": "build", "arm": worker.arm}, patience)
    for way in request.ways:
        events.phase(f"{name}: {way}")
        path = folder / f"{way}.profile.json"
        reply = worker.ask(
            {
                "do": "profile",
                "how": way,
                "options": replace(request.options, device=request.device),
                "steps": request.steps,
                "cost": request.cost is not False,
                "path": str(path),
            },
            patience,
        )
        cost = from_data(Cost, reply["cost"]) if reply["cost"] else None
        profile = read_profile(path, "torchstone")
        yield replace(profile, label=f"{name} ({way})", cost=cost)


@contextmanager
def _child(arm: ArmSpec) -> Iterator[tuple[WorkerProcess, Path]]:
    """A process that profiles, gone with all its children at the end."""
    with own_folder() as folder:
        spawn = Spawn([sys.executable, "-m", PROFILE_CHILD])
        worker = WorkerProcess(arm, spawn, _environment(arm), Path(folder))
        try:
            yield worker, Path(folder)
        finally:
            worker.kill()


def _environment(arm: ArmSpec) -> dict[str, str]:
    """The variables of a process that profiles: it has to find this package."""
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    quiet = {"KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99")}
    return {**os.environ, **quiet, **arm_environment(arm), "PYTHONPATH": path}


def _failed(name: str, request: ProfileRequest, ended: ArmEnded) -> ProfilingFailed:
    """One sentence on how it ended, and the last words it said."""
    detail = ended.detail
    outcome = ended.outcome.value.replace("_", " ")
    said = "".join(f"\n  {line}" for line in detail.stderr[-_MOST_LINES:])
    where = f" in phase {detail.phase!r}" if detail.phase else ""
    remedy = detail.remedy or (
        f"See whether it works without the profiler: `torchstone bench {request.what}`."
    )
    return ProfilingFailed(
        f"{name} could not be profiled ({request.how}): {outcome}{where}: {detail.message}.{said}",
        remedy,
    )


def stamp(profile: Profile, request: ProfileRequest) -> Profile:
    """With an id that sorts by time, the command and the machine."""
    return replace(
        profile,
        id=new_id(),
        command=public_words(command_of(request)),
        machine_id=this_machine(),
    )


def command_of(request: ProfileRequest) -> tuple[str, ...]:
    """The command line that asks for the same again."""
    names = ("steps", "variant", "mode", "precision", "device", "threads")
    options, plain = request.options, ProbeOptions()
    return (
        *("torchstone", "profile", "--how", request.how),
        *option_words(request, ProfileRequest(""), *names),
        *(("--allocator", allocator_of(request)) if request.is_target else ()),
        *repeated("--vs", request.vs),
        *(("--rate", f"{options.rate_hz:g}") if options.rate_hz != plain.rate_hz else ()),
        *option_words(options, plain, "clock"),
        *(("--native",) if options.native else ()),
        *repeated("--functions", options.functions),
        *(("-m",) if request.module else ()),
        request.what,
        *request.arguments,
    )


# A process that runs already.


ATTACH_S = 10.0


def profile_process(
    request: ProfileRequest,
    pid: int,
    seconds: float | None,
    events: Events | None = None,
    top: Callable[[Profile, float], object] | None = None,
) -> tuple[Profile, bool]:
    """Look at it from outside, and whether Ctrl-C ended it; `top` is shown each round, and how long
    it has been."""
    check_sampling(request.options.rate_hz, request.options.clock)
    if request.options.clock == "cpu" or request.how not in ("sample", "py-spy"):
        raise UsageError(
            "A running process is sampled by py-spy: wall time, or --clock gil.",
            "Remove --how and --clock.",
        )
    if top is None:
        seconds = seconds or ATTACH_S
        (events or Silent()).phase(f"process {pid}: looking for {seconds:g} s (Ctrl-C ends it)")
    shown = None if top is None else lambda last, whole: top(last, whole.wall_s)
    found, interrupted = watch(pid, request.options, seconds, shown)
    words = ("torchstone", "profile", "--pid", str(pid))
    made = replace(stamp(found, request), label=f"process {pid}", command=words)
    return made, interrupted


# A script or a module, profiled as a whole: run as Python would run it, in the same terminal.


PROFILE_SCRIPT_CHILD = "torchstone.profile.child_script"
SHORT_RUN_S = 5.0
"""Programs that take longer are not run again and again to see what profiling costs."""
PAIRS = 3
RUNS = 4 * PAIRS
"""A pair, and a pair of the control."""
GRACE_S = 10.0
"""After Ctrl-C, for the program to end and its profile to be written."""
_NO_COST = "What profiling costs was not measured:"
_NOT_ASKED = (
    f"{_NO_COST} the program would have to run again and again, and it may do things. --cost "
    "allows it."
)


class NotTheSameAgain(Exception):
    """The program ended otherwise when it was run again: its time is that of something else."""


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
        cost, note = None, f"{_NO_COST} the program did not end well."
        if not code:
            try:
                cost, note = _cost(request, way, took, progress)
            except KeyboardInterrupt:  # the profile is there: only its cost is given up
                note, code = f"{_NO_COST} it was interrupted.", INTERRUPTED
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
            "Remove this option for a program, which decides that itself.",
        )
    check_threads(request.threads)


def _run_once(request: ProfileRequest, way: str) -> tuple[Profile, int, float]:
    with own_folder() as folder:
        path = Path(folder) / "program.profile.json"
        started = time.perf_counter()
        with _started(request, way, str(folder), path) as process:
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
    arm = ArmSpec(name="", target=request.what, threads=request.threads)
    with subprocess.Popen(
        [sys.executable, "-m", PROFILE_SCRIPT_CHILD, str(note)],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        env=_environment(arm),
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
        return None, _NOT_ASKED if request.cost is None else f"{_NO_COST} --no-cost."
    if took > SHORT_RUN_S:
        return None, f"{_NO_COST} a run takes longer than {SHORT_RUN_S:g} s."
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
        with own_folder() as folder:
            path = Path(folder) / "again.profile.json"
            started = time.perf_counter()
            with _started(request, of_way, str(folder), path, silent=True) as process:
                code = process.wait()
            took = time.perf_counter() - started
            if code:  # the profiled run ended with 0, or there would be no cost to measure
                raise NotTheSameAgain(
                    f"{_NO_COST} run again, the program ended {_end(code)}. It does not do the "
                    "same again."
                )
            size = path.stat().st_size if path.exists() else size
            return took

    turns = take_turns(lambda: run(""), lambda: run(way), least=PAIRS, most=PAIRS)
    return cost_of(turns, footprint_bytes=size)
