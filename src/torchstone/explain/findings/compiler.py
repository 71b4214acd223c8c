"""What a compiler could fuse, or is kept from: graph breaks, recompiles, copies, small kernels."""

from __future__ import annotations

from dataclasses import replace

from torchstone.explain.findings.base import finding, predict
from torchstone.explain.kinds import (
    IMAGES,
    fusable,
    fusable_s,
    fusable_share,
    has_convolutions,
    moves_data,
)
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.format import count, percent
from torchstone.records.ledger import ABSTRACTION, BACK_END, FRONT_END

CHANNELS_LAST = "channels_last"
LEAST_CALLS = 3
NOT_PREDICTED = (1.0, 1.0)
"""Of a finding whose remedy changes nothing in a steady step: the gain is elsewhere."""


@finding("graph-breaks", FRONT_END, "Graph breaks", least=0.02)
def graph_breaks(ledger: Ledger) -> Prediction | None:
    """Breaks, and what entering compiled code again costs; not the Python that runs there."""
    if not ledger.breaks:
        return None
    again = len(ledger.breaks) / (len(ledger.breaks) + 1)
    share = ledger.share("breaks") + again * ledger.share("guards")
    stake = share * ledger.wall_s
    return predict(
        ledger,
        f"compiled code is left at {count(len(ledger.breaks), 'place')}; leaving and entering it "
        f"takes {percent(share)} of the step, the Python in between apart",
        "move what breaks the graph out of the compiled function",
        stake,
        gain=(0.3 * stake, 1.5 * stake),
        why_not="only a change of the code removes a break",
        places=ledger.breaks,
    )


@finding("recompiles", FRONT_END, "Compiled again and again")
def recompiles(ledger: Ledger) -> Prediction | None:
    """Compilations after the warm-up. What goes is the time between steps in which the compiler
    runs. The ledger is of steady steps and has none of it, so nothing is predicted of them, and
    there is nothing to test."""
    if not ledger.late_compiles or "dynamic" in ledger.arm.modifiers:
        return None
    found = predict(
        ledger,
        f"it was compiled {ledger.late_compiles} times while it should run",
        "compile it once for dynamic shapes",
        ledger.wall_s * ledger.share("guards"),
        gain=(0.0, 0.0),
        why_not=(
            "steady steps stay as long as they are; `torchstone bench --vs "
            f"{ledger.arm.variant}+dynamic` measures it under changing shapes"
        ),
        places=ledger.recompiles,
    )
    return replace(found, time_ratio=NOT_PREDICTED)


@finding("unfused", BACK_END, "Small kernels, one after the other", least=0.20)
def unfused(ledger: Ledger) -> Prediction | None:
    """Pointwise kernels that pass their data through memory one after the other."""
    wall, kernels = ledger.wall_s, fusable_s(ledger)
    # What is merged is never written, so no page is mapped for it either.
    pages = fusable_share(ledger) * ledger.share("allocator") * wall
    calls, stake = sum(op.calls for op in fusable(ledger)), kernels + pages
    if not ledger.arm.is_eager or calls < LEAST_CALLS:
        return None
    most = kernels + sum(ledger.share(n) for n in ("dispatch", "autograd", "allocator")) * wall
    mapped = f", and {percent(pages / wall)} goes into memory for them" * (pages > 0.05 * wall)
    return predict(
        ledger,
        f"{percent(kernels / wall)} of the step is in {calls:.0f} kernels that each read and write "
        f"all their data{mapped}",
        "torch.compile merges them; only the first read and the last write remain",
        stake,
        gain=(0.15 * stake, most),
        remedy=Remedy(variant="inductor"),
    )


@finding("layout-conversions", ABSTRACTION, "Layout conversions and copies", least=0.05)
def layout_conversions(ledger: Ledger) -> Prediction | None:
    """Clones and contiguous copies; a cast changes the values, not how they lie."""
    copies = moves_data(ledger)
    stake = sum(op.kernel_s for op in copies)
    images = has_convolutions(ledger.ops) and ledger.facts.get(IMAGES) != CHANNELS_LAST
    advice = "make the data once in the layout that its readers want, outside the step"
    names = ", ".join(f"{op.name} ×{op.calls:.0f}" for op in copies[:3])
    return predict(
        ledger,
        f"{percent(stake / ledger.wall_s)} of the step only moves data: {names}",
        "keep model and inputs in channels_last" if images else advice,
        stake,
        gain=(0.2 * stake, 2.0 * stake),
        remedy=Remedy(technique=CHANNELS_LAST) if images else None,
        why_not="" if images else "only its author knows which copy is needless",
    )
