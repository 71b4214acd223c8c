"""A machine planted in a folder: real files under a root, as a quiet machine has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchstone.machine.doctor import Checkup, View, run_checkups
from torchstone.machine.doctor.base import Moment, Window, moment
from torchstone.records import Finding, Level, Noise

CPU = "sys/devices/system/cpu"
GROUP = "sys/fs/cgroup/app"
CLOCK = "sys/devices/system/clocksource/clocksource0"
CORES = frozenset(range(4))
ZONE = "sys/class/thermal/thermal_zone0"


def stat(pid: int, name: str, ticks: int, started: int = 100) -> str:
    """A line of /proc/PID/stat."""
    return f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0 0\n"


def ticks(idle: Sequence[int], steal: Sequence[int] = (0, 0, 0, 0), busy: int = 1000) -> str:
    """/proc/stat of four cores."""
    lines = [
        f"cpu{core} {busy} 0 0 {idle[core]} 0 0 0 {steal[core]} 0 0" for core in range(len(idle))
    ]
    return "cpu 0 0 0 0 0 0 0 0 0 0\n" + "\n".join(lines) + "\nintr 5\n"


def pressure(total: int) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=0\n"


CLEAN: dict[str, str | None] = {
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in CORES},
    **{f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n}\n" for n in CORES},
    **{f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": "0\n" for n in CORES},
    f"{CPU}/intel_pstate/no_turbo": "1\n",
    f"{CPU}/online": "0-3\n",
    f"{CLOCK}/current_clocksource": "tsc\n",
    f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm\n",
    f"{ZONE}/temp": "45000\n",
    f"{ZONE}/trip_point_0_type": "passive\n",
    f"{ZONE}/trip_point_0_temp": "95000\n",
    f"{ZONE}/trip_point_1_type": "active\n",
    f"{ZONE}/trip_point_1_temp": "30000\n",
    "sys/class/power_supply/AC/type": "Mains\n",
    "sys/class/power_supply/AC/online": "1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/bus/event_source/devices/cpu/type": "4\n",
    "proc/cpuinfo": "processor : 0\nmodel name : A CPU\nflags : fpu avx2 fma\n",
    "proc/loadavg": "0.10 0.20 0.30 1/200 999\n",
    "proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\nSwapTotal: 1024 kB\n"
    "SwapFree: 1024 kB\n",
    "proc/vmstat": "pswpin 5\npswpout 5\n",
    "proc/stat": ticks([1000] * 4),
    "proc/7/stat": stat(7, "quiet", 10),
    "proc/pressure/cpu": pressure(1000),
    "proc/pressure/io": pressure(1000),
    "proc/pressure/memory": pressure(1000),
    "proc/self/cgroup": "0::/app\n",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/self/personality": "00000000\n",
    "proc/sys/kernel/randomize_va_space": "2\n",
    "proc/sys/kernel/perf_event_paranoid": "1\n",
    f"{GROUP}/cpu.max": "max 100000\n",
    f"{GROUP}/cpu.stat": "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    f"{GROUP}/memory.max": "max\n",
    f"{GROUP}/memory.current": "1000\n",
}

QUIET_SECOND: dict[str, str | None] = {"proc/stat": ticks([1095] * 4, busy=1005)}

VERSION_1: dict[str, str | None] = {
    "proc/self/cgroup": "4:memory:/app\n1:cpu,cpuacct:/app\n",
    "proc/self/mountinfo": (
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    ),
    "sys/fs/cgroup/cpu/app/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/app/cpu.stat": "nr_periods 9\nnr_throttled 0\nthrottled_time 0\n",
    "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/memory/app/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/app/memory.usage_in_bytes": "1000\n",
}


def plant(root: Path, files: Mapping[str, str | None]) -> None:
    """Write the files; None takes one away."""
    for name, text in files.items():
        path = root / name
        if text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def noise(**counters: int) -> Noise:
    """What a process met that had its core for the whole second, unless told otherwise."""
    plain: dict[str, Any] = {"wall_ns": 10**9, "cpu_ns": 999_000_000, "wait_ns": 0}
    return Noise(**{**plain, **counters})


PROBES = tuple(100_000 + n % 7 * 100 for n in range(1000))


def view(
    root: Path,
    changes: Mapping[str, str | None] | None = None,
    second: Mapping[str, str | None] | None = None,
    **more: Any,
) -> View:
    """A quiet machine with `changes`, on which `second` happened within a second."""
    plant(root, {**CLEAN, **(changes or {})})
    before = moment(str(root))
    plant(root, {**QUIET_SECOND, **(second or {})})
    watched = Window(
        1.0, before, moment(str(root)), more.pop("noise", noise()), more.pop("probes", PROBES)
    )
    facts: dict[str, Any] = {
        "root": root,
        "env": {"PATH": str(root)},
        "cores": CORES,
        "window": watched,
        "torch": {"version": "2.13.0", "threads": "4"},
        "malloc": "system",
    }
    return View(**{**facts, **more})


def empty_view(root: Path) -> View:
    """A system that says nothing at all."""
    return View(root=root, env={"PATH": str(root)}, window=Window(1.0, Moment(), Moment()))


def findings(checkup: Checkup, seen: View) -> tuple[Finding, ...]:
    return run_checkups([checkup], seen)


def only(checkup: Checkup, seen: View) -> Finding:
    (found,) = findings(checkup, seen)
    return found


def levels(found: Sequence[Finding]) -> list[Level]:
    return [finding.level for finding in found]
