"""Words and numbers for a check's sentence."""

from __future__ import annotations

import math

from torchstone.records import Measurement

LONGEST_NAME = 60
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def name_of(arm: Measurement | str) -> str:
    """The arm's name on one line; a long statement is cut."""
    name = " ".join((arm if isinstance(arm, str) else arm.arm.name).split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def percent(share: float) -> str:
    """`31 %`, `3.1 %`, `0.31 %`."""
    size = abs(share) * 100
    # The bounds are where rounding would give one digit more.
    decimals = 0 if size >= 9.95 or size == 0 else 1 if size >= 0.995 else 2
    return f"{share * 100:.{decimals}f} %"


def duration(seconds: float) -> str:
    """`1.23 ms`: three digits in the unit that fits."""
    if not math.isfinite(seconds):
        return "an unknown time"
    for scale, unit in _UNITS:
        if abs(seconds) >= scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def rate(value: float, unit: str) -> str:
    """`93.3 GFLOP/s`: three digits under the prefix that fits."""
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}"


def size(amount: int) -> str:
    """`4.00 MiB`."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if amount >= scale:
            return f"{_three_digits(amount / scale)} {unit}"
    return f"{amount} B"


def number(value: float) -> str:
    """A count or a mean of counts, with thousands separated: `16,236`, `12.5`."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.1f}"


def count(amount: int, one: str, many: str = "") -> str:
    """`1 process`, `3 processes`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
