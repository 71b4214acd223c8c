"""What holds this process back: a quota, the limit on memory, heat, swapping, a battery."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.machine import cgroup
from torchstone.machine.doctor.base import FunctionCheckup, fail, fix, note, ok, unseen, warn
from torchstone.machine.doctor.view import View
from torchstone.machine.doctor.words import count, percent, size
from torchstone.records import Finding

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
    quota = cgroup.cpu_quota(folders)
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
            [_threads(threads)],
            **figures,
        )
    else:
        yield ok("cpu-quota", said, **figures)


def _threads(threads: int) -> str:
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
        if view.groups("cpu") and cgroup.cpu_quota(view.groups("cpu")) is None:
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
    headroom = cgroup.memory_headroom(view.groups("memory"))
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


QUOTA = FunctionCheckup("cpu-quota", "R15: throttled groups", _quota)
THROTTLING = FunctionCheckup("throttling", "R15: any nr_throttled", _throttling)
HEAT = FunctionCheckup("heat", "R5: clock drift", _heat)
MEMORY = FunctionCheckup("memory", "ours: arms resident together", _memory)
SWAP = FunctionCheckup("swap", "ours: a page from disk costs more than a step", _swap)
POWER = FunctionCheckup("power", "R5: clock drift", _power)
