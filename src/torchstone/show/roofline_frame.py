"""What the two pictures of a roofline share: the axes, the roofs' lines, their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchstone.show.axis import LogAxis, axis_around, format_si

if TYPE_CHECKING:
    from torchstone.explain import Roof, Roofline

MARGIN = 3.0
"""Room beyond the outermost point or ridge, as a factor."""


def frame(found: Roofline) -> tuple[LogAxis, LogAxis]:
    """FLOP per byte across, FLOP per second up; every point, ridge and the peak inside."""
    placed = [p for p in found.points if p.rate is not None and p.intensity is not None]
    peak = compute_peak(found)
    across = axis_around([*(p.intensity or 0.0 for p in placed), *found.ridges.values()], MARGIN)
    rates = [p.rate or 0.0 for p in placed]
    if peak:
        rates.append(peak)
    for roof in found.roofs:
        if roof.kind == "memory":
            rates.append(min(peak or float("inf"), roof.value * across.low * MARGIN))
    return across, axis_around(rates, MARGIN)


def compute_peak(found: Roofline) -> float | None:
    """The compute roof, if it is known."""
    return next((roof.value for roof in found.roofs if roof.kind == "compute"), None)


def ends(
    found: Roofline, roof: Roof, across: LogAxis, up: LogAxis
) -> tuple[tuple[float, float], tuple[float, float]]:
    """A roof's line from end to end as (intensity, rate), as far as the frame shows it.

    Memory rises until compute is lower; compute begins where the fastest memory reaches it.
    """
    peak = compute_peak(found)
    if roof.kind == "compute":
        bands = [one.value for one in found.roofs if one.kind == "memory"]
        start = max(across.low, roof.value / max(bands)) if bands else across.low
        return (start, roof.value), (across.high, roof.value)
    low = max(across.low, up.low / roof.value)
    high = min(across.high, (peak or up.high) / roof.value)
    return (low, low * roof.value), (high, high * roof.value)


def roof_points(
    found: Roofline, roof: Roof, across: LogAxis, up: LogAxis, columns: int, rows: int
) -> Iterator[tuple[int, int]]:
    """The cells of a roof's line on a grid, left to right."""
    (first, _), (last, _) = ends(found, roof, across, up)
    start = round(across.share(first) * (columns - 1))
    stop = round(across.share(last) * (columns - 1))
    for column in range(max(0, start), min(columns - 1, stop) + 1):
        intensity = min(max(across.at(column / (columns - 1)), first), last)
        rate = roof.value if roof.kind == "compute" else roof.value * intensity
        yield column, round((1 - up.share(rate)) * (rows - 1))


def roof_label(roof: Roof) -> str:
    """`DRAM 20.9 GB/s`, `fp32 93.3 GFLOP/s`."""
    return f"{roof.name} {format_si(roof.value, 'FLOP/s' if roof.kind == 'compute' else 'B/s')}"


def when(found: Roofline) -> str:
    """When the roofs were measured, to the minute."""
    return found.calibrated[:16].replace("T", " ")
