"""What identical arms differ by: no change of a speed-up below that is believed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from torchstone.records import CaseFigures, Conditions

if TYPE_CHECKING:  # the database's library costs more to import than all the rest
    from torchstone.store import Store

DEFAULT_AA_FLOOR = 0.005
"""What identical arms may differ by on a machine not observed yet (benchmarks/aa.py)."""

_CLASSES = ("under 1 ms", "1-10 ms", "10-100 ms", "over 100 ms")
_LIMITS = (1e6, 1e7, 1e8)  # nanoseconds between them


class Floor(NamedTuple):
    """A relative difference, and whether it was seen on the machine or is the named default."""

    value: float
    seen: bool = False


Floors = Callable[[str, CaseFigures], Floor]
"""From a machine's id and a case that ran there to what its speed-up may be off by."""


def step_class(nanoseconds: float) -> str:
    """The order of magnitude of a step: noise depends on it."""
    return _CLASSES[bisect_right(_LIMITS, nanoseconds)]


def default_floors(machine_id: str, case: CaseFigures) -> Floor:
    """The named default, for any machine."""
    return Floor(DEFAULT_AA_FLOOR)


def stored_floors(store: Store) -> Floors:
    """What the store has seen of each machine, thread count, allocator and length of step; never
    less than the default."""

    @cache
    def look(machine_id: str, conditions: Conditions) -> Floor:
        known = store.aa_floor(machine_id, conditions)
        return Floor(max(DEFAULT_AA_FLOOR, known or 0.0), known is not None)

    def floor(machine_id: str, case: CaseFigures) -> Floor:
        # Without a thread count of its own the case ran with the library's, which is not kept.
        if not machine_id or not case.key.threads or case.base_ns is None:
            return Floor(DEFAULT_AA_FLOOR)
        key = case.key
        kind = step_class(case.base_ns)
        return look(machine_id, Conditions(key.threads, key.allocator, kind))

    return floor
