"""The best of many samples, and how far the usual one lies from it.

On a shared machine noise only ever takes speed away, so the best of many short samples is what the
machine can do, and the median is what its neighbours left of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from torchstone.records import Peak


def best_rate(rates: Iterable[float], template: Peak) -> Peak | None:
    """The template with the highest of the rates; None if none of them is a rate at all."""
    sound = _sound(rates)
    if not sound:
        return None
    best = max(sound)
    spread = (best - median(sound)) / best
    return replace(template, value=best, spread=spread, samples=len(sound))


def best_cost(seconds: Iterable[float], template: Peak) -> Peak | None:
    """The template with the lowest of the costs; None if none of them is a cost at all."""
    sound = _sound(seconds)
    if not sound:
        return None
    best = min(sound)
    spread = (median(sound) - best) / best
    return replace(template, value=best, spread=spread, samples=len(sound))


def _sound(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]
