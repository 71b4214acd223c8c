"""Targets that do their work. None needs torch, so that a worker starts in a blink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Made = tuple[Callable[..., Any], Any]


def draw(seed: int) -> tuple[list[int]]:
    return ([(seed * 31 + i * 7) % 1009 for i in range(400)],)


def squares(values: list[int]) -> int:
    return sum(value * value for value in values)


def twice_the_work(values: list[int]) -> int:
    return (squares(values) + squares(values)) // 2


def make() -> Made:
    return squares, draw


def make_slow() -> Made:
    return twice_the_work, draw


def plain() -> int:
    return sum(range(1000))
