"""Models with one cause of slowness planted in each (its line is marked), the same models mended,
and healthy ones. Every factory returns `(callable, inputs)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

BATCH, WIDTH, LENGTH = 128, 64, 96
Made = tuple[Any, tuple[Any, ...]]


class BatchLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = []
        for i in range(x.shape[0]):
            rows.append(torch.relu(self.linear(x[i])))  # planted: batch-loop
        return torch.stack(rows)


class Inner(nn.Module):
    """Layers in a loop of their own, which is none over a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class NestedLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(WIDTH)
        for row in x:
            total = total + self.inner(row)  # planted: batch-loop, nested
        return total


class RowsOfNet(nn.Module):
    """Two layers that are called from one line."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.net(row) for row in x])  # planted: batch-loop, net


def _growing(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(0, WIDTH)
    for i in range(64):
        out = torch.cat([out, x[i : i + 1]])  # planted: small-copies, grow
    return out


def _rows_written(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(64, WIDTH)
    for i in range(64):
        out[i] = x[63 - i]  # planted: small-copies
    return out


class Mask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        mask = torch.tril(torch.ones(512, 512)).log()  # planted: same-value
        return y.sum() + mask[:, 0] * x[0, 0]


class MaskKept(Mask):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(512, 512)).log())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        mask: torch.Tensor = self.get_buffer("mask")
        return y.sum() + mask[:, 0] * x[0, 0]


def _twice(x: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(WIDTH)
    for i in range(12):
        total = total + x.softmax(0).sum(0) * i  # planted: same-value, again
    return total


def _items(x: torch.Tensor) -> torch.Tensor:
    total = 0.0
    for i in range(200):
        if x[i, 0].item() > 0:  # planted: item
            total += 1.0
    return torch.full((4,), total) + x[:4, 0]


def _double(x: torch.Tensor) -> torch.Tensor:
    scale = torch.from_numpy(np.full(WIDTH, 0.5))  # planted: float64
    y = x * scale
    return (y.exp() + y.sin()).sum(0)


def _there_and_back(x: torch.Tensor) -> torch.Tensor:
    y = x.to(torch.bfloat16)
    y = y.to(torch.float32)  # planted: cast, back
    return y.sum(0)


class CastWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(512, 512, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.get_buffer("weight").float()  # planted: cast, kept


def _strided(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y).sum()  # planted: strided-input


def _passed_on(x: torch.Tensor) -> torch.Tensor:
    y = x * 2.0 + 1.0
    return nn.functional.layer_norm(y, y.shape[-1:])  # planted: strided-input, passed on


def make_batch_loop() -> Made:
    return BatchLoop().eval(), (torch.randn(BATCH, WIDTH),)


def make_rows_of_net() -> Made:
    return RowsOfNet().eval(), (torch.randn(BATCH, WIDTH),)


def make_batched() -> Made:
    model = BatchLoop().eval()
    return lambda x: torch.relu(model.linear(x)), (torch.randn(BATCH, WIDTH),)


def make_nested_loop() -> Made:
    return NestedLoop().eval(), (torch.randn(BATCH, WIDTH),)


def make_growing() -> Made:
    return _growing, (torch.randn(BATCH, WIDTH),)


def make_rows_written() -> Made:
    return _rows_written, (torch.randn(BATCH, WIDTH),)


def make_mask() -> Made:
    return Mask().eval(), (torch.randn(BATCH, WIDTH),)


def make_mask_kept() -> Made:
    return MaskKept().eval(), (torch.randn(BATCH, WIDTH),)


def make_twice() -> Made:
    return _twice, (torch.randn(2048, WIDTH),)


def make_items() -> Made:
    return _items, (torch.randn(256, WIDTH),)


def make_double() -> Made:
    return _double, (torch.randn(2048, WIDTH),)


def make_there_and_back() -> Made:
    return _there_and_back, (torch.randn(4096, WIDTH),)


def make_cast_weight() -> Made:
    return CastWeight().eval(), (torch.randn(4, 512),)


def make_strided() -> Made:
    return _strided, (torch.randn(1024, 1024).t(), torch.randn(1024, 1024))


def make_passed_on() -> Made:
    return _passed_on, (torch.randn(1024, 1024).t(),)


def make_contiguous() -> Made:
    return _strided, (torch.randn(1024, 1024), torch.randn(1024, 1024))


# Healthy ones: nothing is to be found in them.


class Recurrent(nn.Module):
    """Each turn of its loop needs the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[1], WIDTH)
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
        return h


class Experts(nn.Module):
    """Slices of one tensor, each with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [expert(x[i * 8 : i * 8 + 8]) for i, expert in enumerate(self.experts)]
        return torch.cat(parts)


def make_mlp() -> Made:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
    return model.eval(), (torch.randn(64, 256),)


def make_transformer() -> Made:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    return model.eval(), (torch.randn(8, LENGTH, WIDTH),)


def make_conv() -> Made:
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    return model.eval(), (torch.randn(8, 3, 32, 32),)


def make_recurrent() -> Made:
    return Recurrent().eval(), (torch.randn(32, 8, WIDTH),)


def make_experts() -> Made:
    return Experts().eval(), (torch.randn(96, WIDTH),)


def make_training() -> Made:
    """A whole training step of one's own."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.1)) * 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(32, WIDTH), torch.randn(32, WIDTH))


def makes_its_own() -> torch.Tensor:
    """Given no tensor, and with a gradient left on."""
    return torch.ones(3, requires_grad=True) * 2
