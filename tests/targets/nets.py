"""Small torch modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 8)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.second(self.dropout(torch.tanh(self.first(x))))}


def _inputs(seed: int) -> tuple[torch.Tensor]:
    return (torch.randn(4, 32, generator=torch.Generator().manual_seed(seed)),)


def make() -> Any:
    return Net(), _inputs


def make_dropout() -> Any:
    return Net(0.5), _inputs


class Fragile(Net):
    """Dies of an empty batch, by the operating system's hand."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if not len(x):
            import ctypes

            ctypes.string_at(0)
        return super().forward(x)


def make_fragile() -> Any:
    return Fragile(), (torch.ones(4, 32),)


def make_half() -> Any:
    net = Net()
    return (lambda x: {"logits": net(x)["logits"].bfloat16()}), _inputs


def make_unseeded() -> Any:
    torch.manual_seed(int.from_bytes(__import__("os").urandom(4), "little"))
    return Net(), _inputs


def make_plain() -> Any:
    """A tensor in, a tensor out: what `torch.jit.trace` can take."""
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)), _inputs


def make_norm(momentum: float = 0.1) -> Any:
    """Keeps running statistics; neither its loss nor its gradients depend on them in training."""
    norm = nn.BatchNorm1d(64, momentum=momentum)
    return nn.Sequential(nn.Linear(32, 64), norm, nn.Tanh(), nn.Linear(64, 8)), _inputs


def make_forgetful_norm() -> Any:
    return make_norm(0.5)


class Uncountable(Net):
    """Cannot run under a dispatch mode, as some extensions cannot."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if torch._C._len_torch_dispatch_stack():
            raise RuntimeError("not under a mode, please")
        return super().forward(x)


def make_uncountable() -> Any:
    return Uncountable(), _inputs


class Loud(Net):
    """Gradients that a float16 overflows at the first loss scales."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": 30.0 * super().forward(x)["logits"]}


def make_loud() -> Any:
    return Loud(), _inputs
