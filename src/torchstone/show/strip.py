"""A small histogram of an arm's samples in one row of text, on a scale shared by all arms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.show.style import Glyphs
from torchstone.show.units import format_seconds

TAIL = 0.98
"""The scale ends at this quantile of the slowest arm: one hiccup must not squash the picture.
Later samples are counted in the last cell."""

LEAST_SPAN = 1.02
"""The scale spans at least 2 %: otherwise the clock's own grain would look like a shape."""


@dataclass(frozen=True)
class Scale:
    """A logarithmic time axis: equal ratios are equal distances."""

    low: float
    high: float

    def cell(self, seconds: float, width: int) -> int:
        """Which of `width` cells a time falls into; what lies outside goes to the ends."""
        if seconds <= self.low:
            return 0
        place = math.log(seconds / self.low) / math.log(self.high / self.low)
        return min(width - 1, int(place * width))


def common_scale(arms: Sequence[Sequence[float]]) -> Scale | None:
    """From the fastest sample of any arm to the tail of the slowest; None without samples."""
    full = [sorted(value for value in samples if value > 0) for samples in arms]
    full = [samples for samples in full if samples]
    if not full:
        return None
    low = min(samples[0] for samples in full)
    high = max(samples[int(TAIL * (len(samples) - 1))] for samples in full)
    return Scale(low, max(high, low * LEAST_SPAN))


def strip(
    samples: Sequence[float], floor: float | None, scale: Scale, width: int, glyphs: Glyphs
) -> str:
    """The histogram in `width` cells. The mark stands just left of the cell of the floor."""
    room = width - 1  # one cell is kept free on the left, so that the fastest floor has a place
    counts = [0] * room
    for value in samples:
        counts[scale.cell(value, room)] += 1
    most = max(counts, default=0)
    bars = [_bar(count, most, glyphs) for count in counts]
    row = [glyphs.empty, *bars]
    if floor is not None and floor > 0:
        row[scale.cell(floor, room)] = glyphs.floor
    return "".join(row)


def _bar(count: int, most: int, glyphs: Glyphs) -> str:
    if not count:
        return glyphs.empty
    return glyphs.bars[math.ceil(count / most * len(glyphs.bars)) - 1]


def axis(scale: Scale, width: int, glyphs: Glyphs, *, ascii_only: bool) -> str:
    """The strip's heading: both ends of the scale with a line between, in `width` cells."""
    low = format_seconds(scale.low, 3, ascii_only=ascii_only)
    high = format_seconds(scale.high, 3, ascii_only=ascii_only)
    line = width - len(low) - len(high) - 2
    if line < 1:
        return low[:width].rstrip()
    return f"{low} {glyphs.rule * line} {high}"
