"""Runs with a known truth: every case has its own times, and changes are planted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    GitState,
    Method,
    Outcome,
    PlannedCase,
    Run,
    RunView,
    Verdict,
)
from torchstone.track import Side, side_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Plant:
    """What was done to a case: relative changes of times (0.05 is 5 % longer) and of costs."""

    baseline: float = 0.0
    arm: float = 0.0
    compile: float = 0.0
    memory: float = 0.0
    outcome: Outcome = Outcome.OK


def keys(count: int = 40, **parts: Any) -> list[CaseKey]:
    made = CaseKey("timm", "", "small", "inference", "fp32", "inductor", threads=1)
    return [replace(made, model=f"model{i:02d}", **parts) for i in range(count)]


def figures(
    key: CaseKey,
    rng: random.Random,
    plant: Plant | None = None,
    drift: float = 0.0,
    error: float = 0.004,
    processes: int = 4,
    session: float = 0.006,
) -> CaseMetrics:
    """One case of one run. Its truth comes from its key, so two runs share it.

    `error` is the true standard error of the log speed-up, `session` how much a baseline's time
    differs between two runs beside the machine's `drift`.
    """
    plant = plant or Plant()
    if plant.outcome is not Outcome.OK:
        return CaseMetrics(key, plant.outcome, "first call: it died", key.variant)
    truth = random.Random(f"{key.suite}{key.model}{key.mode}")
    baseline, speedup = math.log(truth.uniform(2e6, 3e8)), truth.gauss(0.2, 0.15)
    cold, peak = truth.uniform(3e9, 40e9), truth.uniform(1e8, 9e8)
    speedup += math.log1p(plant.baseline) - math.log1p(plant.arm)
    logs = [speedup + rng.gauss(0.0, error * math.sqrt(processes)) for _ in range(processes)]
    mean = sum(logs) / processes
    spread = sum((log - mean) ** 2 for log in logs) / max(1, processes - 1)
    baseline += math.log1p(drift) + math.log1p(plant.baseline) + rng.gauss(0.0, session)
    half = 3.18 * math.sqrt(spread / processes)
    return CaseMetrics(
        key=key,
        outcome=Outcome.OK,
        speedup=math.exp(mean),
        interval=(math.exp(mean - half), math.exp(mean + half)),
        log_error=math.sqrt(spread / processes) if processes > 1 else None,
        log_freedom=processes - 1.0 if processes > 1 else None,
        verdict=Verdict.FASTER,
        base_ns=math.exp(baseline),
        new_ns=math.exp(baseline - mean),
        compile_cold_ns=round(cold * (1 + plant.compile) * (1 + drift) * _noise(rng, 0.02)),
        compile_warm_ns=round(0.2 * cold * (1 + drift) * _noise(rng, 0.02)),
        base_tensor_bytes=round(peak * _noise(rng, 0.003)),
        new_tensor_bytes=round(0.9 * peak * (1 + plant.memory) * _noise(rng, 0.003)),
        replicates=processes,
        command=("torchstone", "bench", f"timm:{key.model}@small"),
    )


def _noise(rng: random.Random, size: float) -> float:
    return math.exp(rng.gauss(0.0, size))


def run(plan: list[CaseKey], run_id: str = "run-base", **changes: Any) -> Run:
    made = Run(
        id=run_id,
        created="2026-11-15T02:00:00+00:00",
        command=("torchstone", "run"),
        plan=tuple(PlannedCase(key, f"timm:{key.model}@small") for key in plan),
        machine_id="machine-one",
        machine="Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz",
        torch="2.13.0+cpu",
        git=GitState(COMMIT, "main"),
        tier="standard",
        method=Method(20.0, 0.01, 0.02, 0, 60.0, 600.0, replicates=4, estimator="floor"),
        version="0.1.0",
    )
    return replace(made, **changes)


def view(
    seed: int = 0,
    plan: list[CaseKey] | None = None,
    plants: Mapping[str, Plant] | None = None,
    run_id: str = "run-base",
    changes: Mapping[str, Any] | None = None,
    **measuring: Any,
) -> RunView:
    """A run; `plants` are by model."""
    plan, rng = keys() if plan is None else plan, random.Random(seed)
    planted = plants or {}
    cases = [figures(key, rng, planted.get(key.model), **measuring) for key in plan]
    return RunView(run(plan, run_id, **(changes or {})), tuple(cases))


def side(*arguments: Any, **options: Any) -> Side:
    return side_of(view(*arguments, **options))


def two(
    plants: Mapping[str, Plant] | None = None, seed: int = 0, **options: Any
) -> tuple[Side, Side]:
    """A base run, and a new one with what was planted; `drift` is the new run's."""
    drift = options.pop("drift", 0.0)
    base = side(2 * seed + 1, **options)
    return base, side(2 * seed + 2, plants=plants, run_id="run-new", drift=drift, **options)


def changed(of: Side, function: Callable[[CaseMetrics], CaseMetrics]) -> Side:
    """The side with every case changed."""
    return replace(of, cases=tuple(map(function, of.cases)))
