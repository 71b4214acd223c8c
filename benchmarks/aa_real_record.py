"""Real models, recorded: whole replicates of every condition, through the conductor's own case.

A batch is one case with a fixed number of replicates and as much time for turns as they need, so
the processes, their layout and their turns are those of a real trial; only the stopping is not. A
case has two arms, so that the two calls of a pair are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from aa_journal import Row
from aa_models import MODELS, environment
from aa_ours import encode

from torchstone.conductor import CaseSpec, Settings, run_case
from torchstone.records import ArmSpec, Outcome


@dataclass(frozen=True)
class Setup:
    """What is measured and how, apart from the effect."""

    model: str
    threads: int
    load: bool = False
    together: bool = False
    """Both arms in one process."""
    allocator: str = "keep"

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        where = "one process" if self.together else "a process an arm"
        load = ", loaded" if self.load else ""
        return f"{self.model}, {threads}, {where}, {self.allocator}{load}"


@dataclass(frozen=True)
class Batch:
    """Some replicates of one setup at one effect."""

    setup: Setup
    effect: int
    number: int


def can_be_together() -> bool:
    """Whether the conductor can run both arms in one process."""
    return any(field.name == "together" for field in fields(Settings))


def record_batch(batch: Batch, replicates: int, seconds: float, seed: int) -> Row | None:
    """The samples of base and new; None when interrupted."""
    extra: dict[str, Any] = {"together": True} if batch.setup.together else {}
    if can_be_together() and not extra:
        extra = {"together": False}
    settings = Settings(
        budget_s=replicates * seconds,
        replicates=replicates,
        check_outputs=False,
        seed=seed,
        **extra,
    )
    case = run_case(CaseSpec(arms_of(batch.setup, batch.effect, seed), settings))
    if case.stopped_by == "interrupt":
        return None
    for arm in case.arms:
        if arm.outcome is not Outcome.OK:
            return {"error": f"{arm.arm.name}: {arm.outcome.value}: {arm.detail.message}"}
    return {"raw": [encode(arm) for arm in case.arms], "wall_s": case.elapsed_s}


def arms_of(setup: Setup, effect: int, seed: int) -> tuple[ArmSpec, ArmSpec]:
    """Base and slower arm; they differ in nothing but the number of calls."""
    model = MODELS[setup.model]
    env = environment(setup.model, effect, setup.threads)
    base, new = (
        ArmSpec(
            name=name,
            target=target,
            mode=model.mode,
            threads=setup.threads,
            env=tuple(sorted(env.items())),
            allocator=setup.allocator,
            seed=seed,
        )
        for name, target in zip(("base", "new"), model.arms(), strict=True)
    )
    return base, new
