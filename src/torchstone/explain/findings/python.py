"""Python around the ops, and waiting: what a compiler, an optimizer or other code takes away."""

from __future__ import annotations

from torchstone.explain.findings.base import Finding, finding, predict
from torchstone.explain.passes.report import (
    OPTIMIZER_FILE,
    fusable_s,
    is_heavy,
    op_calls,
    updates_fused,
)
from torchstone.records import Ledger, Prediction, Remedy
from torchstone.records.format import percent
from torchstone.records.ledger import FRONT_END, OFF_CPU, PYTHON

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
WITH_FUSED = ("adagrad", "adam", "adamw", "sgd")
"""Files of `torch.optim` whose optimizers take `fused` (torch 2.13)."""


@finding("python-between-ops", FRONT_END, "Python and dispatch between small ops")
def python_between_ops(ledger: Ledger) -> Prediction | None:
    """Interpreter, dispatch and autograd bookkeeping of an eager step of many ops."""
    calls, wall = op_calls(ledger), ledger.wall_s
    if not ledger.arm.is_eager or calls < LEAST_OPS:
        return None
    interpreter = min(ledger.share("interpreter") * wall, calls * MOST_GAP_S)
    around = interpreter + (ledger.share("dispatch") + ledger.share("autograd")) * wall
    # Compiled code calls a library as eager code does, through Python and the dispatcher.
    stake = around * _light(ledger)
    sure = stake - ENTRY_S.get(ledger.arm.mode, max(ENTRY_S.values()))
    if sure < LEAST_SHARE * wall:
        return None
    kernels = fusable_s(ledger)
    most = around + kernels + ledger.share("allocator") * wall
    return predict(
        ledger,
        f"{percent(around / wall)} of the step goes into Python and dispatch around {calls:.0f} op "
        "calls",
        f"torch.compile removes at most this much, and {percent(kernels / wall)} in small kernels "
        "that it can fuse",
        stake,
        gain=(SURE * sure, min(most, wall - LEAST_ENTRY_S)),
        remedy=Remedy(variant="inductor"),
    )


def _light(ledger: Ledger) -> float:
    """The share of the ops' front end that is not in front of a library's work."""
    front = sum(op.front_s for op in ledger.ops)
    return 1 - sum(op.front_s for op in ledger.ops if is_heavy(op)) / front if front else 0.0


@finding("garbage-collection", PYTHON, "Garbage collection", least=0.03)
def garbage_collection(ledger: Ledger) -> Prediction | None:
    """CPython's cyclic collector at work in every step."""
    share = ledger.share("collector")
    stake = share * ledger.wall_s
    return predict(
        ledger,
        f"the collector runs {percent(share)} of the step",
        "call gc.freeze() after building, and raise gc.set_threshold, or make fewer containers in "
        "each step",
        stake,
        gain=(0.5 * stake, 1.15 * stake),
        remedy=Remedy(technique="gc_freeze"),
    )


@finding("grad-in-inference", FRONT_END, "Autograd in inference", least=0.03)
def grad_in_inference(ledger: Ledger) -> Prediction | None:
    """Autograd's share of inference that left gradients on."""
    share = ledger.share("autograd")
    stake = share * ledger.wall_s
    if ledger.arm.mode != "inference":
        return None
    return predict(
        ledger,
        f"{percent(share)} of the step makes autograd nodes that nobody uses",
        "run it under torch.no_grad() or torch.inference_mode()",
        stake,
        # Nodes must be freed too, and the allocator cannot reuse what they hold meanwhile.
        gain=(0.2 * stake, 2.5 * stake),
        remedy=Remedy(technique="no_grad"),
    )


@finding("optimizer", FRONT_END, "Optimizer overhead", least=0.05)
def optimizer(ledger: Ledger) -> Prediction | None:
    """An optimizer that walks its parameters one by one in Python, unless it is fused already."""
    if updates_fused(ledger.ops):
        return None
    name, share = ledger.facts.get(OPTIMIZER_FILE, ""), ledger.share("optimizer")
    fusable = not name or name in WITH_FUSED
    advice = "use its fused implementation (fused=True)"
    if not fusable:
        advice = "use an optimizer with a fused implementation (Adam, AdamW, SGD, Adagrad)"
    stake = share * ledger.wall_s
    # The ops that it calls one by one are dispatched too, and their kernels are small; neither is
    # in its line, and a fused one has them no more.
    most = stake + ledger.share("dispatch") * ledger.wall_s + fusable_s(ledger) / 2
    return predict(
        ledger,
        f"{percent(share)} of the step is the optimizer's own Python",
        advice if name else f"{advice}, if it has one",
        stake,
        gain=(0.2 * stake, most),
        remedy=Remedy(technique="fused_optimizer") if fusable else None,
        why_not="" if fusable else f"the one in use (torch.optim.{name}) has none",
    )


# Time in which the step does nothing: it loads, reads, sleeps, or waits for another thread.

LEAST_WAIT = 0.10
SURE_OF_WAIT, MOST_OF_WAIT = 0.3, 1.1


def _waiting(
    name: str,
    level: int,
    title: str,
    evidence: str,
    advice: str,
    why_not: str = "only a change of the code can do it",
    line: str = "",
) -> Finding:
    """One line of the ledger that no setting of ours makes shorter."""

    def look(ledger: Ledger) -> Prediction | None:
        found = ledger.line(line or name)
        if found is None:
            return None
        where = ""
        if found.parts and found.parts[0].note:
            where = f", most of it in {found.parts[0].name} called from {found.parts[0].note}"
        said = f"{percent(found.share)} of the step {evidence}{where}"
        gain = (SURE_OF_WAIT * found.seconds, MOST_OF_WAIT * found.seconds)
        return predict(ledger, said, advice, found.seconds, gain, why_not=why_not)

    return Finding(name, level, title, LEAST_WAIT, look)


data_loading = _waiting(
    "data-loading",
    PYTHON,
    "Waiting for data",
    "waits for the data loader",
    "load ahead: more workers (num_workers), a larger prefetch_factor, or cheaper samples",
    "how data are loaded is up to the target",
    line="loading",
)
files = _waiting(
    "files",
    PYTHON,
    "Files in every step",
    "reads or writes files",
    "read ahead, or keep what is read in memory",
)
network = _waiting(
    "network",
    PYTHON,
    "Network or pipes in every step",
    "waits for a socket or a pipe",
    "ask ahead, in another thread or process",
)
locks = _waiting(
    "locks",
    OFF_CPU,
    "Waiting for another thread",
    "waits for a lock, a queue or an event",
    "hold the lock for less, or hand the work over in larger pieces",
)
sleep = _waiting("sleep", OFF_CPU, "Sleeping", "sleeps", "wait for an event instead")
gil = _waiting(
    "gil",
    PYTHON,
    "Waiting for the interpreter's lock",
    "waits while other threads run Python",
    "move the other threads' work into processes, or use a free-threaded interpreter (3.13t)",
    "another interpreter must be there: compare with `torchstone bench --arm python=...`",
)
