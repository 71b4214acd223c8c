"""Python and dispatch between many small ops: what a compiler takes away."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import is_eager, percent, ratio
from torchstone.explain.kinds import OPTIMIZER_FILE, fusable_s, is_heavy, op_calls, updates_fused
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.ledger import FRONT_END, PYTHON

PYTHON_BETWEEN_OPS_LEAST_SHARE = 0.15
LEAST_OPS = 8
MOST_GAP_S = 50e-6
"""More Python than this for each op is not the price of calling ops, and no compiler removes it."""
PYTHON_BETWEEN_OPS_SURE = 0.30
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
        if sure < PYTHON_BETWEEN_OPS_LEAST_SHARE * wall:
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
            time_ratio=ratio(
                ledger, min(most, wall - LEAST_ENTRY_S), PYTHON_BETWEEN_OPS_SURE * sure
            ),
            remedy=Remedy(variant="inductor"),
        )


def _light(ledger: Ledger) -> float:
    """The share of the ops' front end that is not in front of a library's work."""
    front = sum(op.front_s for op in ledger.ops)
    return 1 - sum(op.front_s for op in ledger.ops if is_heavy(op)) / front if front else 0.0


PYTHON_BETWEEN_OPS = PythonBetweenOps()


# The garbage collector at work in every step.


COLLECTOR_LEAST_SHARE = 0.03
COLLECTOR_SURE, COLLECTOR_MOST = 0.5, 1.15


@dataclass(frozen=True)
class Collector:
    """For CPython's cyclic collector."""

    name: str = "garbage-collection"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Its share of the step."""
        share = ledger.share("collector")
        if share < COLLECTOR_LEAST_SHARE:
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
            time_ratio=ratio(ledger, COLLECTOR_MOST * stake, COLLECTOR_SURE * stake),
            remedy=Remedy(technique="gc_freeze"),
        )


COLLECTOR = Collector()


# Autograd keeps books in inference, where nobody will ask for gradients.


GRAD_LEAST_SHARE = 0.03
GRAD_SURE, GRAD_MOST = 0.2, 2.5
"""Nodes must be freed too, and what they hold cannot be reused by the allocator meanwhile."""


@dataclass(frozen=True)
class GradInInference:
    """For inference that left gradients on."""

    name: str = "grad-in-inference"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Autograd's share where the mode is inference."""
        share = ledger.share("autograd")
        if ledger.arm.mode != "inference" or share < GRAD_LEAST_SHARE:
            return None
        stake = share * ledger.wall_s
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Autograd in inference",
            evidence=f"{percent(share)} of the step makes autograd nodes that nobody uses",
            advice="run it under torch.no_grad() or torch.inference_mode()",
            at_stake_s=stake,
            time_ratio=ratio(ledger, GRAD_MOST * stake, GRAD_SURE * stake),
            remedy=Remedy(technique="no_grad"),
        )


GRAD_IN_INFERENCE = GradInInference()


# An optimizer that walks its parameters one by one, in Python.


OPTIMIZER_LEAST_SHARE = 0.05
OPTIMIZER_SURE = 0.2
"""The ops that it calls one by one are dispatched too, and their kernels are small; neither is in
its line, and a fused one has them no more."""
WITH_FUSED = ("adagrad", "adam", "adamw", "sgd")
"""Files of `torch.optim` whose optimizers take `fused` (torch 2.13)."""


@dataclass(frozen=True)
class DearOptimizer:
    """For training."""

    name: str = "optimizer"

    def look(self, ledger: Ledger) -> Prediction | None:
        """Its own Python, unless it is fused already."""
        share = ledger.share("optimizer")
        if share < OPTIMIZER_LEAST_SHARE or updates_fused(ledger.ops):
            return None
        name = ledger.facts.get(OPTIMIZER_FILE, "")
        fusable = not name or name in WITH_FUSED
        advice = "use its fused implementation (fused=True)"
        if not fusable:
            advice = "use an optimizer with a fused implementation (Adam, AdamW, SGD, Adagrad)"
        stake = share * ledger.wall_s
        most = stake + ledger.share("dispatch") * ledger.wall_s + fusable_s(ledger) / 2
        return Prediction(
            name=self.name,
            level=FRONT_END,
            title="Optimizer overhead",
            evidence=f"{percent(share)} of the step is the optimizer's own Python",
            advice=advice if name else f"{advice}, if it has one",
            at_stake_s=stake,
            time_ratio=ratio(ledger, most, OPTIMIZER_SURE * stake),
            remedy=Remedy(technique="fused_optimizer") if fusable else Remedy(),
            why_not="" if fusable else f"the one in use (torch.optim.{name}) has none",
        )


OPTIMIZER = DearOptimizer()
