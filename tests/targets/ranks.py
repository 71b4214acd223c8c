"""Targets over ranks: right ones, and ranks that die, hang, are slow or cannot be divided."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import torch
from torch import nn

from torchstone import Workload

WIDTH, BATCH = 32, 8
FIRST_STEPS = 4
"""Calls before a fault: the gradients have been compared by then."""


class Faulty(nn.Module):
    """Does something on rank 1 of several, once it has been called some times."""

    def __init__(self, fault: Callable[[], None]) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.fault, self.calls = fault, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if os.environ.get("RANK") == "1" and self.calls > FIRST_STEPS:
            self.fault()
        made: torch.Tensor = self.linear(x)
        return made


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(1000)


def dawdle() -> None:
    time.sleep(0.05)


def killed() -> Workload:
    return Workload(Faulty(die), (torch.randn(BATCH, WIDTH),))


def hung() -> Workload:
    return Workload(Faulty(hang), (torch.randn(BATCH, WIDTH),))


def slow() -> Workload:
    return Workload(Faulty(dawdle), (torch.randn(BATCH, WIDTH),))


def closed_over() -> Workload:
    labels = torch.randn(BATCH, WIDTH)
    return Workload(
        nn.Linear(WIDTH, WIDTH),
        (torch.randn(BATCH, WIDTH),),
        loss=lambda output: (output - labels.to(output.dtype)).square().mean(),
    )


def summed() -> Workload:
    return Workload(
        nn.Linear(WIDTH, WIDTH),
        (torch.randn(BATCH, WIDTH),),
        loss=lambda output: output.square().sum(),
    )
