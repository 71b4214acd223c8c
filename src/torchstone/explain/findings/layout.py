"""Copies that only change how data lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.explain.kinds import IMAGES, has_convolutions, moves_data
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import ABSTRACTION

CHANNELS_LAST = "channels_last"
LEAST_SHARE = 0.05
SURE, MOST = 0.2, 2.0


@dataclass(frozen=True)
class Layout:
    """For clones and contiguous copies; a cast changes the values, not how they lie."""

    name: str = "layout-conversions"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Time in copies, with the pages they map."""
        copies = moves_data(ledger)
        stake = sum(op.kernel_s for op in copies)
        if stake < LEAST_SHARE * ledger.wall_s:
            return None
        given = ledger.facts.get(IMAGES) == CHANNELS_LAST
        images = has_convolutions(ledger.ops) and not given
        names = ", ".join(f"{op.name} ×{op.calls:.0f}" for op in copies[:3])
        return Prediction(
            name=self.name,
            level=ABSTRACTION,
            title="Layout conversions and copies",
            evidence=f"{percent(stake / ledger.wall_s)} of the step only moves data: {names}",
            advice=(
                "keep model and inputs in channels_last"
                if images
                else "make the data once in the layout that its readers want, outside the step"
            ),
            at_stake_s=stake,
            time_ratio=ratio(ledger, MOST * stake, SURE * stake),
            remedy=Remedy(around=CHANNELS_LAST) if images else Remedy(),
            why_not="" if images else "which copy is needless only its author knows",
        )


LAYOUT = Layout()
