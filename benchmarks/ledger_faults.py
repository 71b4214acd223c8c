"""Ten planted inefficiencies; the finding that should name each is in the table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

CORES = len(os.sched_getaffinity(0))
HERE = "benchmarks/ledger_faults.py"


@dataclass(frozen=True)
class Planted:
    """A target, how it is run, and the finding that should name what is wrong with it."""

    target: str
    finding: str
    mode: str = "inference"
    threads: int | None = 1
    cores: int = 1
    """That it takes to show."""


class ManySmallOps(nn.Module):
    """Python and dispatch around kernels with nothing to do."""

    def forward(self, x: Any) -> Any:
        for _ in range(40):
            x = torch.sin(x) * 1.01 + 0.01
        return x


def make_small_ops() -> Any:
    return ManySmallOps(), (torch.randn(128),)


class Chain(nn.Module):
    """Pointwise kernels that pass their data through memory."""

    def forward(self, x: Any) -> Any:
        for _ in range(6):
            x = torch.relu(x + 0.1) * 0.9
        return x


def make_chain() -> Any:
    return Chain(), (torch.randn(1 << 20),)


class Fresh(nn.Module):
    """Large temporaries, new in every step."""

    def forward(self, x: Any) -> Any:
        return ((x + 1) * (x + 2)).sum()


def make_fresh_memory() -> Any:
    return Fresh(), (torch.randn(4 << 20),)


class Litter(nn.Module):
    """Makes cyclic garbage beside many living containers."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = [[number] for number in range(200_000)]

    def forward(self, x: Any) -> Any:
        for _ in range(3000):
            pair: list[Any] = []
            pair.append(pair)
        return x + 1


def make_litter() -> Any:
    return Litter(), (torch.randn(64),)


_RANDOM = torch.Generator().manual_seed(0)
_WEIGHTS = [torch.randn(8, 8, generator=_RANDOM).requires_grad_() for _ in range(40)]
_GIVEN = torch.randn(8, 8, generator=_RANDOM)


def grad_left_on() -> Any:
    value = _GIVEN
    for weight in _WEIGHTS:
        value = torch.tanh(value * weight)
    return value.detach()


class Deep(nn.Module):
    """Many small layers."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def make_slow_optimizer() -> Any:
    from torchstone.workloads import Workload

    def optimizer(parameters: Any) -> Any:
        return torch.optim.AdamW(parameters, lr=1e-4, foreach=False)

    return Workload(Deep(24, 16), (torch.randn(4, 16),), optimizer=optimizer)


class Scaled(nn.Module):
    """Small ops with weights of their own: training makes three of each."""

    def __init__(self, layers: int = 32, width: int = 128) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        for scale in self.scales:
            x = torch.sin(x * scale) + 0.01
        return x


def make_small_training() -> Any:
    return Scaled(), (torch.randn(128),)


class Converting(nn.Module):
    """Asks for one layout while everything comes in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(64, 64, 1).to(memory_format=torch.channels_last) for _ in range(4)
        )

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x.contiguous(memory_format=torch.channels_last)
            x = torch.relu(layer(x))
        return x


class Turning(nn.Module):
    """A layout conversion for every convolution, because its input comes in the other layout."""

    def __init__(self) -> None:
        super().__init__()
        self.convert = Converting()

    def forward(self, x: Any) -> Any:
        total = x.new_zeros(())
        for _ in range(4):
            total = total + x.contiguous(memory_format=torch.channels_last).sum()
        return total + self.convert(x).sum()


def make_layout() -> Any:
    return Turning(), (torch.randn(4, 64, 48, 48),)


class Products(nn.Module):
    """Work for more cores than one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1024, 1024))

    def forward(self, x: Any) -> Any:
        return x @ self.weight @ self.weight


def make_one_thread() -> Any:
    return Products(), (torch.randn(512, 1024),)


class Sharing(nn.Module):
    """Kernels just large enough to be shared, by twice as many threads as there are cores."""

    def forward(self, x: Any) -> Any:
        for _ in range(60):
            x = torch.neg(x)
        return x


def make_crowded() -> Any:
    return Sharing(), (torch.randn(40_000),)


PLANTED: dict[str, Planted] = {
    "small-ops": Planted(f"{HERE}:make_small_ops", "python-between-ops"),
    "chain": Planted(f"{HERE}:make_chain", "unfused"),
    "fresh-memory": Planted(f"{HERE}:make_fresh_memory", "allocations"),
    "litter": Planted(f"{HERE}:make_litter", "garbage-collection"),
    "grad-left-on": Planted(f"{HERE}:grad_left_on()", "grad-in-inference"),
    "slow-optimizer": Planted(f"{HERE}:make_slow_optimizer", "optimizer", mode="training"),
    "small-training": Planted(f"{HERE}:make_small_training", "python-between-ops", "training"),
    "layout": Planted(f"{HERE}:make_layout", "layout-conversions"),
    "one-thread": Planted(f"{HERE}:make_one_thread", "idle-cores", cores=2),
    "crowded": Planted(f"{HERE}:make_crowded", "thread-pool", threads=2 * CORES, cores=2),
}
