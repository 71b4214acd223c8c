"""Settings of the kernel: huge pages, address layout, the clock, access to its counters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from torchstone.machine import processes
from torchstone.machine.doctor.base import (
    FunctionCheckup,
    View,
    fail,
    fix,
    note,
    ok,
    size,
    unseen,
    warn,
)
from torchstone.records import Finding
from torchstone.records.format import count, percent

FULL_RANDOMISATION = 2
"""Stack, libraries and heap; 1 leaves the heap where it is."""
NO_RANDOMISATION = 0x0040000
"""ADDR_NO_RANDOMIZE in a process's personality, as `setarch -R` sets it."""
QUICK_CLOCKS = frozenset(
    (
        *("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"),
        *("riscv_clocksource", "timebase", "tod"),
    )
)
"""Read without entering the kernel, or nearly; others cost a microsecond or more a reading."""
USER_ONLY = 2
"""perf_event_paranoid above which a process may not even count its own events."""
_CLOCK = "sys/devices/system/clocksource/clocksource0"
_HUGE = "sys/kernel/mm/transparent_hugepage/enabled"
_COUNTERS = (
    *("sys/bus/event_source/devices/cpu", "sys/bus/event_source/devices/cpu_core"),
    "sys/bus/event_source/devices/armv*",
)


def _huge_pages(view: View) -> Iterator[Finding]:
    chosen = re.search(r"\[(\w+)\]", view.text(_HUGE) or "")
    if chosen is None:
        yield unseen("huge-pages", "the kernel does not say")
    elif chosen[1] == "always":
        yield note(
            "huge-pages",
            "always: the kernel puts pages together when it likes, in the middle of a run too",
            "For figures that repeat, let programs ask for them.",
            [
                fix(
                    f"echo madvise | sudo tee /{_HUGE}",
                    "gives huge pages only where they are asked for",
                    f"echo always | sudo tee /{_HUGE}",
                )
            ],
        )
    else:
        yield ok("huge-pages", f"{chosen[1]}: the kernel makes none unasked")


def _layout(view: View) -> Iterator[Finding]:
    """Fresh processes must differ in layout: an interval over equal ones would be too narrow."""
    level = view.number("proc/sys/kernel/randomize_va_space")
    try:
        fixed = int(view.text("proc/self/personality") or "0", 16) & NO_RANDOMISATION
    except ValueError:
        fixed = 0
    if level is None:
        yield unseen("address-layout", "the kernel does not say")
    elif fixed:
        yield warn(
            "address-layout",
            "fixed for this process: the interval cannot show what another layout would do",
            "Start it without setarch -R.",
            level=float(level),
        )
    elif level < FULL_RANDOMISATION:
        yield warn(
            "address-layout",
            f"{'partly' if level else 'not'} random: the interval cannot show what another layout "
            "would do",
            "Switch address space randomisation on.",
            [
                fix(
                    f"sudo sysctl kernel.randomize_va_space={FULL_RANDOMISATION}",
                    "gives every process a layout of its own",
                    f"sudo sysctl kernel.randomize_va_space={level}",
                )
            ],
            level=float(level),
        )
    else:
        yield ok("address-layout", "random: every process has its own", level=float(level))


def _clocksource(view: View) -> Iterator[Finding]:
    current = view.text(f"{_CLOCK}/current_clocksource")
    if current is None:
        yield unseen("clock", "the kernel does not name its clock")
        return
    if current in QUICK_CLOCKS:
        yield ok("clock", f"{current}: cheap to read")
        return
    available = (view.text(f"{_CLOCK}/available_clocksource") or "").split()
    better = next((name for name in available if name in QUICK_CLOCKS), None)
    place = f"/{_CLOCK}/current_clocksource"
    fixes = [
        fix(
            f"echo {better} | sudo tee {place}",
            "uses a clock that is read without entering the kernel",
            f"echo {current} | sudo tee {place}",
        )
    ]
    yield warn(
        "clock",
        f"{current}: each reading takes microseconds",
        f"Choose {better}." if better else "The kernel log says why tsc is not trusted.",
        fixes if better else (),
    )


def _counters(view: View) -> Iterator[Finding]:
    level = view.number("proc/sys/kernel/perf_event_paranoid")
    if level is None:
        yield unseen("perf-events", "the kernel has none")
        return
    hardware = any(view.find(pattern) for pattern in _COUNTERS)
    kind = "hardware and software events" if hardware else "software events only, no cycles"
    if level > USER_ONLY and not view.administrator:
        yield note(
            "perf-events",
            f"closed to you (level {level}); timing does not need them, native profiles do",
            "Ask for level 1.",
            [
                fix(
                    "sudo sysctl kernel.perf_event_paranoid=1",
                    "lets you count and sample your own processes",
                    f"sudo sysctl kernel.perf_event_paranoid={level}",
                )
            ],
            level=float(level),
        )
    elif not hardware:
        yield note(
            "perf-events",
            f"{kind}: the processor's counters cannot be seen here",
            level=float(level),
        )
    else:
        yield ok("perf-events", kind, level=float(level))


HUGE_PAGES = FunctionCheckup("huge-pages", "ours: memory that changes under a run", _huge_pages)
LAYOUT = FunctionCheckup("address-layout", "ours: layout must vary between processes", _layout)
CLOCK = FunctionCheckup("clock", "ours: the cost of reading the time", _clocksource)
PERF_EVENTS = FunctionCheckup("perf-events", "ours: what profiles need", _counters)


# What holds this process back: a quota, the limit on memory, heat, swapping, a battery.


LEAST_FREE = 2 << 30
"""Ours: two workers that have imported torch and built a small model take about half of it."""
SWAP_PAGES = 256
"""Ours, in a second: a mebibyte. A page now and then is a neighbour's; more of them are ours."""
_KIB = 1024
_MILLI = 1000
_PASSIVE = ("passive", "hot", "critical")
"""Trip points of a thermal zone at which the system slows the processor down or stops."""


def _quota(view: View) -> Iterator[Finding]:
    folders = view.groups("cpu")
    if not folders:
        yield unseen("cpu-quota", "no control group for the CPU is in sight")
        return
    quota = processes.cpu_quota(folders)
    allowed = len(view.cores)
    if quota is None:
        yield ok("cpu-quota", "no limit on CPU time")
        return
    said = f"CPU time of {quota:g} cores is granted, on {count(allowed, 'allowed core')}"
    figures = {"quota": quota, "allowed": float(allowed)}
    if quota < 1:
        yield fail(
            "cpu-quota",
            f"{said}: even one thread will be held back",
            "Grant the container at least one whole core.",
            **figures,
        )
    elif quota < allowed:
        threads = view.thread_budget()
        yield warn(
            "cpu-quota",
            f"{said}: more threads than that will be held back",
            f"Measure with --threads {threads}, or raise the container's limit.",
            [_threads_limits(threads)],
            **figures,
        )
    else:
        yield ok("cpu-quota", said, **figures)


def _threads_limits(threads: int) -> str:
    return fix(
        f"export OMP_NUM_THREADS={threads}",
        "keeps torch within what may run at once",
        "unset OMP_NUM_THREADS",
    )


def _throttling(view: View) -> Iterator[Finding]:
    now, ever, periods = (
        view.window.grown("throttled_times"),
        view.window.after.throttled_times,
        view.window.after.periods,
    )
    if now is None or ever is None:
        if view.groups("cpu") and processes.cpu_quota(view.groups("cpu")) is None:
            yield ok("throttling", "none: there is no quota to be held to")
        else:
            yield unseen("throttling", "the control group does not count it")
        return
    figures = {"now": float(now), "ever": float(ever), "periods": float(periods or 0)}
    share = f", {percent(ever / periods)} of its periods" if periods else ""
    remedy = "Raise the control group's CPU limit, or use fewer threads."
    if now:
        yield fail("throttling", f"held back {count(now, 'time')} while watched", remedy, **figures)
    elif ever:
        yield note(
            "throttling",
            f"not now, but {count(ever, 'time')} since the group was made{share}",
            remedy,
            **figures,
        )
    else:
        yield ok("throttling", "never held back by a quota", **figures)


def _heat(view: View) -> Iterator[Finding]:
    now, ever = view.window.grown("heat_events"), view.window.after.heat_events
    zones = {
        path: degrees / _MILLI
        for path in view.find("sys/class/thermal/thermal_zone*")
        if (degrees := view.number(f"{path}/temp")) is not None
    }
    if now is None and not zones:
        yield unseen("heat", "neither temperatures nor throttling are shown")
        return
    figures = {"now": float(now or 0), "ever": float(ever or 0)}
    if zones:
        figures["hottest_c"] = max(zones.values())
    said = (
        f"{figures['hottest_c']:.0f} degrees at the hottest" if zones else "no temperature is shown"
    )
    hot = [path for path, degrees in zones.items() if degrees >= _trip(view, path)]
    if now or hot:
        slowed = f"slowed down {count(now, 'time')} while watched" if now else "at its limit"
        yield warn("heat", f"{said}: {slowed}", "Let it cool down; look at the fans.", **figures)
    elif ever:
        yield note("heat", f"{said}; slowed down {count(ever, 'time')} since its start", **figures)
    else:
        yield ok("heat", said, **figures)


def _trip(view: View, zone: str) -> float:
    """The lowest temperature at which this zone is slowed down."""
    found = [float("inf")]
    for path in view.find(f"{zone}/trip_point_*_type"):
        degrees = view.number(path.removesuffix("_type") + "_temp")
        if view.text(path) in _PASSIVE and degrees is not None and degrees > 0:
            found.append(degrees / _MILLI)
    return min(found)


def _memory(view: View) -> Iterator[Finding]:
    free = view.field("proc/meminfo", "MemAvailable")
    if free is None:
        yield unseen("memory", "there is no /proc/meminfo")
        return
    headroom = processes.memory_headroom(view.groups("memory"))
    available = free * _KIB if headroom is None else min(free * _KIB, headroom)
    said = f"{size(available)} can be had"
    said += ", within the control group's limit" if headroom == available else ""
    if available < LEAST_FREE:
        yield warn(
            "memory",
            f"only {said}: arms may be measured one at a time, or be killed",
            "Free memory, or raise the container's limit.",
            available=float(available),
        )
    else:
        yield ok("memory", said, available=float(available))


def _swap(view: View) -> Iterator[Finding]:
    total = view.field("proc/meminfo", "SwapTotal")
    if total is None:
        yield unseen("swap", "there is no /proc/meminfo")
        return
    used = (total - (view.field("proc/meminfo", "SwapFree") or 0)) * _KIB
    moved = view.window.grown("swapped_pages") or 0
    figures = {"used": float(used), "total": float(total * _KIB), "pages_moved": float(moved)}
    off = fix("sudo swapoff -a", "brings all back into memory, if it fits", "sudo swapon -a")
    if moved > SWAP_PAGES:
        said = f"{moved:,} pages were swapped while watched"
        yield fail("swap", said, "Free memory before you measure.", **figures)
    elif moved:
        said = f"{count(moved, 'page')} swapped while watched, {size(used)} in use"
        yield warn("swap", said, "Free memory before you measure.", [off], **figures)
    elif used:
        yield note(
            "swap",
            f"{size(used)} in use, none moved while watched",
            "A step that meets swapped memory takes many times longer once.",
            [off],
            **figures,
        )
    else:
        yield ok("swap", "none in use" if total else "there is none", **figures)


def _power(view: View) -> Iterator[Finding]:
    profile = view.text("sys/firmware/acpi/platform_profile")
    supplies = view.find("sys/class/power_supply/*")
    mains = [s for s in supplies if view.text(f"{s}/type") in ("Mains", "USB")]
    plugged = [view.number(f"{supply}/online") for supply in mains]
    draining = any(
        view.text(f"{s}/type") == "Battery" and view.text(f"{s}/status") == "Discharging"
        for s in supplies
    )
    unplugged = bool(mains) and not any(plugged)
    if draining or (unplugged and any(view.text(f"{s}/type") == "Battery" for s in supplies)):
        yield warn("power", "runs on battery", "Plug it in: batteries bring lower clocks.")
    elif profile is not None and "low" in profile:
        yield warn(
            "power",
            f"the system's profile is {profile}",
            "Choose the profile for performance while you measure.",
            [
                fix(
                    "echo performance | sudo tee /sys/firmware/acpi/platform_profile",
                    "allows the highest clocks",
                    f"echo {profile} | sudo tee /sys/firmware/acpi/platform_profile",
                )
            ],
        )
    elif not supplies:
        yield unseen("power", "no power supply is listed, as on most servers")
    else:
        yield ok("power", "plugged in")


QUOTA = FunctionCheckup("cpu-quota", "throttled groups", _quota)
THROTTLING = FunctionCheckup("throttling", "any nr_throttled", _throttling)
HEAT = FunctionCheckup("heat", "clock drift", _heat)
MEMORY = FunctionCheckup("memory", "ours: arms resident together", _memory)
SWAP = FunctionCheckup("swap", "ours: a page from disk costs more than a step", _swap)
POWER = FunctionCheckup("power", "clock drift", _power)


# Settings of the process that a worker inherits: threads, variables, the allocator.


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SLOWING = {
    "CUDA_LAUNCH_BLOCKING": "every kernel waits for the one before it",
    "MALLOC_CHECK_": "the C library checks every block of memory",
    "MALLOC_PERTURB_": "the C library writes to every freed block",
    "PYTHONDEVMODE": "Python runs with its debugging checks",
    "PYTHONTRACEMALLOC": "Python keeps a record of every block",
    "TORCHDYNAMO_DISABLE": "torch.compile does nothing",
    "TORCH_COMPILE_DISABLE": "torch.compile does nothing",
    "TORCH_LOGS": "torch writes logs while it runs",
}
"""Variables that change what is measured; `0` and the empty text leave them off."""
SLOW_MALLOC = "debug"


def _threads_settings(view: View) -> Iterator[Finding]:
    budget = view.thread_budget()
    set_ = {name: view.env[name] for name in THREAD_VARIABLES if view.env.get(name)}
    right = fix(
        f"export OMP_NUM_THREADS={budget}",
        "one thread a core that may run at once",
        _restore("OMP_NUM_THREADS", view),
    )
    remedy = f"Set the threads to at most {budget}, or pass --threads."
    numbers = {}
    clean = True
    for name, value in set_.items():
        # OpenMP takes a list for nested regions; the first number is the outermost.
        first = value.split(",")[0].strip()
        if not first.isdigit() or int(first) < 1:
            clean = False
            yield warn("threads", f"{name}={value} is not a number of threads", remedy, [right])
            continue
        numbers[name] = int(first)
    asked = view.torch.get("threads", "")
    if asked.isdigit():
        numbers["torch"] = int(asked)
    figures = {"budget": float(budget), **{name: float(n) for name, n in numbers.items()}}
    many = [f"{name} {number}" for name, number in numbers.items() if number > budget]
    if many:
        clean = False
        said = f"more threads than can run at once ({budget}): {', '.join(many)}"
        yield warn("threads", said, remedy, [right], **figures)
    if len({n for name, n in numbers.items() if name != "torch"}) > 1:
        clean = False
        said = ", ".join(f"{name}={n}" for name, n in numbers.items() if name != "torch")
        yield warn("threads", f"libraries differ: {said}", "Set them alike.", [right], **figures)
    if clean:
        yield ok("threads", _said(view, numbers, budget), **figures)


def _said(view: View, numbers: dict[str, int], budget: int) -> str:
    set_ = [f"{name}={number}" for name, number in numbers.items() if name != "torch"]
    parts = [f"torch uses {count(numbers['torch'], 'thread')}"] if "torch" in numbers else []
    parts += set_ or ["no variable sets them"]
    if not view.torch:
        parts.append("torch is not installed here")
    return f"{'; '.join(parts)}; {count(budget, 'thread')} can run at once"


def _restore(name: str, view: View) -> str:
    value = view.env.get(name)
    return f"export {name}={value}" if value else f"unset {name}"


def _variables(view: View) -> Iterator[Finding]:
    found = {name: why for name, why in SLOWING.items() if view.env.get(name, "") not in ("", "0")}
    if SLOW_MALLOC in view.env.get("PYTHONMALLOC", ""):
        found["PYTHONMALLOC"] = "Python checks every block of memory"
    for name, why in found.items():
        yield warn(
            "variables",
            f"{name} is set: {why}",
            "Unset it while you measure.",
            [fix(f"unset {name}", "switches that off", _restore(name, view))],
        )
    seed = view.env.get("PYTHONHASHSEED", "random")
    if seed not in ("", "random"):
        yield note(
            "variables",
            f"PYTHONHASHSEED={seed}: every process has the same order of hashes, and the interval "
            "does not show what another order would do",
            "Leave it unset, unless a result must be repeated exactly.",
            [fix("unset PYTHONHASHSEED", "lets hashes vary", f"export PYTHONHASHSEED={seed}")],
        )
    elif not found:
        yield ok("variables", "none is set that slows Python or torch down")


def _allocator(view: View) -> Iterator[Finding]:
    preloaded = view.env.get("LD_PRELOAD", "").replace(":", " ").split()
    # Without a slash the loader looks along its own paths, which we do not know.
    missing = [path for path in preloaded if "/" in path and not view.has(path)]
    for path in missing:
        yield warn(
            "allocator",
            f"LD_PRELOAD names {os.path.basename(path)}, which is not there",
            "Correct or unset it: the loader goes on without.",
            [fix("unset LD_PRELOAD", "loads nothing first", _restore("LD_PRELOAD", view))],
        )
    if view.malloc in ("", "system"):
        yield note(
            "allocator",
            "the system's: it gives large blocks back, and taking them again costs page faults",
            "Measuring keeps them (--allocator keep, the default with glibc); a program of yours "
            "does not.",
        )
    else:
        yield note(
            "allocator",
            f"{view.malloc} is loaded: figures hold for it",
            "Compare only with figures that were made with it.",
        )


THREADS = FunctionCheckup(
    "threads", "ours: threads budget = min(affinity, quota)", _threads_settings
)
VARIABLES = FunctionCheckup("variables", "ours: what slows by request", _variables)
ALLOCATOR = FunctionCheckup(
    "allocator", "the dashboard's runner, measured: glibc giving memory back", _allocator
)
