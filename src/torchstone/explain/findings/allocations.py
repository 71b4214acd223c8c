"""Memory that each step takes fresh from the system, page by page, and gives back."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.explain.kinds import figure
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import BACK_END

LEAST_SHARE = 0.03
LEAST_FAULTS = 32
SURE, MOST = 0.25, 1.7
"""Giving pages back costs too, and is not counted; caches stay warm with pages that are kept."""
KEEP_IT = (
    "let the program keep its memory (MALLOC_MMAP_MAX_=0, MALLOC_TRIM_THRESHOLD_=-1, or another "
    "allocator preloaded), or write into buffers that are reused"
)
REUSE = "write into buffers that are reused"
"""Where the allocator keeps its memory already, the step maps its own."""


@dataclass(frozen=True)
class Allocations:
    """For the C library's allocator."""

    name: str = "allocations"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Page faults in every step."""
        faults = figure(ledger, "faults")
        stake = faults * figure(ledger, "fault_ns") / 1e9
        stake = min(stake, ledger.share("allocator") * ledger.wall_s)
        if faults < LEAST_FAULTS or stake < LEAST_SHARE * ledger.wall_s:
            return None
        allocator = ledger.arm.allocator
        return Prediction(
            name=self.name,
            level=BACK_END,
            title="Memory taken fresh in every step",
            evidence=(
                f"{faults:.0f} pages are mapped in each step, about "
                f"{percent(stake / ledger.wall_s)} of it"
            ),
            advice=KEEP_IT if allocator == "default" else REUSE,
            at_stake_s=stake,
            time_ratio=ratio(ledger, MOST * stake, SURE * stake),
            remedy=Remedy(allocator="keep") if allocator == "default" else Remedy(),
            why_not="" if allocator == "default" else f"the allocator is {allocator} already",
        )


ALLOCATIONS = Allocations()
