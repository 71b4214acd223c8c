"""A training step of known composition: Python is planted in the forward pass, in a node of the
backward pass and in the optimizer, beside matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ledger_parts import OPS, Part, burn, nothing
from torch import nn

SIZE = 320


def training() -> list[Part]:
    """Python three times, and the whole step with nothing planted in it."""
    net, x = Net(nothing), torch.randn(SIZE, SIZE)
    optimizer = Slow(net.parameters(), nothing)

    def bare() -> None:
        optimizer.zero_grad(set_to_none=True)
        net(x).sum().backward()
        optimizer.step()

    return [("interpreter", burn), ("autograd", burn), ("optimizer", burn), (OPS, bare)]


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

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE))
        self.work = work

    def forward(self, x: Any) -> Any:
        self.work()
        return Planted.apply(torch.mm(x, self.weight), self.work)  # type: ignore[no-untyped-call]


def training_step() -> Any:
    from torchstone.workloads import Workload

    def loss(out: Any) -> Any:
        return out.sum()

    inputs = (torch.randn(SIZE, SIZE),)
    return Workload(Net(burn), inputs, loss=loss, optimizer=lambda owned: Slow(owned, burn))
