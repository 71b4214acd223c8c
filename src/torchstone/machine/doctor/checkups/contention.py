"""Whether a busy thread keeps its core, and whether the core runs at full speed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchstone.machine.doctor.base import FunctionCheckup, fail, note, ok, unseen, warn
from torchstone.machine.doctor.view import View
from torchstone.machine.doctor.words import cores, percent
from torchstone.records import Finding

WAIT_SHARE = 0.02
"""R15: ready to run but without a core, of the wall time."""
OCCUPANCY = 0.95
"""R15: CPU time over wall time of a busy thread."""
LOST_SHARE = 0.50
"""Ours: with less than half of a core, even the fastest of many samples is chance."""
STEAL_SHARE = 0.01
"""R15: time taken by the hypervisor."""
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


CORE = FunctionCheckup("core", "R15: wait and occupancy", _core)
CORE_SPEED = FunctionCheckup("core-speed", "the probe of trials on a shared machine", _core_speed)
STEAL = FunctionCheckup("steal", "R15: steal", _steal)
