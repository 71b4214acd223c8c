"""The system: its kernel's settings, its limits on this process, and what a worker inherits."""

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
    set_kernel,
    unseen,
    warn,
    write_file,
)
from torchstone.records import Finding
from torchstone.records.format import count, format_bytes, percent

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


def _huge_pages(view: View) -> Finding:
    chosen = re.search(r"\[(\w+)\]", view.text(_HUGE) or "")
    if chosen is None:
        return unseen("huge-pages", "the kernel does not say")
    if chosen[1] != "always":
        return ok("huge-pages", f"{chosen[1]}: the kernel makes none unasked")
    return note(
        "huge-pages",
        "always: the kernel puts pages together when it likes, in the middle of a run too",
        "For figures that repeat, let programs ask for them.",
        write_file(_HUGE, "madvise", "always", "gives huge pages only where they are asked for"),
    )


def _layout(view: View) -> Finding:
    """Fresh processes must differ in layout: an interval over equal ones would be too narrow."""
    level = view.number("proc/sys/kernel/randomize_va_space")
    try:
        fixed = int(view.text("proc/self/personality") or "0", 16) & NO_RANDOMISATION
    except ValueError:
        fixed = 0
    if level is None:
        return unseen("address-layout", "the kernel does not say")
    unknown = "the interval cannot show what another layout would do"
    if fixed:
        said, remedy = f"fixed for this process: {unknown}", "Start it without setarch -R."
        return warn("address-layout", said, remedy, level=float(level))
    if level < FULL_RANDOMISATION:
        return warn(
            "address-layout",
            f"{'partly' if level else 'not'} random: {unknown}",
            "Switch address space randomisation on.",
            set_kernel(
                "randomize_va_space",
                FULL_RANDOMISATION,
                level,
                "gives every process a layout of its own",
            ),
            level=float(level),
        )
    return ok("address-layout", "random: every process has its own", level=float(level))


def _clocksource(view: View) -> Finding:
    current = view.text(f"{_CLOCK}/current_clocksource")
    if current is None:
        return unseen("clock", "the kernel does not name its clock")
    if current in QUICK_CLOCKS:
        return ok("clock", f"{current}: cheap to read")
    available = (view.text(f"{_CLOCK}/available_clocksource") or "").split()
    better = next((name for name in available if name in QUICK_CLOCKS), None)
    said = f"{current}: each reading takes microseconds"
    if better is None:
        return warn("clock", said, "The kernel log says why tsc is not trusted.")
    does = "uses a clock that is read without entering the kernel"
    fixes = write_file(f"{_CLOCK}/current_clocksource", better, current, does)
    return warn("clock", said, f"Choose {better}.", fixes)


def _counters(view: View) -> Finding:
    level = view.number("proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return unseen("perf-events", "the kernel has none")
    hardware = any(view.find(pattern) for pattern in _COUNTERS)
    kind = "hardware and software events" if hardware else "software events only, no cycles"
    if level > USER_ONLY and not view.administrator:
        said = f"closed to you (level {level}); timing does not need them, native profiles do"
        does = "lets you count and sample your own processes"
        fixes = set_kernel("perf_event_paranoid", 1, level, does)
        return note("perf-events", said, "Ask for level 1.", fixes, level=float(level))
    if not hardware:
        said = f"{kind}: the processor's counters cannot be seen here"
        return note("perf-events", said, level=float(level))
    return ok("perf-events", kind, level=float(level))


HUGE_PAGES = FunctionCheckup("huge-pages", "ours: memory that changes under a run", _huge_pages)
ADDRESS_LAYOUT = FunctionCheckup(
    "address-layout", "ours: layout must vary between processes", _layout
)
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
_PROFILE = "sys/firmware/acpi/platform_profile"


def _quota(view: View) -> Finding:
    folders = view.groups("cpu")
    if not folders:
        return unseen("cpu-quota", "no control group for the CPU is in sight")
    quota = processes.cpu_quota(folders)
    allowed = len(view.cores)
    if quota is None:
        return ok("cpu-quota", "no limit on CPU time")
    said = f"CPU time of {quota:g} cores is granted, on {count(allowed, 'allowed core')}"
    figures = {"quota": quota, "allowed": float(allowed)}
    if quota < 1:
        said += ": even one thread will be held back"
        remedy = "Grant the container at least one whole core."
        return fail("cpu-quota", said, remedy, **figures)
    if quota < allowed:
        threads = view.thread_budget()
        said += ": more threads than that will be held back"
        remedy = f"Measure with --threads {threads}, or raise the container's limit."
        does = "keeps torch within what may run at once"
        fixes = [fix(f"export OMP_NUM_THREADS={threads}", does, "unset OMP_NUM_THREADS")]
        return warn("cpu-quota", said, remedy, fixes, **figures)
    return ok("cpu-quota", said, **figures)


def _throttling(view: View) -> Finding:
    now, after = view.window.grown("throttled_times"), view.window.after
    ever, periods = after.throttled_times, after.periods
    if now is None or ever is None:
        if view.groups("cpu") and processes.cpu_quota(view.groups("cpu")) is None:
            return ok("throttling", "none: there is no quota to be held to")
        return unseen("throttling", "the control group does not count it")
    figures = {"now": float(now), "ever": float(ever), "periods": float(periods or 0)}
    remedy = "Raise the control group's CPU limit, or use fewer threads."
    if now:
        said = f"held back {count(now, 'time')} while watched"
        return fail("throttling", said, remedy, **figures)
    if ever:
        share = f", {percent(ever / periods)} of its periods" if periods else ""
        said = f"not now, but {count(ever, 'time')} since the group was made{share}"
        return note("throttling", said, remedy, **figures)
    return ok("throttling", "never held back by a quota", **figures)


def _heat(view: View) -> Finding:
    now, ever = view.window.grown("heat_events"), view.window.after.heat_events
    zones = {
        path: degrees / _MILLI
        for path in view.find("sys/class/thermal/thermal_zone*")
        if (degrees := view.number(f"{path}/temp")) is not None
    }
    if now is None and not zones:
        return unseen("heat", "neither temperatures nor throttling are shown")
    figures = {"now": float(now or 0), "ever": float(ever or 0)}
    said = "no temperature is shown"
    if zones:
        figures["hottest_c"] = max(zones.values())
        said = f"{figures['hottest_c']:.0f} degrees at the hottest"
    if now or any(degrees >= _trip(view, path) for path, degrees in zones.items()):
        said += f": slowed down {count(now, 'time')} while watched" if now else ": at its limit"
        return warn("heat", said, "Let it cool down; look at the fans.", **figures)
    if ever:
        said += f"; slowed down {count(ever, 'time')} since its start"
        return note("heat", said, **figures)
    return ok("heat", said, **figures)


def _trip(view: View, zone: str) -> float:
    """The lowest temperature at which this zone is slowed down."""
    found = [float("inf")]
    for path in view.find(f"{zone}/trip_point_*_type"):
        degrees = view.number(path.removesuffix("_type") + "_temp")
        if view.text(path) in _PASSIVE and degrees is not None and degrees > 0:
            found.append(degrees / _MILLI)
    return min(found)


def _memory(view: View) -> Finding:
    free = view.field("proc/meminfo", "MemAvailable")
    if free is None:
        return unseen("memory", "there is no /proc/meminfo")
    headroom = processes.memory_headroom(view.groups("memory"))
    available = free * _KIB if headroom is None else min(free * _KIB, headroom)
    said = f"{format_bytes(available)} can be had"
    said += ", within the control group's limit" if headroom == available else ""
    if available < LEAST_FREE:
        said = f"only {said}: arms may be measured one at a time, or be killed"
        remedy = "Free memory, or raise the container's limit."
        return warn("memory", said, remedy, available=float(available))
    return ok("memory", said, available=float(available))


def _swap(view: View) -> Finding:
    total = view.field("proc/meminfo", "SwapTotal")
    if total is None:
        return unseen("swap", "there is no /proc/meminfo")
    used = (total - (view.field("proc/meminfo", "SwapFree") or 0)) * _KIB
    moved = view.window.grown("swapped_pages") or 0
    figures = {"used": float(used), "total": float(total * _KIB), "pages_moved": float(moved)}
    off = [fix("sudo swapoff -a", "brings all back into memory, if it fits", "sudo swapon -a")]
    free = "Free memory before you measure."
    if moved > SWAP_PAGES:
        return fail("swap", f"{moved:,} pages were swapped while watched", free, **figures)
    if moved:
        said = f"{count(moved, 'page')} swapped while watched, {format_bytes(used)} in use"
        return warn("swap", said, free, off, **figures)
    if used:
        said = f"{format_bytes(used)} in use, none moved while watched"
        remedy = "A step that meets swapped memory takes many times longer once."
        return note("swap", said, remedy, off, **figures)
    return ok("swap", "none in use" if total else "there is none", **figures)


def _power(view: View) -> Finding:
    profile = view.text(_PROFILE)
    supplies = view.find("sys/class/power_supply/*")
    kinds = {supply: view.text(f"{supply}/type") for supply in supplies}
    batteries = [supply for supply in supplies if kinds[supply] == "Battery"]
    mains = [supply for supply in supplies if kinds[supply] in ("Mains", "USB")]
    unplugged = bool(mains) and not any(view.number(f"{supply}/online") for supply in mains)
    draining = any(view.text(f"{supply}/status") == "Discharging" for supply in batteries)
    if draining or (unplugged and batteries):
        return warn("power", "runs on battery", "Plug it in: batteries bring lower clocks.")
    if profile is not None and "low" in profile:
        return warn(
            "power",
            f"the system's profile is {profile}",
            "Choose the profile for performance while you measure.",
            write_file(_PROFILE, "performance", profile, "allows the highest clocks"),
        )
    if not supplies:
        return unseen("power", "no power supply is listed, as on most servers")
    return ok("power", "plugged in")


CPU_QUOTA = FunctionCheckup("cpu-quota", "throttled groups", _quota)
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


def _threads(view: View) -> Iterator[Finding]:
    budget = view.thread_budget()
    does = "one thread a core that may run at once"
    right = [fix(f"export OMP_NUM_THREADS={budget}", does, _restore("OMP_NUM_THREADS", view))]
    remedy = f"Set the threads to at most {budget}, or pass --threads."
    wrong: list[Finding] = []
    numbers = {}
    for name in THREAD_VARIABLES:
        # OpenMP takes a list for nested regions; the first number is the outermost.
        value = view.env.get(name, "")
        first = value.split(",")[0].strip()
        if first.isdigit() and int(first) >= 1:
            numbers[name] = int(first)
        elif value:
            said = f"{name}={value} is not a number of threads"
            wrong.append(warn("threads", said, remedy, right))
    set_ = [f"{name}={number}" for name, number in numbers.items()]
    differ = len(set(numbers.values())) > 1
    asked = view.torch.get("threads", "")
    if asked.isdigit():
        numbers["torch"] = int(asked)
    figures = {"budget": float(budget), **{name: float(n) for name, n in numbers.items()}}
    many = [f"{name} {number}" for name, number in numbers.items() if number > budget]
    if many:
        said = f"more threads than can run at once ({budget}): {', '.join(many)}"
        wrong.append(warn("threads", said, remedy, right, **figures))
    if differ:
        said = f"libraries differ: {', '.join(set_)}"
        wrong.append(warn("threads", said, "Set them alike.", right, **figures))
    yield from wrong
    if not wrong:
        parts = [f"torch uses {count(numbers['torch'], 'thread')}"] if "torch" in numbers else []
        parts += set_ or ["no variable sets them"]
        parts += [] if view.torch else ["torch is not installed here"]
        parts.append(f"{count(budget, 'thread')} can run at once")
        yield ok("threads", "; ".join(parts), **figures)


def _restore(name: str, view: View) -> str:
    value = view.env.get(name)
    return f"export {name}={value}" if value else f"unset {name}"


def _variables(view: View) -> Iterator[Finding]:
    found = {name: why for name, why in SLOWING.items() if view.env.get(name, "") not in ("", "0")}
    if SLOW_MALLOC in view.env.get("PYTHONMALLOC", ""):
        found["PYTHONMALLOC"] = "Python checks every block of memory"
    for name, why in found.items():
        fixes = [fix(f"unset {name}", "switches that off", _restore(name, view))]
        yield warn("variables", f"{name} is set: {why}", "Unset it while you measure.", fixes)
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
        said = f"LD_PRELOAD names {os.path.basename(path)}, which is not there"
        fixes = [fix("unset LD_PRELOAD", "loads nothing first", _restore("LD_PRELOAD", view))]
        yield warn("allocator", said, "Correct or unset it: the loader goes on without.", fixes)
    if view.malloc in ("", "system"):
        yield note(
            "allocator",
            "the system's: it gives large blocks back, and taking them again costs page faults",
            "Measuring keeps them (--allocator keep, the default with glibc); a program of yours "
            "does not.",
        )
    else:
        said = f"{view.malloc} is loaded: figures hold for it"
        yield note("allocator", said, "Compare only with figures that were made with it.")


THREADS = FunctionCheckup("threads", "ours: threads budget = min(affinity, quota)", _threads)
VARIABLES = FunctionCheckup("variables", "ours: what slows by request", _variables)
ALLOCATOR = FunctionCheckup(
    "allocator", "the dashboard's runner, measured: glibc giving memory back", _allocator
)
