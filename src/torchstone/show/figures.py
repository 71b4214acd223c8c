"""Per-arm figures for every kind of report: seconds per call, by the one definition in `stats`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchstone.records import Measurement

LEVEL = 0.95
"""What the shown intervals hold with, over the whole course of a case: see `figures`."""
FLOOR = "floor"
TYPICAL = "typical"


@dataclass(frozen=True)
class Figure:
    """Seconds per call by one estimator; no interval where too few processes ran."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Figures:
    """What an arm's samples say in short."""

    floor: Figure
    typical: Figure
    samples: tuple[float, ...]
    processes: int
    turns: int
    calls_per_sample: int

    @property
    def calls(self) -> int:
        """All timed calls."""
        return len(self.samples) * self.calls_per_sample


def seconds_per_call(measurement: Measurement) -> tuple[float, ...]:
    """Every sample in order, in seconds per call."""
    scale = measurement.loops * 1e9
    return tuple(wall / scale for turn in measurement.turns for wall in turn.wall_ns)


def figures(measurement: Measurement, alpha: float) -> Figures | None:
    """The figures of an arm, or None when it has no samples.

    `alpha` is the method's: what the look at which the case stopped could still spend. Intervals
    made at 1 - alpha hold with `LEVEL` whichever look it was; made at `LEVEL` itself they would
    not, because a case stops early where its processes happen to agree.
    """
    samples = seconds_per_call(measurement)
    if not samples:
        return None
    return Figures(
        floor=_figure(measurement, FLOOR, 1.0 - alpha),
        typical=_figure(measurement, TYPICAL, 1.0 - alpha),
        samples=samples,
        processes=len({turn.replicate for turn in measurement.turns}),
        turns=len(measurement.turns),
        calls_per_sample=measurement.loops,
    )


def headline(found: Figures, lead: str, base: Figures | None, ratio: float | None) -> Figure:
    """The time that stands beside a speed-up: the baseline's own, and of others that of the
    baseline times their ratio, so that times and ratio agree.

    A ratio rests on what was measured side by side, which two times by themselves do not.
    """
    own = found.floor if lead == FLOOR else found.typical
    if base is None or not ratio or not math.isfinite(ratio):
        return own
    value = ratio * (base.floor if lead == FLOOR else base.typical).value
    if own.interval is None or not own.value:
        return Figure(value, None)
    low, high = (end * value / own.value for end in own.interval)
    return Figure(value, (low, high))


def _figure(measurement: Measurement, estimator: str, level: float) -> Figure:
    from torchstone.stats import absolute  # numpy comes with it: only when a figure is wanted

    value, low, high = absolute(measurement, estimator, level)
    bounded = 0 < low <= high and math.isfinite(high)  # one process alone gives no bounds
    return Figure(value, (low, high) if bounded else None)
