"""A module that keeps its answer and changes something else, as the environment asks."""

from __future__ import annotations

import os
from typing import Any

import torch

ASKED = "TORCHSTONE_TEST_CHANGE"


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(32, 32)
        change = os.environ.get(ASKED, "")
        if change == "parameters":
            self.unused = torch.nn.Parameter(torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change = os.environ.get(ASKED, "")
        if change == "training":
            self.train()
        if change == "grad_enabled":
            torch.set_grad_enabled(True)
        out: torch.Tensor = self.inner(x)
        if change == "requires_grad":
            out = out.detach().requires_grad_()
        if change == "memory_format":
            out = out.t().contiguous().t()
        return out


def make() -> tuple[torch.nn.Module, Any]:
    return Layer(), (torch.randn(16, 32),)


def other() -> tuple[torch.nn.Module, Any]:
    """The same under another name: another target."""
    return make()
