"""The machine watched for about a second, while a fixed piece of work runs over and over.

Counters are read before and after. We keep one core busy meanwhile, because a hypervisor takes
nothing from a machine that sleeps, and because the work itself shows what no counter does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torchstone.machine import processes
from torchstone.machine.noise import NS_PER_TICK, difference, make_probe, pressure_ns, snapshot
from torchstone.machine.processes import list_numbers, read_field, read_int, read_text
from torchstone.records import Noise

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
