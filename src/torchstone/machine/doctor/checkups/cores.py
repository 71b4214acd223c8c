"""The cores themselves: which may be used, which share a physical core, and whose they are."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from torchstone.machine.doctor.base import (
    CPU,
    FunctionCheckup,
    View,
    cores,
    fail,
    fix,
    note,
    ok,
    unseen,
    warn,
)
from torchstone.machine.doctor.window import PRESSURES, Use
from torchstone.machine.hardware import SIBLINGS as SIBLINGS_FILE
from torchstone.machine.hardware import one_each, read_cores
from torchstone.records import Finding
from torchstone.records.format import count, percent


def _affinity(view: View) -> Iterator[Finding]:
    allowed, online = len(view.cores), view.online
    figures = {"allowed": float(allowed), "online": float(online)}
    if allowed >= online:
        yield ok("affinity", f"all {count(online, 'core')} may be used", **figures)
        return
    yield note(
        "affinity",
        f"{allowed} of {count(online, 'core')} may be used (number {cores(view.cores)})",
        "If that is not meant, look for taskset, a cpuset or the container's settings.",
        **figures,
    )


def _siblings(view: View) -> Iterator[Finding]:
    groups = {
        core: found
        for core in view.cores
        if (found := read_cores(view.text(_siblings_path(core)) or ""))
    }
    if not groups:
        yield unseen("smt", "the system does not say which cores share a physical one")
        return
    pairs = {core: others & view.cores for core, others in groups.items()}
    shared = {core for core, others in pairs.items() if len(others) > 1}
    figures = {"sharing": float(len(shared)), "allowed": float(len(view.cores))}
    if shared:
        ones = one_each(pairs)
        yield note(
            "smt",
            f"{len(shared)} of {count(len(view.cores), 'allowed core')} are siblings: two threads "
            "on one physical core take turns",
            f"Use at most {count(len(ones), 'thread')}, one a physical core.",
            [
                fix(
                    f"taskset -c {cores(ones)} torchstone bench ...",
                    "uses one sibling of each physical core",
                )
            ],
            **figures,
        )
    elif any(len(others) > 1 for others in groups.values()):
        yield note(
            "smt",
            "each allowed core has a sibling that others may use",
            "Keep the siblings idle while you measure.",
            **figures,
        )
    elif view.virtual:
        yield unseen("smt", "the virtual machine is told of none; its host may share")
    else:
        yield ok("smt", "no two cores share a physical one", **figures)


def _siblings_path(core: int) -> str:
    return f"{CPU}/cpu{core}/{SIBLINGS_FILE}"


def _virtual(view: View) -> Iterator[Finding]:
    if view.text("proc/cpuinfo") is None:
        yield unseen("virtual", "there is no /proc/cpuinfo")
    elif view.virtual:
        kind = view.text("sys/hypervisor/type") or view.text("sys/class/dmi/id/sys_vendor")
        yield note(
            "virtual",
            f"a virtual machine{f' ({kind})' if kind else ''}: neighbours on the host do not show "
            "in its counters",
            "Trust core-speed and the A/A more than the counters.",
        )
    else:
        yield ok("virtual", "not a virtual machine, as far as the processor says")


AFFINITY = FunctionCheckup("affinity", "ours: what is measured with", _affinity)
SIBLINGS = FunctionCheckup("smt", "ours: two threads of one core share its units", _siblings)
VIRTUAL = FunctionCheckup(
    "virtual", "trials on a shared machine: counters of a guest miss its neighbours", _virtual
)


# Whether a busy thread keeps its core, and whether the core runs at full speed.


WAIT_SHARE = 0.02
"""ready to run but without a core, of the wall time."""
OCCUPANCY = 0.95
"""CPU time over wall time of a busy thread."""
LOST_SHARE = 0.50
"""Ours: with less than half of a core, even the fastest of many samples is chance."""
STEAL_SHARE = 0.01
"""time taken by the hypervisor."""
STEAL_LOST = 0.10
"""Ours: ten times R15, no longer a matter of marking single turns."""
PROBE_SLOW = 1.03
"""Work within 3 % of its own floor ran undisturbed (trials on a shared machine)."""
SLOW_NOTE, SLOW_WARN = 0.20, 0.50
"""Ours, as in the rules `noise` and `probe`: a fifth is worth saying; beyond half, the typical time
is the slow core's."""
LEAST_PROBES = 100
"""A tenth of what an undisturbed second gives; fewer say nothing about a share."""
_STOP = "Stop other work on this machine, or measure later."


def _core(view: View) -> Iterator[Finding]:
    noise = view.window.noise
    if noise is None or noise.wall_ns <= 0 or noise.wait_ns is None:
        yield unseen("core", "the system does not say how long a thread waits for a core")
        return
    had, waited = min(1.0, noise.cpu_ns / noise.wall_ns), noise.wait_ns / noise.wall_ns
    figures = {"cpu_per_wall": had, "wait_share": waited}
    said = f"a busy thread had its core for {percent(had)} of the time, waited {percent(waited)}"
    if had < LOST_SHARE:
        yield fail("core", said, _STOP, **figures)
    elif waited > WAIT_SHARE or had < OCCUPANCY:
        yield warn("core", said, _STOP, **figures)
    else:
        yield ok("core", said, **figures)


def _core_speed(view: View) -> Iterator[Finding]:
    probes = view.window.probes_ns
    if len(probes) < LEAST_PROBES:
        yield unseen("core-speed", "too little work was done in the time watched")
        return
    floor = min(probes)
    slow = sum(probe > PROBE_SLOW * floor for probe in probes) / len(probes)
    typical = statistics.median(probes) / floor
    figures = {"slow_share": slow, "typical_over_floor": typical, "probes": float(len(probes))}
    said = f"{percent(1 - slow)} of {len(probes):,} equal pieces of work ran at full speed"
    if slow <= SLOW_NOTE:
        yield ok("core-speed", said, **figures)
        return
    said += f"; the middle one took {typical:.2f} times the fastest"
    if slow <= SLOW_WARN:
        yield note("core-speed", said, "Give more --budget for small differences.", **figures)
        return
    yield warn(
        "core-speed",
        said,
        "Others use the same core or its caches: measure on a quieter machine, or give more "
        "--budget and trust the floor more than the typical time.",
        **figures,
    )


def _steal(view: View) -> Iterator[Finding]:
    shares = view.window.steal()
    mine = {core: share for core, share in shares.items() if core in view.cores} or shares
    if not mine:
        yield unseen("steal", "the system does not count what a hypervisor takes")
        return
    core, most = max(mine.items(), key=lambda item: item[1])
    said = f"the hypervisor took {percent(most)} of the time"
    said += f" of core {cores([core])}" if most else ""
    remedy = "Use a machine that is not shared, or measure later."
    if most > STEAL_LOST:
        yield fail("steal", said, remedy, share=most)
    elif most > STEAL_SHARE:
        yield warn("steal", said, remedy, share=most)
    else:
        yield ok("steal", said, share=most)


CORE = FunctionCheckup("core", "wait and occupancy", _core)
CORE_SPEED = FunctionCheckup("core-speed", "the probe of trials on a shared machine", _core_speed)
STEAL = FunctionCheckup("steal", "steal", _steal)


# Who decides how fast the cores run: the governor, and boost above the nominal clock.


STEADY = "performance"
"""The governor that holds the highest clock; every other one answers to the load (a clock that
drifts by more than 3 % is reason enough to repeat)."""
_INTEL = f"{CPU}/intel_pstate/no_turbo"
_GENERIC = f"{CPU}/cpufreq/boost"


def _governor(view: View) -> Iterator[Finding]:
    seen = {
        core: name
        for core in sorted(view.cores)
        if (name := view.text(f"{CPU}/cpu{core}/cpufreq/scaling_governor"))
    }
    other = sorted({name for name in seen.values() if name != STEADY})
    if not seen:
        yield unseen("governor", "the system shows no frequency control")
    elif not other:
        yield ok("governor", f"{STEADY} on {count(len(seen), 'core')}", cores=float(len(seen)))
    else:
        slow = sum(name != STEADY for name in seen.values())
        yield warn(
            "governor",
            f"{', '.join(other)} on {slow} of {count(len(seen), 'core')}: the clock follows the "
            "load, so short work runs slower than long work",
            f"Set the governor to {STEADY} while you measure.",
            [
                fix(
                    f"sudo cpupower frequency-set -g {STEADY}",
                    "holds the highest clock on all cores",
                    f"sudo cpupower frequency-set -g {other[0]}",
                )
            ],
            cores=float(len(seen)),
            not_steady=float(slow),
        )


def _boost(view: View) -> Iterator[Finding]:
    for path, on, off in ((_INTEL, "0", "1"), (_GENERIC, "1", "0")):
        state = view.text(path)
        if state is None:
            continue
        if state == off:
            yield ok("boost", "off: the clock does not depend on heat", on=0.0)
            return
        yield note(
            "boost",
            "on: the clock depends on heat and on how many cores are busy",
            "For fine comparisons switch it off; figures then hold for the nominal clock.",
            [
                fix(
                    f"echo {off} | sudo tee /{path}",
                    "switches boost off",
                    f"echo {on} | sudo tee /{path}",
                )
            ],
            on=1.0,
        )
        return
    yield unseen("boost", "the system does not say whether the clock may rise")


GOVERNOR = FunctionCheckup("governor", "clock drift", _governor)
BOOST = FunctionCheckup("boost", "boost gave 118 % of a nominal peak", _boost)


# Other work on this machine: who does it, how much waits, what stalls.


BUSY_NOTE, BUSY_WARN = 0.05, 0.20
"""Ours, in cores: a twentieth is more than a desktop at rest takes; a fifth of a core disturbs one
turn in five, from which on the rule `noise` warns."""
HIDDEN_WARN = 0.30
"""Ours, in cores: a tenth is what rounding to ticks on a few cores can come to; this is not."""
MOST_NAMED = 5
LOAD_NOTE, LOAD_WARN = 0.5, 1.0
"""Ours: tasks that want a core, per core. From one on, somebody waits."""
PRESSURE_WARN = {"cpu": 0.20, "io": 0.10, "memory": 0.01}
"""Ours: R15 names PSI but no figure. CPU as in the rule `noise` (a machine known to be under load
read 55-86 %); a step waits for no disk, and memory that stalls is memory that is short."""
_STALLS = {
    "cpu": ("tasks waited for a core", "Stop what `processes` names, or measure later."),
    "io": ("tasks waited for a disk", "Wait until copies, builds or downloads are done."),
    "memory": ("tasks waited for memory", "Free memory: stop what holds it."),
}


def _processes(view: View) -> Iterator[Finding]:
    window = view.window
    if not window.after.process_ticks or not window.seconds:
        yield unseen("processes", "the system does not list processes")
        return
    uses = window.uses()
    total = sum(use.cores for use in uses)
    figures = {"cores": total, "processes": float(len(uses))}
    if total < BUSY_NOTE:
        yield ok("processes", f"others use {total:.2f} cores", **figures)
    else:
        make = warn if total >= BUSY_WARN else note
        named = uses[:MOST_NAMED]
        yield make(
            "processes",
            f"others use {total:.2f} cores: {_named(named)}"
            + (f" and {len(uses) - MOST_NAMED} more" if len(uses) > MOST_NAMED else ""),
            "Stop them, or wait until they are done.",
            [_show(named)],
            **figures,
        )
    yield from _hidden(view, total)


def _hidden(view: View, seen: float) -> Iterator[Finding]:
    """Inside a container /proc/stat counts the whole host, but /proc lists only one's own."""
    window = view.window
    busy = window.busy_cores()
    own = window.noise.cpu_ns / window.noise.wall_ns if window.noise else 0.0
    hidden = 0.0 if busy is None else busy - seen - own
    if hidden > HIDDEN_WARN:
        yield warn(
            "processes",
            f"{hidden:.2f} cores more are in use by processes that cannot be seen from here",
            "Look from outside the container, or as another user.",
            hidden_cores=hidden,
        )


def _named(uses: Sequence[Use]) -> str:
    return ", ".join(f"{use.name} ({use.pid}) {use.cores:.2f}" for use in uses)


def _show(uses: Sequence[Use]) -> str:
    ids = ",".join(str(use.pid) for use in uses)
    return fix(f"ps -o pid,user,etime,pcpu,args -p {ids}", "shows who they are")


def _load(view: View) -> Iterator[Finding]:
    words = (view.text("proc/loadavg") or "").split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        yield unseen("load", "there is no /proc/loadavg")
        return
    per_core = load / view.online
    said = f"{load:.2f} tasks wanted {count(view.online, 'core')} over the last minute"
    figures = {"load": load, "per_core": per_core}
    if per_core > LOAD_WARN:
        yield warn("load", said, "It falls within minutes once other work has ended.", **figures)
    elif per_core > LOAD_NOTE:
        yield note("load", said, "Leave a core free for the system.", **figures)
    else:
        yield ok("load", said, **figures)


def _pressure(view: View) -> Iterator[Finding]:
    for kind in PRESSURES:
        share, (what, remedy) = view.window.pressure(kind), _STALLS[kind]
        name = f"pressure-{kind}"
        if share is None:
            yield unseen(name, "the kernel keeps no pressure figures")
        elif share > PRESSURE_WARN[kind]:
            yield warn(name, f"{what} for {percent(share)} of the time", remedy, share=share)
        else:
            yield ok(name, f"{what} for {percent(share)} of the time", share=share)


PROCESSES = FunctionCheckup("processes", "host noise", _processes)
LOAD = FunctionCheckup("load", "host noise", _load)
PRESSURE = FunctionCheckup("pressure", "PSI", _pressure)
