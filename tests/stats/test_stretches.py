"""Stretches of one process as replicates: intervals keep their promise when time is correlated."""

from __future__ import annotations

import numpy as np
import pytest

from torchstone.stats import ratio

from .synthetic import from_turns, turn

STRETCHES, ROUNDS = 4, 12
TRIALS = 100


def levels(rng: np.random.Generator, count: int, correlation: float, sd: float) -> np.ndarray:
    """An AR(1) series of that standard deviation: the machine's slow changes."""
    found = rng.normal(0.0, sd, count)
    found[1:] *= np.sqrt(1 - correlation**2)
    for place in range(1, count):
        found[place] += correlation * found[place - 1]
    return found


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("estimator", ["pairs", "low1"])
def test_intervals_over_stretches_hold_the_ratio(estimator: str, correlation: float) -> None:
    """Both arms drift together by 10 %; each has correlated noise of its own of 1 %."""
    rng, count, held = np.random.default_rng(7), STRETCHES * ROUNDS, 0
    per_turn = 1 if estimator == "pairs" else 20
    for _ in range(TRIALS):
        drift = levels(rng, count, 0.95, 0.10)
        arms = []
        for name, step in (("base", 20e6), ("new", 21e6)):
            own = drift + levels(rng, count, correlation, 0.01)
            made = []
            for place, level in enumerate(own):
                noise = np.abs(rng.normal(0.0, 0.005, per_turn))
                wall = np.rint(step * np.exp(level + noise)).astype(int).tolist()
                made.append(turn(place // ROUNDS, place, wall))
            arms.append(from_turns(name, made))
        low, high = ratio(arms[0], arms[1], estimator).interval
        held += low <= 1.05 <= high
    # Rounds that hang together over most of a stretch take some of the promise.
    assert held / TRIALS >= (0.92 if correlation < 0.8 else 0.87)
