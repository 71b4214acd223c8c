"""Ops seen one by one as plain eager code runs them.

An op with a formula is counted by it and not looked into. An op that is nothing but others
(`linear`, where inference mode leaves it whole) is taken apart as eager does, and its parts are
counted instead. So nothing counts twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torchstone.measure.clock import wall_clock
from torchstone.measure.formula_door import Formula
from torchstone.measure.tally import Tally, op_name
from torchstone.measure.traffic import tensors
from torchstone.records import Flops

_SILENT = ("profiler",)
"""Namespaces of ops that only leave marks for others."""


def count_ops(
    step: Callable[[], object],
    formulas: Mapping[str, Formula],
    synchronize: Callable[[], None] | None = None,
) -> Flops:
    """Run `step` once and count what its ops do, those of a backward pass included."""
    tally = Tally(formulas)
    output = tally_ops(step, tally, synchronize)
    return tally.flops(output)


def tally_ops(
    step: Callable[[], object], tally: Tally, synchronize: Callable[[], None] | None = None
) -> object:
    """Run `step` once, every op of it added to the tally; returns what it returns."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Sees each op below autograd and autocast, as the backend is about to run it."""

        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Torch would load its compiler, which takes seconds, to keep it out of here.
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if op_name(func) not in tally.formulas and _is_only_others(func, args):
                with self:
                    return func.decompose(*args, **kwargs)
            started = wall_clock()
            result = func(*args, **kwargs)
            if synchronize is not None:
                synchronize()
            took = wall_clock() - started
            if getattr(func, "namespace", "") not in _SILENT:
                tally.add(func, args, kwargs, result, took)
            return result

    with Counting():  # type: ignore[no-untyped-call]
        return step()


def _is_only_others(func: Any, args: tuple[Any, ...]) -> bool:
    """Implemented for every device by other ops alone, and its operands are plain tensors."""
    from torch._C import DispatchKey

    has_kernel = getattr(func, "has_kernel_for_dispatch_key", None)
    if has_kernel is None or not has_kernel(DispatchKey.CompositeImplicitAutograd):
        return False
    return not any(tensor.is_nested or tensor.is_sparse for tensor in tensors(args))
