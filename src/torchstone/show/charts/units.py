"""Values and marks of an axis in words, by the kind of figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.show.axis import Axis, LogAxis, format_si, format_tick, round_ratios, round_values
from torchstone.show.charts.data import LARGEST
from torchstone.show.units import (
    format_bytes,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
    ratio_decimals,
    time_unit,
)

RATIO, SECONDS, NANOSECONDS, BYTES, SHARE = "ratio", "s", "ns", "bytes", "share"
"""Any other unit is a word that stands after the number."""
_KIB = 1024.0
_BYTE_NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TICK_DIGITS = 3


def format_value(value: float, unit: str, ends: tuple[float, float] | None = None) -> str:
    """`1.52×`, `12.3 ms`, `1.21 GiB`, `98 %`; `ends` are those of its interval, if it has one."""
    if unit == RATIO:
        return format_ratio(value, ratio_decimals(value, ends) if ends else None)
    if unit == SECONDS:
        return format_seconds(value, _TICK_DIGITS)
    if unit == NANOSECONDS:
        return format_seconds(value / 1e9, _TICK_DIGITS)
    if unit == BYTES:
        return format_bytes(value)
    if unit == SHARE:
        return format_percent(value)
    return format_si(value, unit) if value % 1 else format_tick(value, unit)


def format_estimate(value: float, low: float | None, high: float | None, unit: str) -> str:
    """The value, and its interval in brackets where there is one."""
    if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
        return format_value(value, unit)
    ends = (low, high)
    if unit == RATIO:
        between = format_interval(ends, ratio_decimals(value, ends))
    else:
        between = " – ".join(format_value(end, unit) for end in ends)
    return f"{format_value(value, unit, ends)} ({between})"


class Words:
    """The values of one chart in words: in one unit and with as many decimals as the axis is worth,
    so that they can be read against each other."""

    def __init__(self, axis: Axis, unit: str) -> None:
        self._unit = unit
        self._even = not isinstance(axis, LogAxis)
        self._scale, self._name = _scale(max(abs(axis.low), abs(axis.high)), unit)
        span = (axis.high - axis.low) / self._scale
        fine = 2 - math.floor(math.log10(span)) if span > 0 and math.isfinite(span) else 2
        self._decimals = min(max(fine, 0), 9)

    def __call__(self, value: float, low: float | None, high: float | None) -> str:
        if not self._even:
            return format_estimate(value, low, high, self._unit)
        scale, decimals = self._scale, self._decimals
        said = f"{value / scale:.{decimals}f}{self._name}"
        if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
            return said
        return f"{said} ({low / scale:.{decimals}f}–{high / scale:.{decimals}f})"


def axis_marks(axis: Axis, unit: str, most: int) -> list[tuple[float, str]]:
    """Round values within the axis, each with its words."""
    if isinstance(axis, LogAxis):
        values = _powers_of_two(axis, most) if unit == BYTES else round_ratios(axis, most)
        return [(value, _alone(value, unit)) for value in values]
    scale, name = _scale(max(abs(axis.low), abs(axis.high)), unit)
    values = round_values(axis.low / scale, axis.high / scale, most)
    decimals = _decimals(values)
    return [(value * scale, _number(value, decimals) + name) for value in values]


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """What one of the axis's numbers is worth, and the name that stands behind it."""
    if unit == RATIO:
        return 1.0, "×"
    if unit == SHARE:
        return 0.01, " %"
    if unit in (SECONDS, NANOSECONDS):
        second = 1.0 if unit == SECONDS else 1e9
        scale, name = time_unit(largest / second, _TICK_DIGITS) if largest else (1.0, "s")
        return scale * second, f" {name}"
    if unit == BYTES:
        power = min(int(math.log(largest, _KIB)), len(_BYTE_NAMES) - 1) if largest >= 1 else 0
        return _KIB**power, f" {_BYTE_NAMES[power]}"
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if largest >= scale:
            return (1e3 if prefix == "k" else scale), f" {prefix}{unit}"
    return 1.0, f" {unit}".rstrip()


def _alone(value: float, unit: str) -> str:
    """A round value with a name of its own: on a logarithmic axis they differ."""
    scale, name = _scale(value, unit)
    return f"{value / scale:g}{name}"


def _decimals(values: Sequence[float]) -> int:
    """As many as the step between marks needs."""
    if len(values) < 2:
        return 2
    step = f"{abs(values[1] - values[0]):.6g}"
    if "e" in step:
        return min(9, max(0, -math.floor(math.log10(abs(values[1] - values[0])))))
    return len(step.partition(".")[2])


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("-") and float(text) == 0 else text


def _powers_of_two(axis: LogAxis, most: int) -> list[float]:
    first, last = math.ceil(math.log2(axis.low)), math.floor(math.log2(axis.high))
    count = last - first + 1
    if count <= 0:
        return []
    step = max(1, math.ceil(count / most))
    return [2.0**power for power in range(math.ceil(first / step) * step, last + 1, step)]
