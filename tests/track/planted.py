"""Nights of one suite with planted changes: of compiled, of eager, of both, one that went away, a
spike, a slower machine, a model that is gone and nights without a run."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.show.synthetic_run import key, ok
from torchstone.records import CaseKey, CaseMetrics, GitState, PlannedCase, Run
from torchstone.store import BulkRun, open_store

START = datetime(2026, 1, 1, 3, tzinfo=timezone.utc)
NIGHTS = 60
MODELS = [f"model{number:02d}" for number in range(12)]
COMPILED, EAGER, BOTH, AWAY, SPIKE, GONE, LOUD = MODELS[:7]
SLOWER_FROM, EAGER_FROM, BOTH_FROM, AWAY_FROM, AWAY_TO = 40, 30, 35, 20, 30
MACHINE_FROM = 50
NO_RUNS = range(44, 48)
"""Nights without a run."""
NOISE = 0.01


def case_key(model: str) -> CaseKey:
    return key(model, suite="timm", mode="inference")


def figures(model: str, night: int, machine_from: int = MACHINE_FROM) -> CaseMetrics:
    lot = random.Random(f"{model} {night}")
    own = random.Random(model)
    noise = 5 * NOISE if model == LOUD else NOISE
    eager = own.uniform(5e6, 9e7) * math.exp(lot.gauss(0, noise))
    speedup = own.uniform(1.1, 1.8) * math.exp(lot.gauss(0, noise))
    compiled = eager / speedup
    if model == COMPILED and night >= SLOWER_FROM:
        compiled *= 1.12
    if model == EAGER and night >= EAGER_FROM:
        eager *= 1.15
    if model == BOTH and night >= BOTH_FROM:
        eager, compiled = eager * 1.2, compiled * 1.2
    if model == AWAY and AWAY_FROM <= night < AWAY_TO:
        compiled *= 1.2
    if model == SPIKE and night == 25:
        compiled *= 3.0
    if night >= machine_from:
        eager, compiled = eager * 1.1, compiled * 1.1
    value = eager / compiled
    return ok(case_key(model), value, value * 0.006, base_ns=eager, new_ns=compiled, result_id="")


def night_run(night: int, models: list[str], torch: str = "2.13.0") -> Run:
    return Run(
        id=f"night{night:03d}",
        created=(START + timedelta(days=night)).isoformat(),
        command=("torchstone", "run", "timm"),
        plan=tuple(PlannedCase(case_key(model), f"timm:{model}@small") for model in models),
        label=f"nightly-{night}",
        machine_id="m1",
        machine="Machine 1",
        torch=torch,
        git=GitState(f"{night:02x}" * 20, "main", False),
    )


def planted(path: Path, nights: int = NIGHTS, machine_from: int = MACHINE_FROM) -> Path:
    """The database."""
    made = []
    for night in range(nights):
        if night in NO_RUNS:
            continue
        models = [one for one in MODELS if one != GONE or night < nights - 2]
        cases = [(place, figures(one, night, machine_from)) for place, one in enumerate(models)]
        made.append(BulkRun(night_run(night, models), tuple(cases)))
    with open_store(str(path)) as store:
        store.add_runs_in_bulk(made)
    return path


def moment(night: float) -> float:
    return (START + timedelta(days=night)).timestamp()
