"""Compiled code that is left and entered again, or compiled again and again."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import NOT_PREDICTED, percent, ratio
from torchstone.records import Ledger, Prediction
from torchstone.records.ledger import FRONT_END

LEAST_SHARE = 0.02


@dataclass(frozen=True)
class GraphBreaks:
    """For compiled arms."""

    name: str = "graph-breaks"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Breaks, and what entering compiled code again costs; not the Python that runs there."""
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
                f"compiled code is left at {places(len(ledger.breaks))}; leaving and entering it "
                f"takes {percent(share)} of the step, the Python in between apart"
            ),
            advice="move what breaks the graph out of the compiled function",
            at_stake_s=stake,
            time_ratio=ratio(ledger, 1.5 * stake, 0.3 * stake),
            places=ledger.breaks,
            why_not="only a change of the code removes a break",
        )


@dataclass(frozen=True)
class Recompiles:
    """For compiled arms whose inputs change.

    What goes is the time between steps in which the compiler runs. The ledger is of steady steps
    and has none of it, so nothing is predicted of them, and there is nothing to test.
    """

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
            time_ratio=NOT_PREDICTED,
            places=ledger.recompiles,
            why_not=(
                "steady steps stay as long as they are; `torchstone bench --vs "
                f"{ledger.arm.variant}+dynamic` measures it under changing shapes"
            ),
        )


def places(count: int) -> str:
    """`1 place`, `3 places`: how often code passes there in a step is not counted."""
    return f"{count} place{'' if count == 1 else 's'}"


GRAPH_BREAKS = GraphBreaks()
RECOMPILES = Recompiles()
