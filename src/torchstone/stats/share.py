"""The interval of a share that was seen in samples."""

from __future__ import annotations

import math

from torchstone.stats.distributions import normal_quantile

SHARE_LEVEL = 0.95


def share_interval(part: float, whole: float, level: float = SHARE_LEVEL) -> tuple[float, float]:
    """Wilson's interval of the share `part` of `whole` independent samples; all of 0–1 for none.

    It has a closed form, so that a page can compute the same figures for what is pointed at.
    """
    if not whole > 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, part / whole))
    z = normal_quantile((1 + level) / 2)
    widened = 1 + z * z / whole
    centre = (share + z * z / (2 * whole)) / widened
    half = z / widened * math.sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole))
    return max(0.0, centre - half), min(1.0, centre + half)
