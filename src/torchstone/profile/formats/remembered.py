"""What our own files say beyond what their format can, so that they read back as what they were.

Other tools' formats hold weights, and cannot say whether these are samples, exact times or guessed
paths. Without that, nobody may put an interval on a share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torchstone.profile.formats.frames import clean
from torchstone.records import UNITS, WAYS, Profile, RecordError, Sampling, from_data, to_data

KEY = "torchstone"
UNKNOWN_CLOCK = "unknown"
MAX_COUNT = 2**53
"""Of samples or steps: whole numbers up to here are exact in every reader of JSON."""
MAX_SCALE = 1e9
"""Seconds are written as nanoseconds; nothing is written in finer parts."""


@dataclass(frozen=True)
class Remembered:
    """Of the profile that a file was written from. Weights in the file are `scale` times those of
    the profile, which are in `unit`."""

    how: str
    tool: str
    unit: str
    scale: float = 1.0
    estimated: bool = False
    steps: int = 0
    sampling: Sampling | None = None


def remember(profile: Profile, scale: float = 1.0) -> dict[str, Any]:
    """To be put into a file."""
    unit = profile.tree.unit if profile.tree is not None else "seconds"
    data: dict[str, Any] = to_data(
        Remembered(
            profile.how,
            profile.tool,
            unit,
            scale,
            profile.estimated,
            profile.steps,
            profile.sampling,
        )
    )
    return data


def remembered(data: Any) -> Remembered | None:
    """What a file says; None where it says nothing, or what cannot be: anybody may have written
    it."""
    try:
        found = from_data(Remembered, data)
    except RecordError:
        return None
    if not _holds(found):
        return None
    sampling = found.sampling
    if sampling is not None:
        sampling = replace(sampling, clock=clean(sampling.clock))
    return replace(found, tool=clean(found.tool), sampling=sampling)


def _holds(found: Remembered) -> bool:
    counts, sampling = [found.steps], found.sampling
    if sampling is not None:
        counts += [sampling.samples, sampling.lost]
        if not 0 <= sampling.interval_s < math.inf:
            return False
    return (
        found.how in WAYS
        and found.unit in UNITS
        and 1.0 <= found.scale <= MAX_SCALE
        and all(0 <= count <= MAX_COUNT for count in counts)
    )
