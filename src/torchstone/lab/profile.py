"""`torchstone profile`: a target's steady step, looked at in one way or in several."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone.conductor import ArmEnded, Events
from torchstone.conductor.case import BUILD_TIMEOUT_S, STEP_TIMEOUT_S, Silent
from torchstone.conductor.launch import arm_environment
from torchstone.conductor.worker import Spawn, WorkerProcess
from torchstone.lab.bench import new_id
from torchstone.lab.request import allocator_words, check_arm, distinct
from torchstone.lab.secrets import public_arm, public_words
from torchstone.machine.allocator import usual_allocator
from torchstone.machine.environment import machine_id
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.profile import read_profile
from torchstone.profile.probes import ProbeOptions, choose_probe
from torchstone.profile.taking import check_sampling
from torchstone.records import ArmSpec, Cost, Profile, TorchstoneError, UsageError, from_data

CHILD = "torchstone.profile.child"
ALL = "all"
COMPARED = ("count", "sample", "trace")
"""What `all` puts side by side."""
_BUILDING = (
    "start",
    "import",
    "build",
    "first call",
    "warm-up",
    "profiling",
    "counting",
    "writing",
)
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
    patience = _patience(request)
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


def _patience(request: ProfileRequest) -> Callable[[str], float]:
    """A pass takes seconds where a step takes milliseconds, so it gets what building gets."""

    def of_phase(phase: str) -> float:
        return request.build_timeout_s if phase in _BUILDING else 10 * request.timeout_s

    return of_phase


@contextmanager
def _child(arm: ArmSpec) -> Iterator[tuple[WorkerProcess, Path]]:
    """A process that profiles, gone with all its children at the end."""
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        env = {**os.environ, **arm_environment(arm), "PYTHONPATH": house_on_path()}
        env.setdefault("KINETO_LOG_LEVEL", "99")
        worker = WorkerProcess(arm, Spawn([sys.executable, "-m", CHILD]), env, Path(folder))
        try:
            yield worker, Path(folder)
        finally:
            worker.kill()


def house_on_path() -> str:
    """PYTHONPATH for a process that has to find this package."""
    home = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))


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
        machine_id=machine_id(describe_cpu(), cache_sizes(), memory_bytes()),
    )


def command_of(request: ProfileRequest) -> tuple[str, ...]:
    """The command line that asks for the same again."""
    words = ["torchstone", "profile", "--how", request.how]
    plain = ProfileRequest("")
    for name in ("steps", "variant", "mode", "precision", "device", "threads"):
        value = getattr(request, name)
        if value != getattr(plain, name):
            words += [f"--{name}", str(value)]
    words += allocator_words(allocator_of(request)) if request.is_target else []
    for variant in request.vs:
        words += ["--vs", variant]
    for option in _sampling_words(request.options):
        words += option
    words += ["-m"] if request.module else []
    return (*words, request.what, *request.arguments)


def _sampling_words(options: ProbeOptions) -> Iterator[tuple[str, ...]]:
    plain = ProbeOptions()
    if options.rate_hz != plain.rate_hz:
        yield "--rate", f"{options.rate_hz:g}"
    if options.clock != plain.clock:
        yield "--clock", options.clock
    if options.native:
        yield ("--native",)
    for name in options.functions:
        yield "--functions", name
