"""Which of the system's cores are physical ones: two hyper-threads share one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set

from torchstone.machine.files import read_text

CPUS = "/sys/devices/system/cpu"
SIBLINGS = "topology/thread_siblings_list"
"""Under each core's folder: the cores that share its physical one, itself among them."""


def read_cores(text: str) -> frozenset[int]:
    """The numbers in `0,2-5`; what cannot be read is left out."""
    found: set[int] = set()
    for part in text.strip().split(","):
        low, dash, high = part.partition("-")
        if low.isdigit() and (not dash or high.isdigit()):
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def one_each(siblings: Mapping[int, Set[int]]) -> frozenset[int]:
    """Of these cores with their siblings: one of each physical core."""
    return frozenset(min(others & siblings.keys()) for others in siblings.values())


def physical_cores(allowed: Iterable[int] | None = None, folder: str = CPUS) -> int | None:
    """How many physical cores there are among those that this process is bound to (or these).

    None where the system does not say. A quota is no core: `cgroup.usable_cores` knows it.
    """
    if allowed is None:
        if not hasattr(os, "sched_getaffinity"):
            return None
        allowed = os.sched_getaffinity(0)
    said = {core: read_text(f"{folder}/cpu{core}/{SIBLINGS}") or "" for core in allowed}
    found = {core: read_cores(text) | {core} for core, text in said.items()}
    return len(one_each(found)) if any(said.values()) else None
