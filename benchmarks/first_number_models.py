"""The models that `first_number.py` measures. The file imports torch at its top, as people do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Pair = tuple[Any, tuple[Any, ...]]


def _make(size: int, calls: int, more: int = 0) -> Pair:
    """`calls` products of a matrix with itself, kept small by a tanh; `more` lead to nothing."""
    x = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) / math.sqrt(size)

    def step(y: Any) -> Any:
        rest = y
        for _ in range(more):
            rest = torch.tanh(x @ rest)
        for _ in range(calls):
            y = torch.tanh(x @ y)
        return y

    return step, (x.clone(),)


def make_1ms() -> Pair:
    """About 1 ms of matrix products on one core."""
    return _make(152, 10)


def make_1ms_more() -> Pair:
    """30 % more."""
    return _make(152, 10, 3)


def make_10ms() -> Pair:
    """About 10 ms."""
    return _make(352, 10)


def make_10ms_more() -> Pair:
    """30 % more."""
    return _make(352, 10, 3)


def make_100ms() -> Pair:
    """About 100 ms."""
    return _make(768, 10)


def make_100ms_more() -> Pair:
    """30 % more."""
    return _make(768, 10, 3)


class Block(nn.Module):
    """Attention and a gated layer, with everything between the products written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.scales = nn.Parameter(torch.ones(2, width))

    def norm(self, x: Any, number: int) -> Any:
        """Root mean square."""
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.scales[number]

    def forward(self, x: Any) -> Any:
        """One block."""
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm(x, 0)).chunk(3, -1)
        )
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, -1e4)
        scores = torch.exp(scores - scores.amax(-1, keepdim=True))
        attended = (scores / scores.sum(-1, keepdim=True)) @ v
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        gate, value = self.up(self.norm(x, 1)).chunk(2, -1)
        gelu = 0.5 * gate * (1 + torch.tanh(0.79788456 * (gate + 0.044715 * gate**3)))
        return x + self.down(gelu * value)


def make_gpt() -> Pair:
    """A small GPT whose norms, gates and rotations are written out: there is much to fuse."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(512, 128), *(Block(128, 4) for _ in range(3)))
    return model.eval(), (torch.randint(0, 512, (4, 192)),)


def build(name: str) -> Callable[[], Any]:
    """The step of a target by name, ready to be called: for the tools it is set beside."""
    function, inputs = globals()[name]()

    def step() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return step
