"""Targets whose profile is known beforehand."""

from __future__ import annotations

import hashlib
import time
from typing import Any

MIB = 1 << 20
GROWTH = 64 * MIB
UNIT = 2_000


def heavy(units: int = 7) -> int:
    total = 0
    for number in range(units * UNIT):
        total += number
    return total


def light(units: int = 3) -> int:
    total = 0
    for number in range(units * UNIT):
        total += number
    return total


def split() -> int:
    """Seven parts of ten in one function, three in another."""
    return heavy() + light()


def digest() -> str:
    """Native code, called from one line."""
    return hashlib.sha256(bytes(GROWTH // 4)).hexdigest()


def grows() -> int:
    """Memory on one line, given back on another."""
    small = 1
    large = b"\x01" * GROWTH
    small += len(large)
    del large
    return small


def make() -> Any:
    return split, ()


def make_growing() -> Any:
    return grows, ()


def make_slow_step() -> Any:
    return lambda: time.sleep(0.5), ()
