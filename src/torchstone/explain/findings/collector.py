"""The garbage collector at work in every step."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import PYTHON

LEAST_SHARE = 0.03
SURE, MOST = 0.5, 1.15


@dataclass(frozen=True)
class Collector:
    """For CPython's cyclic collector."""

    name: str = "garbage-collection"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Its share of the step."""
        share = ledger.share("collector")
        if share < LEAST_SHARE:
            return None
        stake = share * ledger.wall_s
        return Prediction(
            name=self.name,
            level=PYTHON,
            title="Garbage collection",
            evidence=f"the collector runs {percent(share)} of the step",
            advice=(
                "call gc.freeze() after building, and raise gc.set_threshold, or make fewer "
                "containers in each step"
            ),
            at_stake_s=stake,
            time_ratio=ratio(ledger, MOST * stake, SURE * stake),
            remedy=Remedy(around="gc_freeze"),
        )


COLLECTOR = Collector()
