"""Pointwise kernels that pass their data through memory one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import is_eager, percent, ratio
from torchstone.explain.kinds import fusable, fusable_s, fusable_share
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
        wall, kernels = ledger.wall_s, fusable_s(ledger)
        # What is merged is never written, so no page is mapped for it either.
        pages = fusable_share(ledger) * ledger.share("allocator") * wall
        calls, stake = sum(op.calls for op in fusable(ledger)), kernels + pages
        if not is_eager(ledger) or calls < LEAST_CALLS or stake < LEAST_SHARE * wall:
            return None
        most = kernels + sum(ledger.share(n) for n in ("dispatch", "autograd", "allocator")) * wall
        mapped = (
            f", and {percent(pages / wall)} goes into memory for them"
            if pages > 0.05 * wall
            else ""
        )
        return Prediction(
            name=self.name,
            level=BACK_END,
            title="Small kernels, one after the other",
            evidence=(
                f"{percent(kernels / wall)} of the step is in {calls:.0f} kernels that each "
                f"read and write all their data{mapped}"
            ),
            advice="torch.compile merges them; only the first read and the last write remain",
            at_stake_s=stake,
            time_ratio=ratio(ledger, most, SURE * stake),
            remedy=Remedy(variant="inductor"),
        )


UNFUSED = Unfused()
