"""A few nights of small runs, some of whose cases fail for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from store_runs import make_figures

from torchstone.records import CaseKey, CaseMetrics, GitState, Outcome, PlannedCase, Run

if TYPE_CHECKING:
    from torchstone.store import Store

VARIANTS = ("inductor", "aot_eager")
MODES = ("inference", "training")
MODELS = ("A", "B", "C")
DAY_S = 86_400.0
FIRST_S = 1_767_225_600.0  # 2026-01-01


def plan() -> tuple[PlannedCase, ...]:
    return tuple(
        PlannedCase(CaseKey(suite, model, "small", mode, "fp32", variant), f"{suite}:{model}@small")
        for suite in ("hf", "timm")
        for model in MODELS
        for mode in MODES
        for variant in VARIANTS
    )


def night_run(
    night: int, branch: str = "main", machine: str = "m1", torch: str = "2.13.0", name: str = ""
) -> Run:
    from datetime import datetime, timezone

    made = datetime.fromtimestamp(FIRST_S + night * DAY_S, timezone.utc)
    return Run(
        id=name or f"n{night:03d}-{branch}-{machine}",
        created=made.isoformat(timespec="seconds"),
        command=("torchstone", "run", "hf", "timm"),
        plan=plan(),
        label=f"night {night}",
        machine_id=machine,
        machine=f"Machine {machine}",
        torch=torch,
        git=GitState(f"{night:04x}" * 10, branch, dirty=bool(night % 2)),
        tier="quick",
    )


def store_night(
    store: Store,
    run: Run,
    failing: Mapping[int, Outcome] | None = None,
    cases: int | None = None,
) -> list[CaseMetrics]:
    """Store a run whose cases pass but for those that are named; only the first so many."""
    failing = failing or {}
    found = []
    for position in range(len(run.plan) if cases is None else cases):
        if position in failing:
            key = run.plan[position].key
            one = CaseMetrics(key, failing[position], "it broke", "inductor")
        else:
            one = replace(make_figures(run, position % 3), key=run.plan[position].key)
        found.append(one)
    store.begin_run(run)
    if found:
        store.add_cases(run.id, None, list(enumerate(found)))
    return found
