"""Python and dispatch between many small ops: what a compiler takes away."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import is_eager, percent, ratio
from torchstone.explain.kinds import fusable_s, op_calls
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import FRONT_END

LEAST_SHARE = 0.15
LEAST_OPS = 8
MOST_GAP_S = 50e-6
"""More Python than this for each op is not the price of calling ops, and no compiler removes it."""
SURE = 0.30
"""Of what is at stake: guards and the entry into compiled code take some of it back."""
ENTRY_S = 25e-6
"""Guards, entry and wrapper of a compiled call: some tens of microseconds where it was tried."""


@dataclass(frozen=True)
class PythonBetweenOps:
    """For eager code."""

    name: str = "python-between-ops"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Interpreter, dispatch and autograd bookkeeping of a step of many ops."""
        calls = op_calls(ledger)
        if not is_eager(ledger) or calls < LEAST_OPS:
            return None
        wall = ledger.wall_s
        interpreter = min(ledger.share("interpreter") * wall, calls * MOST_GAP_S)
        front = (ledger.share("dispatch") + ledger.share("autograd")) * wall
        stake = interpreter + front
        if stake < LEAST_SHARE * wall:
            return None
        most = stake + fusable_s(ledger) + ledger.share("allocator") * wall
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Python and dispatch between small ops",
            evidence=(
                f"{percent(stake / wall)} of the step goes into Python and dispatch around "
                f"{calls:.0f} op calls"
            ),
            advice=(
                f"torch.compile removes at most this much, and {percent(fusable_s(ledger) / wall)} "
                "in small kernels that it can fuse"
            ),
            at_stake_s=stake,
            time_ratio=ratio(ledger, min(most, wall - ENTRY_S), SURE * (stake - ENTRY_S)),
            remedy=Remedy(variant="inductor"),
        )


PYTHON_BETWEEN_OPS = PythonBetweenOps()
