"""How much each replicate's ratio of floors is to be believed: by what the probe saw.

A floor is only a floor where the process met the core at full speed. On a shared machine a
neighbour can slow the core for seconds, and the process that met nothing else has a "fastest"
sample half as slow again. The probe (the same few instructions between all samples of all arms)
tells: over 811 recorded replicates of a 5 ms step whose true ratio is known
(`benchmarks/results/aa-live.jsonl`), a replicate was off by 0.4 % (1.48 times the median) where the
fastest probes of both its processes were within 0.5 % of full speed, by 0.7 % at 2-3 %, by 1.5 % at
3-4 %, by 2 % at 4-6 %. The weights follow that line.

They only steer the estimate. The interval does not rely on them: see `ratio.combine`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchstone.stats.late import Late
from torchstone.stats.process import ProcessData

if TYPE_CHECKING:
    import numpy as np
else:
    np = Late("numpy")

FASTEST = 4
"""Probes whose mean is a process's fastest: no single odd reading decides."""
FULL_SPEED = 0.25
"""Full speed is this quantile of all processes' fastest probes, not the very fastest: in one
process of 50 the probe itself is lucky with its place in memory and a quarter faster."""
STEADY, PER_EXCESS, MOST_EXCESS = 0.006, 0.4, 0.06
"""The error of a replicate at full speed, and what it grows by with each per cent that its probes
lack; beyond 6 % it is believed as little as at 6 %, a seventeenth as much as at full speed."""


def fastest_probe(data: ProcessData) -> float:
    """Seconds; NaN where too few probes were taken."""
    probes = np.sort(data.probes)
    return float(probes[:FASTEST].mean()) if probes.size >= FASTEST else math.nan


def speed_weights(fastest: Sequence[tuple[float, float]]) -> list[float]:
    """A weight for each replicate from the fastest probes of its two processes; all 1 without."""
    known = [probe for pair in fastest for probe in pair]
    if not known or not all(math.isfinite(probe) and probe > 0.0 for probe in known):
        return [1.0] * len(fastest)
    full = float(np.quantile(known, FULL_SPEED))
    return [_weight(math.log(max(pair) / full)) for pair in fastest]


def _weight(excess: float) -> float:
    error = PER_EXCESS * min(max(excess, 0.0), MOST_EXCESS)
    return STEADY**2 / (STEADY**2 + error**2)
