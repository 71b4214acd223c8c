"""A training step of known composition: Python is planted in the forward pass, in a node of the
backward pass and in the optimizer, beside matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from ledger_parts import Part, burn
from torch import nn

SIZE = 1024
COUNT = 200_000
"""Products and Python are large, so that the Python of the step's own (hooks, calls of modules, the
walk over parameters) and the freeing of its tensors are little beside them (0.4 ms of 4 where
products were of 512): nobody knows the truth of these, and they count with the ops there."""


def training() -> list[Part]:
    """Python three times; the rest of the step is ops."""
    return [(line, partial(burn, COUNT)) for line in ("interpreter", "autograd", "optimizer")]


class Planted(torch.autograd.Function):
    """Its backward node does what it is given to do."""

    @staticmethod
    def forward(ctx: Any, x: Any, work: Callable[[], Any]) -> Any:
        ctx.work = work
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        ctx.work()
        return grad, None


class Slow(torch.optim.SGD):
    """Its step does what it is given to do first."""

    def __init__(self, parameters: Any, work: Callable[[], Any]) -> None:
        super().__init__(parameters, lr=1e-9)
        self.work = work

    def step(self, closure: Any = None) -> Any:
        self.work()
        return super().step(closure)


class Net(nn.Module):
    """One product, and what it is given to do before it and on the way back."""

    def __init__(self, work: Callable[[], Any], back: Callable[[], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE))
        self.work, self.back = work, back

    def forward(self, x: Any) -> Any:
        self.work()
        return Planted.apply(torch.mm(x, self.weight), self.back)  # type: ignore[no-untyped-call]


def training_step(parts: Sequence[Callable[[], Any]]) -> Any:
    """The step with the parts planted in it."""
    from torchstone.workloads import Workload

    forward, backward, update = parts

    def loss(out: Any) -> Any:
        return out.sum()

    return Workload(
        Net(forward, backward),
        (torch.randn(SIZE, SIZE),),
        loss=loss,
        optimizer=lambda owned: Slow(owned, update),
    )
