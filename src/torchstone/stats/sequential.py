"""When to look at the data, and how much error each look may spend.

Looking often and stopping at the first good look breaks an interval's promise. The looks are
fixed before the first sample, and their alphas add up to at most the whole alpha, so by the
union bound all looks together keep it, whatever rule stops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchstone.records import Estimate

FIRST_LOOK = 3
"""Two processes give one degree of freedom: never precise enough to be worth a look."""
LOOK_GROWTH = 1.6
"""Each look waits for this many times the processes of the one before: 3, 5, 8, 13, ..."""
EARLY_SHARE = 0.2
"""The share of alpha that all looks but the last may spend together; the rest is kept."""


def looks(replicates: int) -> tuple[int, ...]:
    """The replicate counts at which to look, the last being `replicates` itself."""
    if replicates < 1:
        raise ValueError(f"need at least one replicate, got {replicates}")
    early = []
    look = FIRST_LOOK
    # A look just before the last one would spend alpha and save next to nothing.
    while look <= replicates - 2:
        early.append(look)
        look = round(look * LOOK_GROWTH)
    return (*early, replicates)


def alpha_at(look_index: int, looks: Sequence[int], alpha: float = 0.05) -> float:
    """The alpha of one look; early looks share a fifth in proportion to their replicates."""
    if not 0 <= look_index < len(looks):
        raise ValueError(f"there is no look {look_index} among {len(looks)}")
    early = looks[:-1]
    if not early:
        return alpha
    if look_index == len(looks) - 1:
        return alpha * (1.0 - EARLY_SHARE)
    return alpha * EARLY_SHARE * early[look_index] / sum(early)


def stop(estimates: Sequence[Estimate], within: float) -> bool:
    """True when every interval is precise enough; False when there is none at all."""
    return bool(estimates) and all(is_precise(e.interval, within) for e in estimates)


def is_precise(interval: tuple[float, float], within: float) -> bool:
    """Whether half the interval's width, in log ratio, is at most log(1 + within)."""
    low, high = interval
    if not (0.0 < low <= high < math.inf):
        return False
    return 0.5 * (math.log(high) - math.log(low)) <= math.log1p(within)
