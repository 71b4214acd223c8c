"""Do 95 % intervals hold the truth 95 % of the time, whatever the noise? (Seeded simulation.)"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from tests.stats.synthetic import Model, clopper_pearson, measurement
from torchstone.records import Measurement
from torchstone.stats import fit_ratios, process_data, ratio
from torchstone.stats.ratio import PER_EXCESS, STEADY, combine, speed_weights

TRIALS = 200
WANTED = 0.93
MODELS = {
    "normal processes": Model(process_sd=0.01),
    "one-sided bursts": Model(process_sd=0.002, burst_share=0.7),
    "autocorrelated turns": Model(turn_sd=0.02, turn_ar=0.8),
    "slow processes": Model(slow_share=0.2, slow_by=0.05, process_sd=0.001),
}


def trial(
    seed: int, model: Model, slowdown: float = 0.0, turns: int = 5
) -> tuple[Measurement, Measurement]:
    steps = (model.step, model.step * (1.0 + slowdown))
    base, new = (
        measurement(name, seed=2 * seed + i, turns=turns, per_turn=8, model=model, step=step)
        for i, (name, step) in enumerate(zip("ab", steps, strict=True))
    )
    return base, new


@pytest.mark.parametrize("kind", MODELS)
def test_identical_arms(kind: str) -> None:
    covered = {"low1": 0, "median": 0}
    for seed in range(TRIALS):
        for name, fit in fit_ratios(*trial(seed, MODELS[kind]), tuple(covered)).items():
            low, high = fit.interval(0.95)
            covered[name] += low <= 1.0 <= high
    assert min(covered.values()) / TRIALS >= WANTED, covered


def test_a_known_slowdown_is_covered_and_found() -> None:
    """Bursts over half of the time; eight turns, so that nearly every process sees quiet."""
    covered = found = 0
    for seed in range(TRIALS):
        pair = trial(seed, Model(process_sd=0.003, burst_share=0.5), slowdown=0.05, turns=8)
        low, high = ratio(*pair, "low1").interval
        covered += low <= 1.05 <= high
        found += low > 1.0
    assert covered / TRIALS >= WANTED
    assert found / TRIALS >= WANTED


def test_intervals_are_not_merely_wide() -> None:
    """With normal process effects alone the interval misses as often as it says."""
    rng = np.random.default_rng(5)
    logs = rng.normal(0.0, 0.01, (2000, 5))
    missed = 0
    for row in logs:
        low, high = combine([(value, 1e-8) for value in row]).interval(0.95)
        missed += not low <= 1.0 <= high
    low, high = clopper_pearson(missed, len(logs), 0.99)
    assert low <= 0.05 <= high


@pytest.mark.parametrize("replicates", [3, 4, 6])
@pytest.mark.parametrize("between", [0.0, 0.5, 1.0, 3.0, 30.0])
def test_where_the_floor_decides_twice_the_freedom_is_not_too_much(
    replicates: int, between: float
) -> None:
    """Whatever processes differ by beside turns (in variances of the latter), it covers."""
    rng = np.random.default_rng(replicates)
    logs = rng.normal(0.0, 0.01 * math.sqrt(1.0 + between), (3000, replicates))
    within = 1e-4 * rng.chisquare(20, (3000, replicates)) / 20
    fits = [combine(list(zip(a, b, strict=True))) for a, b in zip(logs, within, strict=True)]
    covered = sum(low <= 1.0 <= high for low, high in (fit.interval(0.95) for fit in fits))
    assert clopper_pearson(covered, len(fits), 0.99)[1] >= 0.95
    if between == 0.0:
        assert sum(fit.floored for fit in fits) > len(fits) / 3


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_the_floor_does_not_owe_its_height_to_weights(between: float) -> None:
    """Two replicates that weigh seventeen times as much as three others, for no good reason."""
    rng = np.random.default_rng(3)
    logs = rng.normal(0.0, 0.01 * math.sqrt(1.0 + between), (3000, 5))
    within = 1e-4 * rng.chisquare(20, (3000, 5)) / 20
    weights = [1.0, 1.0, 1 / 17, 1 / 17, 1 / 17]
    fits = [
        combine(list(zip(a, b, strict=True)), weights) for a, b in zip(logs, within, strict=True)
    ]
    covered = sum(low <= 1.0 <= high for low, high in (fit.interval(0.95) for fit in fits))
    assert clopper_pearson(covered, len(fits), 0.99)[1] >= 0.95


@pytest.mark.parametrize("right", [True, False])
def test_an_interval_does_not_owe_its_width_to_weights(right: bool) -> None:
    """Replicates of which some are far noisier, as weighed or not at all; either way it covers."""
    rng = np.random.default_rng(11)
    excess = rng.choice([0.0, 0.01, 0.03, 0.06], (3000, 5))
    spread = np.sqrt(STEADY**2 + (PER_EXCESS * excess) ** 2) if right else np.full((3000, 5), 0.01)
    logs = rng.normal(0.0, 1.0, (3000, 5)) * spread
    covered, weighed, plain = 0, [], []
    for row, slow in zip(logs, excess, strict=True):
        values = [(value, math.nan) for value in row]
        weights = speed_weights([(1e-4, 1e-4 * math.exp(x)) for x in slow])
        fit = combine(values, weights)
        low, high = fit.interval(0.95)
        covered += low <= 1.0 <= high
        weighed.append(abs(fit.centre))
        plain.append(abs(combine(values).centre))
    assert clopper_pearson(covered, len(logs), 0.99)[1] >= 0.95
    if right:
        assert np.mean(weighed) < 0.8 * np.mean(plain)


def test_pooling_samples_over_processes_finds_what_is_not_there() -> None:
    """The contrast: the same data, all samples taken as independent."""
    pooled = hierarchical = 0
    for seed in range(100):
        base, new = trial(seed, MODELS["normal processes"])
        samples = [
            np.concatenate([process_data(m, r).samples for r in range(5)]) for m in (base, new)
        ]
        pooled += mannwhitneyu(*samples, method="asymptotic").pvalue < 0.05
        low, high = ratio(base, new, "median").interval
        hierarchical += not low <= 1.0 <= high
    assert pooled > 60
    assert hierarchical <= 10
