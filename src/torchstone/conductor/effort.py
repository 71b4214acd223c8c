"""How much is done for an answer: `--fast`, the usual, `--rigorous`; and what that leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.stats.verdict import EARLY_SHARE

FAST, USUAL, RIGOROUS = "fast", "usual", "rigorous"


@dataclass(frozen=True)
class Effort:
    """What one word stands for. Budget, width and margin are defaults that options replace."""

    budget_s: float = 30.0
    within: float = 0.01
    margin: float = 0.02
    least_processes: int = 4
    most_processes: int = 12
    early_share: float = EARLY_SHARE
    """Of the chance of error, for interim analyses before the last."""
    stops_when_decided: bool = False
    """An interim analysis also ends it where every ratio is clear of the margin, or inside it."""
    forks_short_steps: bool = False
    """Steps below 10 ms are forked from templates too. Layout then varies less, and moves such
    steps by a per cent or two: less than half of the fast margin."""
    slots: int = 2
    """Templates of each kind, where forks are made."""
    checked_calls: int = 4
    """Outputs compared with the reference: one of the pass alone, the others of timed turns."""
    looks_deeper: bool = True
    """Memory of tensors, operations, and whether answers are remembered: passes of their own."""


EFFORTS = {
    FAST: Effort(
        budget_s=5.0,
        within=0.05,
        margin=0.05,
        least_processes=3,
        most_processes=6,
        early_share=0.5,
        stops_when_decided=True,
        forks_short_steps=True,
        slots=1,
        checked_calls=2,
        looks_deeper=False,
    ),
    USUAL: Effort(),
    RIGOROUS: Effort(budget_s=120.0, within=0.005, least_processes=10, most_processes=24),
}
