"""Compiled code that is left and entered again, or compiled again and again."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import FRONT_END

LEAST_SHARE = 0.02


@dataclass(frozen=True)
class GraphBreaks:
    """For compiled arms."""

    name: str = "graph-breaks"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Breaks, and what entering compiled code again costs."""
        if not ledger.breaks:
            return None
        again = len(ledger.breaks) / (len(ledger.breaks) + 1)
        share = ledger.share("breaks") + again * ledger.share("guards")
        if share < LEAST_SHARE:
            return None
        stake = share * ledger.wall_s
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Graph breaks",
            evidence=(
                f"compiled code is left {len(ledger.breaks)} times in a step; leaving and entering "
                f"it takes {percent(share)}"
            ),
            advice="move what breaks the graph out of the compiled function",
            at_stake_s=stake,
            time_ratio=ratio(ledger, 1.5 * stake, 0.3 * stake),
            places=ledger.breaks,
            why_not="only a change of the code removes a break",
        )


@dataclass(frozen=True)
class Recompiles:
    """For compiled arms whose inputs change."""

    name: str = "recompiles"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Compilations after the warm-up."""
        if not ledger.late_compiles or "dynamic" in ledger.arm.variant.split("+"):
            return None
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Compiled again and again",
            evidence=f"it was compiled {ledger.late_compiles} times while it should run",
            advice="compile it once for dynamic shapes",
            at_stake_s=ledger.wall_s * ledger.share("guards"),
            time_ratio=(0.01, 1.0),
            remedy=Remedy(variant=f"{ledger.arm.variant}+dynamic"),
            places=ledger.recompiles,
        )


GRAPH_BREAKS = GraphBreaks()
RECOMPILES = Recompiles()
