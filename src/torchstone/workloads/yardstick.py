"""A small piece of work that needs nothing installed, to learn what this machine can tell apart.

About 2 ms of arithmetic on small integers: long against a timer, short against the bursts of a
noisy neighbour, and small enough to stay in the nearest cache.
"""

from __future__ import annotations

ROUNDS = 30_000
_MULTIPLIER, _INCREMENT, _MODULUS = 1_103_515_245, 12_345, 1 << 31


def run() -> int:
    """Always the same numbers, one after the other."""
    value = 1
    for _ in range(ROUNDS):
        value = (_MULTIPLIER * value + _INCREMENT) % _MODULUS
    return value
