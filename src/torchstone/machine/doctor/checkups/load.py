"""Other work on this machine: who does it, how much waits, what stalls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchstone.machine.doctor.base import FunctionCheckup, fix, note, ok, unseen, warn
from torchstone.machine.doctor.view import View
from torchstone.machine.doctor.window import PRESSURES, Use
from torchstone.machine.doctor.words import count, percent
from torchstone.records import Finding

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


PROCESSES = FunctionCheckup("processes", "R15: host noise", _processes)
LOAD = FunctionCheckup("load", "R15: host noise", _load)
PRESSURE = FunctionCheckup("pressure", "R15: PSI", _pressure)
