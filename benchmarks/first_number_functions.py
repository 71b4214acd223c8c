"""The plain functions that `first_number.py` measures: the second does 30 % more."""

from __future__ import annotations

from collections.abc import Callable

MORE = 1.3
"""The work of the second of a pair: a clear difference."""
VALUES = [0.5] * 250


def _sum(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value * value
    return total


_REST = [0.5] * int(len(VALUES) * (MORE - 1))


def short() -> float:
    """About 10 µs of plain Python."""
    return _sum(VALUES)


def short_more() -> float:
    """30 % more of it, to the same end."""
    _sum(_REST)
    return _sum(VALUES)


def build(name: str) -> Callable[[], float]:
    """The function by name: for the tools it is set beside."""
    return {"short": short, "short_more": short_more}[name]
