"""Reasons to doubt a ledger, each a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from torchstone.explain.passes.report import Passes
from torchstone.records import LedgerLine

MOST_REST = 0.05
"""More than a twentieth unexplained, and the ledger does not close."""
MOST_CONTENTION = 0.05
MOST_TRACING = 2.0
"""A step that takes twice its time under the tracer is not the same step."""
MOST_SPREAD = 0.10
MOST_DRIFT = 0.05
"""A core that changes its speed by more between plain and traced steps makes shares rough."""


def doubts(passes: Passes, lines: Sequence[LedgerLine], drift: float = 1.0) -> tuple[str, ...]:
    """What a reader must know before believing the shares."""
    found = []
    by_name = {line.name: line for line in lines}
    rest = by_name["rest"].share
    if abs(rest) > MOST_REST:
        what = "is not explained" if rest > 0 else "is explained twice"
        found.append(f"{abs(rest):.0%} of the step {what}: the passes did not see the same step.")
    crowded = by_name.get("contention")
    if crowded is not None and crowded.share > MOST_CONTENTION:
        found.append(
            f"The thread waited for a core {crowded.share:.0%} of the time: other programs run "
            "here. Shares are rough; look again on a quiet machine."
        )
    tracing = _tracing(passes)
    if tracing > MOST_TRACING:
        found.append(f"Tracing made the step {tracing:.1f} times as long; its cost was taken out.")
    if abs(drift - 1) > MOST_DRIFT:
        found.append(
            f"What was traced had to be scaled by {drift:.2f} to fit the plain steps: the core ran "
            "at another speed, or tracing changed more than its known cost."
        )
    unsteady = [line.title for line in lines if line.spread > MOST_SPREAD]
    if unsteady:
        found.append(f"Not the same from round to round: {', '.join(unsteady)}.")
    if not passes.steady:
        found.append("The step did not become steady in warm-up.")
    if passes.compiled is not None and passes.compiled.late:
        found.append(f"It was compiled again {passes.compiled.late} times while it was looked at.")
    return tuple(found)


def _tracing(passes: Passes) -> float:
    ratios = [
        one.traced.cpu / one.plain.cpu for one in passes.rounds if one.traced and one.plain.cpu
    ]
    return median(ratios) if ratios else 1.0
