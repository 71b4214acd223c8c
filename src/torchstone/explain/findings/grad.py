"""Autograd keeps books in inference, where nobody will ask for gradients."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import FRONT_END

LEAST_SHARE = 0.03
SURE, MOST = 0.2, 2.5
"""Nodes must be freed too, and what they hold cannot be reused by the allocator meanwhile."""


@dataclass(frozen=True)
class GradInInference:
    """For inference that left gradients on."""

    name: str = "grad-in-inference"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Autograd's share where the mode is inference."""
        share = ledger.share("autograd")
        if ledger.arm.mode != "inference" or share < LEAST_SHARE:
            return None
        stake = share * ledger.wall_s
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Autograd in inference",
            evidence=f"{percent(share)} of the step makes autograd nodes that nobody uses",
            advice="run it under torch.no_grad() or torch.inference_mode()",
            at_stake_s=stake,
            time_ratio=ratio(ledger, MOST * stake, SURE * stake),
            remedy=Remedy(around="no_grad"),
        )


GRAD_IN_INFERENCE = GradInInference()
