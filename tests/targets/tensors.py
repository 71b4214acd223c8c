"""Modules whose tensors are known to the byte: every activation is `UNIT` bytes.

`Chain` holds a parameter and a buffer and has one input: three units that are always there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchstone.workloads import Workload

COUNT = 2**20
UNIT = 4 * COUNT


class Chain(nn.Module):
    """Three sines of a product: eager keeps what each of them needs, a compiler need not."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count))
        self.register_buffer("shift", torch.randn(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight + self.shift).sin().sin().sin()


def _chain(count: int, optimizer: Any) -> Workload:
    def inputs(seed: int) -> tuple[torch.Tensor]:
        return (torch.randn(count, generator=torch.Generator().manual_seed(seed)),)

    return Workload(Chain(count), inputs, loss=lambda out: out.sum(), optimizer=optimizer)


def make() -> Workload:
    return _chain(COUNT, lambda found: torch.optim.SGD(found, lr=1e-3))


def make_adam() -> Workload:
    return _chain(COUNT, lambda found: torch.optim.Adam(found, lr=1e-3, foreach=False))


def make_large() -> Workload:
    return _chain(16 * COUNT, None)


class Dies(Chain):
    """Well behaved until somebody watches: ends its process, or raises."""

    how = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch._C._autograd._profiler_enabled():
            if self.how == "raise":
                raise RuntimeError("do not watch me")
            import os

            os._exit(3)
        return super().forward(x)


def _dies(how: str) -> Any:
    module = Dies(8)
    module.how = how
    return module, (torch.ones(8),)


def make_dies() -> Any:
    return _dies("exit")


def make_raises() -> Any:
    return _dies("raise")
