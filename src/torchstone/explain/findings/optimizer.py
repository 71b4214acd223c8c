"""An optimizer that walks its parameters one by one, in Python."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.explain.kinds import OPTIMIZER_FILE, fusable_s, updates_fused
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import FRONT_END

LEAST_SHARE = 0.05
SURE = 0.2
"""The ops that it calls one by one are dispatched too, and their kernels are small; neither is in
its line, and a fused one has them no more."""
WITH_FUSED = ("adagrad", "adam", "adamw", "sgd")
"""Files of `torch.optim` whose optimizers take `fused` (torch 2.13)."""


@dataclass(frozen=True)
class DearOptimizer:
    """For training."""

    name: str = "optimizer"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Its own Python, unless it is fused already."""
        share = ledger.share("optimizer")
        if share < LEAST_SHARE or updates_fused(ledger.ops):
            return None
        name = ledger.facts.get(OPTIMIZER_FILE, "")
        fusable = not name or name in WITH_FUSED
        advice = "use its fused implementation (fused=True)"
        if not fusable:
            advice = "use an optimizer with a fused implementation (Adam, AdamW, SGD, Adagrad)"
        stake = share * ledger.wall_s
        most = stake + ledger.share("dispatch") * ledger.wall_s + fusable_s(ledger) / 2
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Optimizer overhead",
            evidence=f"{percent(share)} of the step is the optimizer's own Python",
            advice=advice if name else f"{advice}, if it has one",
            at_stake_s=stake,
            time_ratio=ratio(ledger, most, SURE * stake),
            remedy=Remedy(around="fused_optimizer") if fusable else Remedy(),
            why_not="" if fusable else f"the one in use (torch.optim.{name}) has none",
        )


OPTIMIZER = DearOptimizer()
