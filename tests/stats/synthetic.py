"""Made-up measurements with known truth: every kind of noise that the statistics must survive."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from torchstone.records import ArmSpec, Measurement, Noise, Outcome, Replicate, Turn, WarmUp

Floats = npt.NDArray[np.float64]

PROBE_NS = 100_000


@dataclass(frozen=True)
class Model:
    """How a made-up arm behaves; all standard deviations are of the log time.

    `process_sd`: normal spread between processes. `slow_share` and `slow_by`: two-point
    processes, that share of them slower by that much. `turn_sd` and `turn_ar`: an AR(1) series
    of turn levels. `sample_sd`: one-sided sample noise. `burst_share`, `burst_sd` and
    `burst_length`: runs of samples (probes included) slowed by a one-sided log-normal factor.
    `weather_sd` with `weather_seed`: a level of each replicate and turn shared by all arms made
    with that seed.
    """

    step: float = 5e-3
    process_sd: float = 0.0
    slow_share: float = 0.0
    slow_by: float = 0.0
    turn_sd: float = 0.0
    turn_ar: float = 0.0
    sample_sd: float = 0.002
    burst_share: float = 0.0
    burst_sd: float = 0.5
    burst_length: int = 8
    weather_sd: float = 0.0
    weather_seed: int = 0


def measurement(
    name: str = "arm",
    *,
    seed: int = 0,
    replicates: int = 5,
    turns: int = 8,
    per_turn: int = 12,
    loops: int = 1,
    probe_every: int = 1,
    model: Model | None = None,
    outcome: Outcome = Outcome.OK,
    **changes: float,
) -> Measurement:
    """A measurement under `model`; keyword arguments of `Model` change single settings."""
    model = replace(model or Model(), **changes)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    weather = np.random.default_rng(model.weather_seed)
    made: list[Turn] = []
    for r in range(replicates):
        process = rng.normal(0.0, model.process_sd)
        process += np.log1p(model.slow_by) * (rng.random() < model.slow_share)
        levels = process + _ar1(rng, turns, model) + weather.normal(0.0, model.weather_sd, turns)
        slowed = _bursts(rng, (turns, per_turn + 1), model)
        noise = np.abs(rng.normal(0.0, model.sample_sd, (turns, per_turn)))
        logs = levels[:, None] + noise + slowed[:, 1:]
        probes = slowed + np.abs(rng.normal(0.0, 0.005, slowed.shape))
        for t in range(turns):
            wall = np.rint(model.step * 1e9 * loops * np.exp(logs[t])).astype(int)
            probe = np.rint(PROBE_NS * np.exp(probes[t][::probe_every])).astype(int)
            made.append(turn(r, t, wall.tolist(), probe.tolist(), probe_every))
    return from_turns(name, made, loops=loops, outcome=outcome)


def from_turns(
    name: str, turns: list[Turn], *, loops: int = 1, outcome: Outcome = Outcome.OK
) -> Measurement:
    """A measurement of the given turns."""
    return Measurement(
        arm=ArmSpec(name=name, target="model.py:make"),
        outcome=outcome,
        loops=loops,
        turns=tuple(turns),
        replicates=tuple(
            Replicate(index=r, start_ns=1, warm_up=WarmUp(1, (1,), True))
            for r in sorted({t.replicate for t in turns})
        ),
    )


def turn(
    replicate: int,
    index: int,
    wall_ns: list[int],
    probe_ns: list[int] | None = None,
    probe_every: int = 1,
) -> Turn:
    """A turn of the given samples; without probes it gets perfectly quiet ones."""
    if probe_ns is None:
        probe_ns = [PROBE_NS] * (len(wall_ns) // probe_every + 1)
    total = sum(wall_ns)
    return Turn(
        replicate=replicate,
        index=index,
        wall_ns=tuple(wall_ns),
        cpu_ns=tuple(wall_ns),
        probe_ns=tuple(probe_ns),
        probe_every=probe_every,
        first_ns=wall_ns[0] if wall_ns else 0,
        minor_faults=0,
        major_faults=0,
        noise=Noise(wall_ns=total, cpu_ns=total),
    )


def _ar1(rng: np.random.Generator, turns: int, model: Model) -> Floats:
    """Turn levels with standard deviation `turn_sd` and autocorrelation `turn_ar`."""
    shocks = rng.normal(0.0, model.turn_sd, turns)
    levels = np.empty(turns)
    levels[0] = shocks[0]
    for t in range(1, turns):
        kept = np.sqrt(1.0 - model.turn_ar**2)
        levels[t] = model.turn_ar * levels[t - 1] + kept * shocks[t]
    return levels


def _bursts(rng: np.random.Generator, shape: tuple[int, int], model: Model) -> Floats:
    """Log slow-downs in runs of `burst_length` over time, covering `burst_share` of it."""
    size = shape[0] * shape[1]
    blocks = -(-size // model.burst_length)
    hit = rng.random(blocks) < model.burst_share
    slow = np.where(hit, np.abs(rng.normal(0.0, model.burst_sd, blocks)), 0.0)
    shifted = np.roll(np.repeat(slow, model.burst_length), int(rng.integers(model.burst_length)))
    return shifted[:size].reshape(shape)


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share that simulations showed."""
    from scipy.stats import binomtest  # late: other tests look at what is loaded

    low, high = binomtest(int(successes), trials).proportion_ci(level, method="exact")
    return float(low), float(high)
