"""What a device gave, before it becomes a calibration with a name and a date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Peak


@dataclass(frozen=True)
class Measured:
    """The roofs of one device; see `Calibration` for each of them."""

    name: str
    compute: tuple[Peak, ...] = ()
    bandwidth: tuple[Peak, ...] = ()
    clock: Peak | None = None
    nominal_clock_hz: float | None = None
    costs: Mapping[str, Peak] = field(default_factory=dict)
    last_level_bytes: int = 0
    notes: tuple[str, ...] = ()
