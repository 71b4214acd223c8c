"""What a checkup looks at, what it finds, and the examination that runs them all.

The machine watched for about a second, while a fixed piece of work runs over and over.

Counters are read before and after. We keep one core busy meanwhile, because a hypervisor takes
nothing from a machine that sleeps, and because the work itself shows what no counter does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from torchstone.machine import processes
from torchstone.machine.hardware import read_cores
from torchstone.machine.noise import NS_PER_TICK, difference, make_probe, pressure_ns, snapshot
from torchstone.machine.processes import list_numbers, read_field, read_int, read_text, read_word
from torchstone.records import Finding, Level, Noise
from torchstone.records.plugins import Registry

WINDOW_S = 1.0
"""The kernel counts CPU time in ticks of 10 ms as a rule: a second shows one part in a hundred."""
PRESSURES = ("cpu", "io", "memory")
_IDLE = (3, 4)  # places of idle and iowait in a line of /proc/stat
_STEAL = 7
_COUNTED = 8  # guest time follows, and is counted in user time already
_NAME_END, _UTIME, _STIME, _STARTED = ")", 11, 12, 19  # of /proc/PID/stat, after the name
_SWAPS = ("pswpin", "pswpout")
_HEAT = ("core_throttle_count", "package_throttle_count")


@dataclass(frozen=True)
class Moment:
    """Counters since the machine's start; what the system does not say is empty or None."""

    core_ticks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    processes: Mapping[int, tuple[str, int, int]] = field(default_factory=dict)
    """Name, start time (an id may be used again) and CPU ticks by process id."""
    pressure_ns: Mapping[str, int] = field(default_factory=dict)
    swapped_pages: int | None = None
    throttled_times: int | None = None
    periods: int | None = None
    heat_events: int | None = None


@dataclass(frozen=True)
class Use:
    """What one process used, in cores."""

    pid: int
    name: str
    cores: float


@dataclass(frozen=True)
class Window:
    """What happened between two moments. `noise` is what this process itself met meanwhile."""

    seconds: float = 0.0
    before: Moment = field(default_factory=Moment)
    after: Moment = field(default_factory=Moment)
    noise: Noise | None = None
    probes_ns: tuple[int, ...] = ()

    def uses(self) -> list[Use]:
        """Every other process that used the CPU, the busiest first."""
        if not self.seconds:
            return []
        found = []
        for pid, (name, started, ticks) in self.after.processes.items():
            _, started_before, ticks_before = self.before.processes.get(pid, ("", started, 0))
            used = ticks - ticks_before if started == started_before else ticks
            if used > 0 and pid != os.getpid():
                found.append(Use(pid, name, used * NS_PER_TICK / 1e9 / self.seconds))
        return sorted(found, key=lambda use: -use.cores)

    def busy_cores(self) -> float | None:
        """Cores in use by anybody, in and out of sight; None where the system does not say."""
        shares = [self._share(core, _IDLE) for core in self.after.core_ticks]
        known = [1 - share for share in shares if share is not None]
        return sum(known) if known else None

    def steal(self) -> dict[int, float]:
        """The share of each core's time that the hypervisor took."""
        shares = {core: self._share(core, (_STEAL,)) for core in self.after.core_ticks}
        return {core: share for core, share in shares.items() if share is not None}

    def pressure(self, kind: str) -> float | None:
        """The share of the window in which some task stalled for it."""
        before, after = self.before.pressure_ns.get(kind), self.after.pressure_ns.get(kind)
        if before is None or after is None or not self.seconds:
            return None
        return min(1.0, max(0, after - before) / 1e9 / self.seconds)

    def grown(self, counter: str) -> int | None:
        """How much one of the moment's plain counters grew."""
        before, after = getattr(self.before, counter), getattr(self.after, counter)
        return None if before is None or after is None else max(0, after - before)

    def _share(self, core: int, places: Sequence[int]) -> float | None:
        before, after = self.before.core_ticks.get(core), self.after.core_ticks[core]
        if before is None or len(before) < _COUNTED or len(after) < _COUNTED:
            return None
        grown = [max(0, b - a) for a, b in zip(before, after, strict=False)][:_COUNTED]
        return sum(grown[place] for place in places) / sum(grown) if sum(grown) else None


def watch(
    seconds: float = WINDOW_S, work: Callable[[float], tuple[int, ...]] | None = None
) -> Window:
    """Watch this machine. `work` keeps us busy and returns how long each piece of it took."""
    before, noise_before = moment(), snapshot()
    start, cpu_start = time.perf_counter_ns(), time.process_time_ns()
    probes = (work or _run_probes)(seconds)
    wall, cpu = time.perf_counter_ns() - start, time.process_time_ns() - cpu_start
    noise = difference(noise_before, snapshot(), wall, cpu)
    return Window(wall / 1e9, before, moment(), noise, probes)


def _run_probes(seconds: float) -> tuple[int, ...]:
    probe = make_probe()
    end = time.perf_counter() + seconds
    taken = []
    while time.perf_counter() < end:
        taken.append(probe())
    return tuple(taken)


def moment(root: str = "") -> Moment:
    """All counters, now."""
    return Moment(
        core_ticks=_core_ticks(root),
        processes=_processes(root),
        pressure_ns={
            kind: total for kind in PRESSURES if (total := pressure_ns(kind, root)) is not None
        },
        swapped_pages=_sum(read_field(f"{root}/proc/vmstat", name) for name in _SWAPS),
        throttled_times=_group_counter(root, "nr_throttled"),
        periods=_group_counter(root, "nr_periods"),
        heat_events=_heat_events(root),
    )


def _core_ticks(root: str) -> dict[int, tuple[int, ...]]:
    found = {}
    for line in (read_text(f"{root}/proc/stat") or "").splitlines():
        name, *values = line.split() or [""]
        if name.startswith("cpu") and name[3:].isdigit():
            found[int(name[3:])] = tuple(int(value) for value in values)
    return found


def _processes(root: str) -> dict[int, tuple[str, int, int]]:
    found = {}
    for pid in list_numbers(f"{root}/proc"):
        head, end, rest = (read_text(f"{root}/proc/{pid}/stat") or "").rpartition(_NAME_END)
        words = rest.split()
        if end and len(words) > _STARTED:
            ticks = int(words[_UTIME]) + int(words[_STIME])
            found[pid] = (head.partition("(")[2], int(words[_STARTED]), ticks)
    return found


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _group_counter(root: str, name: str) -> int | None:
    """Summed over the group and its ancestors: a quota on any level holds us back."""
    folders = processes.folders("cpu", root)
    return _sum(read_field(os.path.join(folder, "cpu.stat"), name) for folder in folders)


def _heat_events(root: str) -> int | None:
    cpu = f"{root}/sys/devices/system/cpu"
    try:
        cores = [name for name in os.listdir(cpu) if name[:3] == "cpu" and name[3:].isdigit()]
    except OSError:
        return None
    return _sum(
        read_int(f"{cpu}/{core}/thermal_throttle/{name}") for core in cores for name in _HEAT
    )


# What a checkup may look at: files under a root, variables, and the second that was watched.


CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class View:
    """The machine as it is now. Paths are relative to the root: `proc/loadavg`.

    `torch` has `version` and `threads` of the torch that a worker would meet; it is empty where
    there is none. `malloc` is the allocator that is loaded.
    """

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] = frozenset({0})
    device: str = "cpu"
    window: Window = field(default_factory=Window)
    torch: Mapping[str, str] = field(default_factory=dict)
    malloc: str = ""
    administrator: bool = False

    def text(self, path: str) -> str | None:
        """The file's text without blanks around it; None where it is not there, or is empty."""
        return read_word(os.path.join(self.root, path)) or None

    def number(self, path: str) -> int | None:
        """The one integer that the file holds, or None."""
        return read_int(os.path.join(self.root, path))

    def field(self, path: str, name: str) -> int | None:
        """The integer after `name` on the line that starts with it, or None."""
        return read_field(os.path.join(self.root, path), name)

    def has(self, path: str) -> bool:
        """Whether the file or folder is there."""
        return os.path.exists(os.path.join(self.root, path.lstrip("/")))

    def find(self, pattern: str) -> list[str]:
        """The paths that match a shell pattern, in order."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def groups(self, controller: str) -> tuple[str, ...]:
        """The folders of this process's control group and its ancestors, from the root on."""
        root = str(self.root)
        return processes.folders(controller, "" if root == "/" else root)

    @property
    def online(self) -> int:
        """How many cores the machine has; at least those that may be used."""
        known = read_cores(self.text(f"{CPU}/online") or "")
        return max(len(known), len(self.cores), 1)

    @property
    def virtual(self) -> bool:
        """Whether a hypervisor says that it is there."""
        info = self.text("proc/cpuinfo") or ""
        flags = next((line for line in info.splitlines() if line.startswith("flags")), "")
        return "hypervisor" in flags.split() or self.text("sys/hypervisor/type") is not None

    def thread_budget(self) -> int:
        """Threads that can run at once: cores allowed, less where a quota grants less."""
        return processes.usable_cores(self.groups("cpu"), len(self.cores))


# What it finds.


_COMMENT = "  # "
_UNDO = "; undo: "
NOTHING = "not needed"


class Checkup(Protocol):
    """Looks at one thing that may disturb a measurement, and says what it found, `ok` included.

    `source` tells where it and its thresholds come from.
    """

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def look(self) -> Callable[[View], Finding | Iterable[Finding]]: ...


@dataclass(frozen=True)
class FunctionCheckup:
    """A checkup that is one function."""

    name: str
    source: str
    look: Callable[[View], Finding | Iterable[Finding]]


def ok(name: str, message: str, /, **figures: float) -> Finding:
    """Nothing that would disturb."""
    return Finding(name, Level.OK, message, figures)


def note(
    name: str, message: str, remedy: str = "", fixes: Sequence[str] = (), /, **figures: float
) -> Finding:
    """Worth knowing."""
    return Finding(name, Level.NOTE, message, figures, remedy, tuple(fixes))


def warn(
    name: str, message: str, remedy: str, fixes: Sequence[str] = (), /, **figures: float
) -> Finding:
    """Figures measured here will be wider, or hold for less than one thinks."""
    return Finding(name, Level.WARN, message, figures, remedy, tuple(fixes))


def fail(
    name: str, message: str, remedy: str, fixes: Sequence[str] = (), /, **figures: float
) -> Finding:
    """Figures measured here, now, are not to be believed."""
    return Finding(name, Level.FAIL, message, figures, remedy, tuple(fixes))


def graded(level: Level, name: str, message: str, remedy: str, /, **figures: float) -> Finding:
    """One of these; what helps is said only where something is wrong."""
    return Finding(name, level, message, figures, "" if level is Level.OK else remedy)


def unseen(name: str, why: str) -> Finding:
    """The system does not say, which is not the same as being well."""
    return Finding(name, Level.NOTE, f"cannot be seen here: {why}")


def fix(command: str, does: str, undo: str = NOTHING) -> str:
    """A command that would help, as a line that a shell takes: what it does is a comment."""
    return f"{command}{_COMMENT}{does}{_UNDO}{undo}"


def write_file(path: str, value: str, before: str, does: str) -> list[str]:
    """The fix that puts a value into one of the kernel's files."""
    return [fix(f"echo {value} | sudo tee /{path}", does, f"echo {before} | sudo tee /{path}")]


def set_kernel(name: str, value: int, before: int, does: str) -> list[str]:
    """The fix that sets one of the kernel's parameters."""
    name = f"sudo sysctl kernel.{name}"
    return [fix(f"{name}={value}", does, f"{name}={before}")]


def split_fix(line: str) -> tuple[str, str, str]:
    """Command, what it does, how to undo it; the last two may be empty in a plug-in's line."""
    command, _, comment = line.partition(_COMMENT)
    does, _, undo = comment.partition(_UNDO)
    return command, does, undo


def cores(numbers: Iterable[int]) -> str:
    """Core numbers as `taskset` takes them: `0,2-5`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


# All checkups by name, and the examination.


_OURS = {
    "processors": (
        *(
            "accelerator",
            "affinity",
            "boost",
            "core",
            "core-speed",
            "governor",
            "load",
            "pressure",
            "processes",
        ),
        *("smt", "steal", "virtual"),
    ),
    "system": (
        *("address-layout", "allocator", "clock", "cpu-quota", "heat", "huge-pages", "memory"),
        *("perf-events", "power", "swap", "threads", "throttling", "variables"),
    ),
}
"""By module; `core-speed` is `CORE_SPEED` there."""
CHECKUPS = Registry(
    "torchstone.checkups",
    {
        name: f"torchstone.machine.doctor.{module}:{name.replace('-', '_').upper()}"
        for module, names in _OURS.items()
        for name in names
    },
)


def examine(view: View) -> tuple[Finding, ...]:
    """Every finding of every installed checkup, in a stable order. Two of one name both run: none
    is silenced."""
    findings: list[Finding] = []
    checkups: list[Checkup] = []
    for point in CHECKUPS.all():
        try:
            checkups.append(cast("Checkup", point.load()))
        except Exception as error:  # a broken plug-in must not cost the report
            findings.append(_broken(point.name, error, "could not be loaded"))
    return (*run_checkups(checkups, view), *findings)


def run_checkups(checkups: Iterable[Checkup], view: View) -> tuple[Finding, ...]:
    """The findings in order; a checkup that raises becomes a warning and keeps what it found."""
    findings: list[Finding] = []
    for checkup in checkups:
        try:
            found = checkup.look(view)
            for finding in (found,) if isinstance(found, Finding) else found:
                if not isinstance(finding, Finding):
                    raise TypeError(f"gave a {type(finding).__name__} instead of a Finding")
                findings.append(finding)
        except Exception as error:  # whatever a plug-in does wrong
            findings.append(_broken(getattr(checkup, "name", repr(checkup)), error, "failed"))
    return tuple(findings)


def _broken(name: str, error: Exception, what: str) -> Finding:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return warn(
        str(name),
        f"this checkup {what} ({said}), so what it looks for was not looked at",
        "Report it to its author, or remove the plug-in.",
    )
