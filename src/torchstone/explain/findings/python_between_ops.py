"""Python and dispatch between many small ops: what a compiler takes away."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import is_eager, percent, ratio
from torchstone.explain.kinds import fusable_s, is_heavy, op_calls
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import FRONT_END

LEAST_SHARE = 0.15
LEAST_OPS = 8
MOST_GAP_S = 50e-6
"""More Python than this for each op is not the price of calling ops, and no compiler removes it."""
SURE = 0.30
"""Of what is left of the stake when compiled code has been entered."""
ENTRY_S = {"inference": 70e-6, "training": 350e-6}
"""Guards, entry and wrapper of a compiled call, for what is sure. Modules of 1 to 32 parameters
took 40 to 70 µs more than their kernels in inference and 250 to 350 in training (torch 2.13, one
thread)."""
LEAST_ENTRY_S = 6e-6
"""The same at best: a function without parameters took 10, on a core that may be half as quick as
another."""


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
        around = interpreter + (ledger.share("dispatch") + ledger.share("autograd")) * wall
        # Compiled code calls a library as eager code does, through Python and the dispatcher.
        stake = around * _light(ledger)
        sure = stake - ENTRY_S.get(ledger.arm.mode, max(ENTRY_S.values()))
        if sure < LEAST_SHARE * wall:
            return None
        most = around + fusable_s(ledger) + ledger.share("allocator") * wall
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Python and dispatch between small ops",
            evidence=(
                f"{percent(around / wall)} of the step goes into Python and dispatch around "
                f"{calls:.0f} op calls"
            ),
            advice=(
                f"torch.compile removes at most this much, and {percent(fusable_s(ledger) / wall)} "
                "in small kernels that it can fuse"
            ),
            at_stake_s=stake,
            time_ratio=ratio(ledger, min(most, wall - LEAST_ENTRY_S), SURE * sure),
            remedy=Remedy(variant="inductor"),
        )


def _light(ledger: Ledger) -> float:
    """The share of the ops' front end that is not in front of a library's work."""
    front = sum(op.front_s for op in ledger.ops)
    return 1 - sum(op.front_s for op in ledger.ops if is_heavy(op)) / front if front else 0.0


PYTHON_BETWEEN_OPS = PythonBetweenOps()
