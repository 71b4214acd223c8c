"""Axes: where a value lies, and which values are worth a mark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FEW_DECADES = 2.5
"""Shorter axes get marks at 2 and 5 as well."""
_LEAST_MARKS = 3
"""Where 1, 2 and 5 give fewer marks than this, even steps do better."""
_ROUND = (1.0, 2.0, 5.0)


@dataclass(frozen=True)
class LogAxis:
    """From `low` to `high`, equal ratios at equal distances."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """How far along the value lies: 0 at the low end, 1 at the high end, beyond outside."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def at(self, share: float) -> float:
        """The value that lies so far along."""
        return self.low * math.exp(share * math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """Powers of ten within the ends; with 2 and 5 where there are few."""
        decades = math.log10(self.high / self.low)
        steps = (1.0, 2.0, 5.0) if decades < _FEW_DECADES else (1.0,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        marks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [mark for mark in marks if self.low <= mark <= self.high]


@dataclass(frozen=True)
class LinearAxis:
    """From `low` to `high`, equal differences at equal distances."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """How far along the value lies: 0 at the low end, 1 at the high end, beyond outside."""
        return (value - self.low) / (self.high - self.low)

    def at(self, share: float) -> float:
        """The value that lies so far along."""
        return self.low + share * (self.high - self.low)


Axis = LinearAxis | LogAxis


def round_values(low: float, high: float, most: int) -> list[float]:
    """At most `most` multiples of a round step within the ends, evenly apart."""
    wide = high - low
    if not (wide > 0 and math.isfinite(wide)) or most < 1:
        return []
    power = 10.0 ** math.floor(math.log10(wide / most))
    for step in (factor * power * scale for scale in (1.0, 10.0) for factor in _ROUND):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)]
    return []


def round_ratios(axis: LogAxis, most: int) -> list[float]:
    """Marks of a logarithmic axis: even steps where it is short, else 1, 2 and 5 or powers."""
    marks = axis.ticks()
    if len(marks) < _LEAST_MARKS:
        return round_values(axis.low, axis.high, most)
    return marks[:: max(1, math.ceil(len(marks) / most))]


def axis_around(values: Iterable[float], margin: float) -> LogAxis:
    """An axis that holds all values with a factor of `margin` to spare at both ends."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if not positive:
        return LogAxis(1.0, 10.0)
    return LogAxis(min(positive) / margin, max(positive) * margin)


def format_si(value: float, unit: str = "") -> str:
    """`93.3 GFLOP/s`: three digits under the prefix that fits; plain where it is small."""
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale * 0.9995:
            return f"{_short(value / scale)} {prefix}{unit}".rstrip()
    return f"{_short(value)} {unit}".rstrip()


def format_tick(value: float, unit: str = "") -> str:
    """`10 G`, `0.1`: a round value in as few characters as it takes."""
    for scale, prefix in _PREFIXES:
        if value >= scale * 0.9995:
            return f"{value / scale:g} {prefix}{unit}".rstrip()
    return f"{value:g} {unit}".rstrip()


def _short(value: float) -> str:
    size = abs(value)
    if 0 < size < 0.01:
        return f"{value:.1e}"
    return f"{value:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
