"""Compiled code that is left and entered again, or compiled again and again."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import NOT_PREDICTED, is_eager, percent, ratio
from torchstone.explain.kinds import (
    IMAGES,
    fusable,
    fusable_s,
    fusable_share,
    has_convolutions,
    moves_data,
)
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import ABSTRACTION, BACK_END, FRONT_END

COMPILER_LEAST_SHARE = 0.02


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
        if share < COMPILER_LEAST_SHARE:
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


# Pointwise kernels that pass their data through memory one after the other.


UNFUSED_LEAST_SHARE = 0.20
LEAST_CALLS = 3
UNFUSED_SURE = 0.15


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
        if not is_eager(ledger) or calls < LEAST_CALLS or stake < UNFUSED_LEAST_SHARE * wall:
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
            time_ratio=ratio(ledger, most, UNFUSED_SURE * stake),
            remedy=Remedy(variant="inductor"),
        )


UNFUSED = Unfused()


# Copies that only change how data lie in memory.


CHANNELS_LAST = "channels_last"
LAYOUT_LEAST_SHARE = 0.05
LAYOUT_SURE, MOST = 0.2, 2.0


@dataclass(frozen=True)
class Layout:
    """For clones and contiguous copies; a cast changes the values, not how they lie."""

    name: str = "layout-conversions"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Time in copies, with the pages they map."""
        copies = moves_data(ledger)
        stake = sum(op.kernel_s for op in copies)
        if stake < LAYOUT_LEAST_SHARE * ledger.wall_s:
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
            time_ratio=ratio(ledger, MOST * stake, LAYOUT_SURE * stake),
            remedy=Remedy(technique=CHANNELS_LAST) if images else Remedy(),
            why_not="" if images else "which copy is needless only its author knows",
        )


LAYOUT = Layout()
