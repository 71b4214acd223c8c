"""What is to be measured, checked before anything is."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.machine.calibrate.identity import threads_allowed
from torchstone.records import DRAM, UsageError

CPU = "cpu"
DTYPES = ("fp32", "fp64", "bf16", "fp16", "int8")
ACCELERATOR_DTYPES = ("fp32", "tf32", "fp64", "bf16", "fp16", "int8")
LEVELS = ("L1", "L2", "L3", "L4", DRAM)
SECONDS = 10.0
"""Time spent on samples; start-up, first calls and touching pages come on top."""
ONE_ROOF_SECONDS = 0.7
"""For each roof when only some are asked for."""
MOST_SECONDS = 600.0
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(?::\d+)?\Z")


@dataclass(frozen=True)
class Request:
    """Roofs as (name, threads): a name is a dtype or a level of memory.

    `whole` asks for every level that the machine has, and for the costs.
    """

    device: str
    threads: tuple[int, ...]
    dtypes: tuple[str, ...]
    seconds: float
    only: tuple[tuple[str, int], ...] = ()

    @property
    def whole(self) -> bool:
        return not self.only

    def wants(self, name: str, threads: int) -> bool:
        """Whether this roof is asked for."""
        return self.whole or (name, threads) in self.only


def make_request(
    device: str,
    threads: Sequence[int] | None,
    dtypes: Sequence[str] | None,
    seconds: float | None,
    only: Sequence[tuple[str, int]] | None,
) -> Request:
    """The request with its defaults, or a `UsageError`."""
    if not _DEVICE.match(device):
        raise UsageError(f"{device!r} is no device.", "Give one as torch names it: cpu, cuda:0.")
    known = DTYPES if device == CPU else ACCELERATOR_DTYPES
    roofs = tuple((name, count) for name, count in only or ())
    if only is not None and not roofs:
        raise UsageError("There is nothing to calibrate.", "Name a roof, or leave `only` out.")
    for name in (*(dtypes or ()), *(name for name, _ in roofs if name not in LEVELS)):
        if name not in known:
            raise UsageError(
                f"There is no roof {name!r} on {device}.", f"Choose from {', '.join(known)}."
            )
    counts = _counts(device, threads, roofs)
    wanted = tuple(dict.fromkeys(name for name, _ in roofs if name not in LEVELS))
    return Request(
        device,
        counts,
        wanted if roofs else tuple(dtypes or known),
        _seconds(seconds, roofs),
        roofs,
    )


def _counts(
    device: str, threads: Sequence[int] | None, roofs: tuple[tuple[str, int], ...]
) -> tuple[int, ...]:
    if device != CPU:
        return (0,)  # threads mean nothing there
    found = [count for _, count in roofs] or threads or (1, threads_allowed())
    for count in found:
        if type(count) is not int or count < 1:
            raise UsageError(f"{count!r} is no number of threads.", "Give 1 or more.")
    return tuple(dict.fromkeys(found))


def _seconds(seconds: float | None, roofs: tuple[tuple[str, int], ...]) -> float:
    if seconds is None:
        return ONE_ROOF_SECONDS * len(roofs) if roofs else SECONDS
    if not math.isfinite(seconds) or not 0 < seconds <= MOST_SECONDS:
        raise UsageError(
            f"{seconds:g} s cannot be spent on a calibration.",
            f"Give more than 0 and at most {MOST_SECONDS:g} seconds.",
        )
    return seconds
