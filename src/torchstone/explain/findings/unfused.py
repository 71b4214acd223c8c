"""Pointwise kernels that pass their data through memory one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import is_eager, percent, ratio
from torchstone.explain.kinds import fusable, fusable_s
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import BACK_END

LEAST_SHARE = 0.20
LEAST_CALLS = 3
SURE = 0.15


@dataclass(frozen=True)
class Unfused:
    """For eager code."""

    name: str = "unfused"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Kernels that a compiler merges, and the memory between them."""
        stake = fusable_s(ledger)
        calls = sum(op.calls for op in fusable(ledger))
        if not is_eager(ledger) or calls < LEAST_CALLS or stake < LEAST_SHARE * ledger.wall_s:
            return None
        overhead = sum(ledger.share(n) for n in ("dispatch", "autograd", "allocator"))
        most = stake + overhead * ledger.wall_s
        return Prediction(
            name=self.name,
            level=BACK_END,
            title="Small kernels, one after the other",
            evidence=(
                f"{percent(stake / ledger.wall_s)} of the step is in {calls:.0f} kernels that each "
                "read and write all their data"
            ),
            advice="torch.compile merges them; only the first read and the last write remain",
            at_stake_s=stake,
            time_ratio=ratio(ledger, most, SURE * stake),
            remedy=Remedy(variant="inductor"),
        )


UNFUSED = Unfused()
