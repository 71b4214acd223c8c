"""What profiling costs: profiled against unprofiled work, in turns, beside a control of nothing.

Only pairs within one process could tell a profiler's cost from the machine's moods; whole processes
differ by more. Where there is nothing but whole processes (a script), the interval says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torchstone.records import Cost, Estimate

ESTIMATOR = "paired blocks"
LEVEL = 0.95
MOST_PAIRS = 12
LEAST_PAIRS = 4
"""A multiple of four is balanced: every order behind every other."""
BUDGET_S = 4.0
"""For all pairs, once there are enough of them."""

Block = Callable[[], float]
"""Does a fixed amount of work; the seconds that it took."""


@dataclass
class Turns:
    """Seconds of neighbouring blocks: unprofiled and profiled, and unprofiled twice."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    controls: list[tuple[float, float]] = field(default_factory=list)


def take_turns(
    plain: Block,
    profiled: Block,
    budget_s: float = BUDGET_S,
    least: int = LEAST_PAIRS,
    most: int = MOST_PAIRS,
    say: Callable[[str], None] | None = None,
) -> Turns:
    """Interleaved pairs, the order changing each time: what drifts hits both alike."""
    turns = Turns()
    started = time.monotonic()
    for number in range(most):
        if number >= least and time.monotonic() - started > budget_s:
            break
        if say is not None:
            say("cost")
        if number % 2:
            new = profiled()
            turns.pairs.append((plain(), new))
        else:
            base = plain()
            turns.pairs.append((base, profiled()))
        # What a probe leaves behind hits the block after it: in every other turn that is the first
        # of these two, so which of them comes first changes at another pace.
        first, second = plain(), plain()
        turns.controls.append((second, first) if number // 2 % 2 else (first, second))
    return turns


def cost_of(turns: Turns, steps: int = 1, footprint_bytes: int = 0, memory_bytes: int = 0) -> Cost:
    """The record. Seconds are those of one step: the middle one of the blocks."""
    return Cost(
        ratio=_estimate(turns.pairs),
        control=_estimate(turns.controls),
        unprofiled_s=_middle([base for base, _ in turns.pairs]) / max(1, steps),
        profiled_s=_middle([new for _, new in turns.pairs]) / max(1, steps),
        footprint_bytes=footprint_bytes,
        memory_bytes=max(0, memory_bytes),
    )


def _estimate(pairs: list[tuple[float, float]]) -> Estimate:
    from torchstone.stats import geometric_mean

    found = geometric_mean([new / base for base, new in pairs], LEVEL)
    return Estimate(ESTIMATOR, found.value, (found.lo, found.hi), LEVEL, len(pairs))


def _middle(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
