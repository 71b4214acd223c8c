"""Words and numbers for a finding's sentence."""

from __future__ import annotations

from collections.abc import Iterable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def percent(share: float) -> str:
    """`31 %`, `3.1 %`, `0.3 %`."""
    size = abs(share) * 100
    return f"{share * 100:.{0 if size >= 9.95 or size == 0 else 1}f} %"


def count(amount: int, one: str, many: str = "") -> str:
    """`1 core`, `3 cores`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def size(amount: float) -> str:
    """`7.8 GiB`."""
    unit = 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.{1 if unit and amount < 100 else 0}f} {_UNITS[unit]}"


def cores(numbers: Iterable[int]) -> str:
    """Core numbers as `taskset` takes them: `0,2-5`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
