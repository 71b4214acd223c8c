"""Floating-point operations of a step, counted op by op as they run in plain eager code.

Only ops with a formula count, and the record says which share of the step's time they cover. The
formulas are those of `torch.utils.flop_counter`; pass more to `count_ops`. Ops are seen as eager
runs them: nothing is decomposed further to find a formula for its parts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torchstone.measure.built import Phase, build
from torchstone.measure.clock import wall_clock
from torchstone.records import ArmSpec, Flops

MOST_NAMED = 12
MOST_UNCOVERED = 5

Formula = Callable[..., int]
"""From an op's arguments, and its result as `out_val`, to its floating-point operations."""


def count_flops(arm: ArmSpec, phase: Phase) -> Flops | None:
    """Of one step of the plain workload, in the arm's mode and precision; None without torch ops.

    Two steps run, and the second is counted: by then first-touch costs are paid.
    """
    built = build(replace(arm, variant="eager"), phase)
    if built.is_statement or "torch" not in sys.modules:
        return None
    formulas = torch_formulas()
    inputs = built.inputs(arm.seed)
    for _ in range(2):
        phase("counting")
        found = count_ops(lambda: built.call(inputs), formulas, built.device.synchronize)
    return found if found.ops else None


def torch_formulas() -> dict[Any, Formula]:
    """The formulas that torch has registered, by op (`torch.ops.aten.mm`)."""
    from torch.utils.flop_counter import flop_registry

    return dict(flop_registry)


def count_ops(
    step: Callable[[], object],
    formulas: Mapping[Any, Formula],
    synchronize: Callable[[], None] | None = None,
) -> Flops:
    """Run `step` once and count what its ops do, those of a backward pass included."""
    from torch.utils._python_dispatch import TorchDispatchMode

    tally = _Tally(formulas)

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Sees each op below autograd and autocast, as the backend is about to run it."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            started = wall_clock()
            result = func(*args, **kwargs)
            if synchronize is not None:
                synchronize()
            took = wall_clock() - started
            tally.add(getattr(func, "_overloadpacket", func), args, kwargs, result, took)
            return result

    with Counting():  # type: ignore[no-untyped-call]
        step()
    return tally.flops()


class _Tally:
    """Calls, time and operations by op."""

    def __init__(self, formulas: Mapping[Any, Formula]) -> None:
        self.formulas = formulas
        self.calls: Counter[Any] = Counter()
        self.time_ns: Counter[Any] = Counter()
        self.operations: Counter[str] = Counter()

    def add(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, ns: int
    ) -> None:
        self.calls[op] += 1
        self.time_ns[op] += ns
        formula = self.formulas.get(op)
        if formula is not None:
            self.operations[str(op)] += int(formula(*args, **kwargs, out_val=result))

    def flops(self) -> Flops:
        covered = {op for op in self.calls if op in self.formulas}
        total_ns = sum(self.time_ns.values())
        covered_ns = sum(self.time_ns[op] for op in covered)
        dearest = [str(op) for op, _ in self.time_ns.most_common() if op not in covered]
        return Flops(
            total=sum(self.operations.values()),
            by_op=dict(self.operations.most_common(MOST_NAMED)),
            ops=sum(self.calls.values()),
            ops_covered=sum(self.calls[op] for op in covered),
            time_covered=covered_ns / total_ns if total_ns else 0.0,
            uncovered=tuple(dearest[:MOST_UNCOVERED]),
        )
