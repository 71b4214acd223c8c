"""The cores themselves: which may be used, which share a physical core, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.machine.cores import SIBLINGS as SIBLINGS_FILE
from torchstone.machine.cores import one_each, read_cores
from torchstone.machine.doctor.base import FunctionCheckup, fix, note, ok, unseen
from torchstone.machine.doctor.view import CPU, View
from torchstone.machine.doctor.words import cores, count
from torchstone.records import Finding


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
