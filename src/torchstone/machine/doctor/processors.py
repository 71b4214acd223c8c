"""The cores: which may be used, who else uses them, and at what speed they run.

Accelerators, by what `nvidia-smi` says: who else uses them, and whether they are held back.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator

from torchstone.machine.doctor.base import (
    CPU,
    PRESSURES,
    FunctionCheckup,
    View,
    cores,
    fix,
    graded,
    note,
    ok,
    unseen,
    warn,
    write_file,
)
from torchstone.machine.hardware import SIBLINGS, one_each, read_cores
from torchstone.records import Finding, Level
from torchstone.records.format import count, percent


def _affinity(view: View) -> Finding:
    allowed, online = len(view.cores), view.online
    figures = {"allowed": float(allowed), "online": float(online)}
    if allowed >= online:
        return ok("affinity", f"all {count(online, 'core')} may be used", **figures)
    said = f"{allowed} of {count(online, 'core')} may be used (number {cores(view.cores)})"
    remedy = "If that is not meant, look for taskset, a cpuset or the container's settings."
    return note("affinity", said, remedy, **figures)


def _siblings(view: View) -> Finding:
    groups = {
        core: found
        for core in view.cores
        if (found := read_cores(view.text(f"{CPU}/cpu{core}/{SIBLINGS}") or ""))
    }
    if not groups:
        return unseen("smt", "the system does not say which cores share a physical one")
    pairs = {core: others & view.cores for core, others in groups.items()}
    shared = {core for core, others in pairs.items() if len(others) > 1}
    figures = {"sharing": float(len(shared)), "allowed": float(len(view.cores))}
    if shared:
        ones = one_each(pairs)
        said = (
            f"{len(shared)} of {count(len(view.cores), 'allowed core')} are siblings: two threads "
            "on one physical core take turns"
        )
        remedy = f"Use at most {count(len(ones), 'thread')}, one a physical core."
        command = f"taskset -c {cores(ones)} torchstone bench ..."
        fixes = [fix(command, "uses one sibling of each physical core")]
        return note("smt", said, remedy, fixes, **figures)
    if any(len(others) > 1 for others in groups.values()):
        said = "each allowed core has a sibling that others may use"
        return note("smt", said, "Keep the siblings idle while you measure.", **figures)
    if view.virtual:
        return unseen("smt", "the virtual machine is told of none; its host may share")
    return ok("smt", "no two cores share a physical one", **figures)


def _virtual(view: View) -> Finding:
    if view.text("proc/cpuinfo") is None:
        return unseen("virtual", "there is no /proc/cpuinfo")
    if not view.virtual:
        return ok("virtual", "not a virtual machine, as far as the processor says")
    kind = view.text("sys/hypervisor/type") or view.text("sys/class/dmi/id/sys_vendor")
    return note(
        "virtual",
        f"a virtual machine{f' ({kind})' if kind else ''}: neighbours on the host do not show "
        "in its counters",
        "Trust core-speed and the A/A more than the counters.",
    )


AFFINITY = FunctionCheckup("affinity", "ours: what is measured with", _affinity)
SMT = FunctionCheckup("smt", "ours: two threads of one core share its units", _siblings)
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
"""Ours: ten times the share that marks a turn, no longer a matter of single turns."""
PROBE_SLOW = 1.03
"""Work within 3 % of its own floor ran undisturbed (trials on a shared machine)."""
SLOW_NOTE, SLOW_WARN = 0.20, 0.50
"""Ours, as in the rules `noise` and `probe`: a fifth is worth saying; beyond half, the typical time
is the slow core's."""
LEAST_PROBES = 100
"""A tenth of what an undisturbed second gives; fewer say nothing about a share."""


def _core(view: View) -> Finding:
    noise = view.window.noise
    if noise is None or noise.wall_ns <= 0 or noise.wait_ns is None:
        return unseen("core", "the system does not say how long a thread waits for a core")
    had, waited = min(1.0, noise.cpu_ns / noise.wall_ns), noise.wait_ns / noise.wall_ns
    said = f"a busy thread had its core for {percent(had)} of the time, waited {percent(waited)}"
    level = Level.WARN if waited > WAIT_SHARE or had < OCCUPANCY else Level.OK
    level = Level.FAIL if had < LOST_SHARE else level
    remedy = "Stop other work on this machine, or measure later."
    return graded(level, "core", said, remedy, cpu_per_wall=had, wait_share=waited)


def _core_speed(view: View) -> Finding:
    probes = view.window.probes_ns
    if len(probes) < LEAST_PROBES:
        return unseen("core-speed", "too little work was done in the time watched")
    floor = min(probes)
    slow = sum(probe > PROBE_SLOW * floor for probe in probes) / len(probes)
    typical = statistics.median(probes) / floor
    figures = {"slow_share": slow, "typical_over_floor": typical, "probes": float(len(probes))}
    said = f"{percent(1 - slow)} of {len(probes):,} equal pieces of work ran at full speed"
    if slow <= SLOW_NOTE:
        return ok("core-speed", said, **figures)
    said += f"; the middle one took {typical:.2f} times the fastest"
    if slow <= SLOW_WARN:
        return note("core-speed", said, "Give more --budget for small differences.", **figures)
    return warn(
        "core-speed",
        said,
        "Others use the same core or its caches: measure on a quieter machine, or give more "
        "--budget and trust the floor more than the typical time.",
        **figures,
    )


def _steal(view: View) -> Finding:
    shares = view.window.steal()
    mine = {core: share for core, share in shares.items() if core in view.cores} or shares
    if not mine:
        return unseen("steal", "the system does not count what a hypervisor takes")
    core, most = max(mine.items(), key=lambda item: item[1])
    said = f"the hypervisor took {percent(most)} of the time" + (f" of core {core}" if most else "")
    level = Level.WARN if most > STEAL_SHARE else Level.OK
    level = Level.FAIL if most > STEAL_LOST else level
    remedy = "Use a machine that is not shared, or measure later."
    return graded(level, "steal", said, remedy, share=most)


CORE = FunctionCheckup("core", "wait and occupancy", _core)
CORE_SPEED = FunctionCheckup("core-speed", "the probe of trials on a shared machine", _core_speed)
STEAL = FunctionCheckup("steal", "steal", _steal)


# Who decides how fast the cores run: the governor, and boost above the nominal clock.


STEADY = "performance"
"""The governor that holds the highest clock; every other one answers to the load (a clock that
drifts by more than 3 % is reason enough to repeat)."""
_BOOST = ((f"{CPU}/intel_pstate/no_turbo", "0", "1"), (f"{CPU}/cpufreq/boost", "1", "0"))
"""Files that say it, with what means on and off."""


def _governor(view: View) -> Finding:
    paths = (f"{CPU}/cpu{core}/cpufreq/scaling_governor" for core in sorted(view.cores))
    seen = [name for path in paths if (name := view.text(path))]
    others = [name for name in seen if name != STEADY]
    if not seen:
        return unseen("governor", "the system shows no frequency control")
    if not others:
        return ok("governor", f"{STEADY} on {count(len(seen), 'core')}", cores=float(len(seen)))
    command = "sudo cpupower frequency-set -g"
    first = min(others)
    return warn(
        "governor",
        f"{', '.join(sorted(set(others)))} on {len(others)} of {count(len(seen), 'core')}: the "
        "clock follows the load, so short work runs slower than long work",
        f"Set the governor to {STEADY} while you measure.",
        [fix(f"{command} {STEADY}", "holds the highest clock on all cores", f"{command} {first}")],
        cores=float(len(seen)),
        not_steady=float(len(others)),
    )


def _boost(view: View) -> Finding:
    for path, on, off in _BOOST:
        state = view.text(path)
        if state == off:
            return ok("boost", "off: the clock does not depend on heat", on=0.0)
        if state is not None:
            said = "on: the clock depends on heat and on how many cores are busy"
            remedy = "For fine comparisons switch it off; figures then hold for the nominal clock."
            fixes = write_file(path, off, on, "switches boost off")
            return note("boost", said, remedy, fixes, on=1.0)
    return unseen("boost", "the system does not say whether the clock may rise")


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
"""Ours: nobody names a figure for PSI. CPU as in the rule `noise` (a machine known to be under load
read 55-86 %); a step waits for no disk, and memory that stalls is memory that is short."""
PRESSURE_LOST = {"cpu": 0.50}
"""Ours: where tasks wait for a core half of the time, no step has it to itself (as in `core`)."""
_STALLS = {
    "cpu": ("tasks waited for a core", "Stop what `processes` names, or measure later."),
    "io": ("tasks waited for a disk", "Wait until copies, builds or downloads are done."),
    "memory": ("tasks waited for memory", "Free memory: stop what holds it."),
}


def _processes(view: View) -> Iterator[Finding]:
    window = view.window
    if not window.after.processes or not window.seconds:
        yield unseen("processes", "the system does not list processes")
        return
    uses = window.uses()
    total = sum(use.cores for use in uses)
    figures = {"cores": total, "processes": float(len(uses))}
    said = f"others use {total:.2f} cores"
    if total < BUSY_NOTE:
        yield ok("processes", said, **figures)
    else:
        named = uses[:MOST_NAMED]
        said += f": {', '.join(f'{use.name} ({use.pid}) {use.cores:.2f}' for use in named)}"
        said += f" and {len(uses) - MOST_NAMED} more" if len(uses) > MOST_NAMED else ""
        ids = ",".join(str(use.pid) for use in named)
        fixes = [fix(f"ps -o pid,user,etime,pcpu,args -p {ids}", "shows who they are")]
        make = warn if total >= BUSY_WARN else note
        yield make("processes", said, "Stop them, or wait until they are done.", fixes, **figures)
    # Inside a container /proc/stat counts the whole host, but /proc lists only one's own.
    busy = window.busy_cores()
    own = window.noise.cpu_ns / window.noise.wall_ns if window.noise else 0.0
    hidden = 0.0 if busy is None else busy - total - own
    if hidden > HIDDEN_WARN:
        said = f"{hidden:.2f} cores more are in use by processes that cannot be seen from here"
        remedy = "Look from outside the container, or as another user."
        yield warn("processes", said, remedy, hidden_cores=hidden)


def _load(view: View) -> Finding:
    try:
        load = float((view.text("proc/loadavg") or "").split()[0])
    except (IndexError, ValueError):
        return unseen("load", "there is no /proc/loadavg")
    per_core = load / view.online
    said = f"{load:.2f} tasks wanted {count(view.online, 'core')} over the last minute"
    figures = {"load": load, "per_core": per_core}
    if per_core > LOAD_WARN:
        return warn("load", said, "It falls within minutes once other work has ended.", **figures)
    if per_core > LOAD_NOTE:
        return note("load", said, "Leave a core free for the system.", **figures)
    return ok("load", said, **figures)


def _pressure(view: View) -> Iterator[Finding]:
    for kind in PRESSURES:
        share, (what, remedy) = view.window.pressure(kind), _STALLS[kind]
        name = f"pressure-{kind}"
        if share is None:
            yield unseen(name, "the kernel keeps no pressure figures")
        else:
            level = Level.WARN if share > PRESSURE_WARN[kind] else Level.OK
            level = Level.FAIL if share > PRESSURE_LOST.get(kind, 1.0) else level
            yield graded(
                level, name, f"{what} for {percent(share)} of the time", remedy, share=share
            )


PROCESSES = FunctionCheckup("processes", "host noise", _processes)
LOAD = FunctionCheckup("load", "host noise", _load)
PRESSURE = FunctionCheckup("pressure", "PSI", _pressure)


NAME = "accelerator"
BUSY_SHARE = 0.05
"""Ours, as for the CPU: a twentieth is more than a display takes."""
HELD_BACK = 0x08 | 0x20 | 0x40 | 0x80
"""Bits of the reasons for a lower clock: hardware slowdown, heat by driver or hardware, power."""
TIMEOUT_S = 10.0
_QUERY = (
    "index,name,utilization.gpu,temperature.gpu,persistence_mode,clocks_throttle_reasons.active"
)
_APPS = "pid,process_name"


def _look(view: View) -> Iterator[Finding]:
    program = shutil.which("nvidia-smi", path=view.env.get("PATH") or os.defpath)
    wanted = view.device.split(":")[0] == "cuda"
    if program is None or not (wanted or view.device == "cpu"):
        yield unseen(NAME, _why(view, program))
        return
    try:
        cards = _ask(program, f"--query-gpu={_QUERY}")
        apps = _ask(program, f"--query-compute-apps={_APPS}")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        yield unseen(NAME, f"nvidia-smi failed ({' '.join(str(error).split())})")
        return
    others = [row for row in apps if row[0] != str(os.getpid())]
    if others:
        names = ", ".join(f"{os.path.basename(row[-1])} ({row[0]})" for row in others)
        said = f"used by {count(len(others), 'other process', 'other processes')}: {names}"
        make = warn if wanted else note
        remedy = "Stop them, or wait until they are done."
        yield make(NAME, said, remedy, processes=float(len(others)))
    for card in cards:
        if len(card) == len(_QUERY.split(",")):
            yield _card(card, wanted)
    if not cards:
        yield unseen(NAME, "nvidia-smi lists none")


def _why(view: View, program: str | None) -> str:
    if view.device not in ("cpu", "cuda") and not view.device.startswith("cuda:"):
        return f"nothing here knows about {view.device}"
    return "there is no nvidia-smi" if program is None else "it was not asked for"


def _ask(program: str, query: str) -> list[list[str]]:
    done = subprocess.run(
        [program, query, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise ValueError(said[0] if said else f"exit code {done.returncode}")
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def _card(card: list[str], wanted: bool) -> Finding:
    index, name, busy, degrees, persistence, reasons = card
    share, heat = _number(busy), _number(degrees)
    known = {"utilisation": share and share / 100, "temperature_c": heat}
    figures = {key: value for key, value in known.items() if value is not None}
    busy = "how busy it is cannot be seen" if share is None else f"{percent(share / 100)} busy"
    said = f"{name} ({index}): {busy}" + ("" if heat is None else f", {heat:.0f} degrees")
    make = warn if wanted else note
    if _bits(reasons) & HELD_BACK:
        remedy = "Let it cool down, or raise its power limit."
        return make(NAME, f"{said}, clock held back (reasons {reasons})", remedy, **figures)
    if share is None:
        return note(NAME, said, **figures)
    if share / 100 > BUSY_SHARE:
        return make(NAME, said, "Stop what uses it, or wait until it is done.", **figures)
    if persistence == "Disabled" and wanted:
        said += "; the driver unloads between processes"
        remedy = "Keep the driver loaded: the first call is quicker and the clock steadier."
        command = f"sudo nvidia-smi -i {index} -pm"
        fixes = [fix(f"{command} 1", "keeps the driver loaded", f"{command} 0")]
        return note(NAME, said, remedy, fixes, **figures)
    return ok(NAME, said, **figures)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A]: this card does not say
        return None


def _bits(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


ACCELERATOR = FunctionCheckup(NAME, "host noise, on the device", _look)
