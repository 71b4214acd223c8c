"""A training step of known composition: Python is planted in the forward pass, in a node of the
backward pass and in the optimizer, beside matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from ledger_parts import Part, burn
from torch import nn

SIZE = 512
"""Of the products: large enough that Python of the step's own (hooks, the loop over parameters), of
which nobody knows the truth and which counts with the ops there, is little beside them."""


def training() -> list[Part]:
    """Python three times; the rest of the step is ops."""
    return [("interpreter", burn), ("autograd", burn), ("optimizer", burn)]


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
