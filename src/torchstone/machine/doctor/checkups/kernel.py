"""Settings of the kernel: huge pages, address layout, the clock, access to its counters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchstone.machine.doctor.base import FunctionCheckup, fix, note, ok, unseen, warn
from torchstone.machine.doctor.view import View
from torchstone.records import Finding

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
