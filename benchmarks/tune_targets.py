"""Targets of tune_zoo.py: each with one planted inefficiency, beside the same made well by hand."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

from torchstone import Workload


class RowByRow(nn.Module):
    """A Python loop over the batch."""

    def __init__(self, by_row: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.by_row = by_row

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_row:
            return torch.stack([self.net(row) for row in x])
        return self.net(x)


def make_row_by_row() -> Any:
    return RowByRow(True), (torch.randn(64, 64),)


def make_row_by_row_well() -> Any:
    return RowByRow(False), (torch.randn(64, 64),)


class TinyOps(nn.Module):
    """Hundreds of ops on a few numbers each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x  # without it every input would come to the same fixed point
        for _ in range(150):
            x = torch.sin(x) * 0.5 + given
        return x


def make_tiny_ops() -> Any:
    return TinyOps(), (torch.randn(32),)


def make_tiny_ops_well() -> Any:
    return torch.compile(TinyOps()), (torch.randn(32),)


class Convolutions(nn.Module):
    """Convolutions with few channels, which channels-last kernels do faster."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = (3, 32, 32, 32)
        pairs = itertools.pairwise(sizes)
        self.net = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b)) for a, b in pairs)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.net:
            x = nn.functional.max_pool2d(torch.relu(layer(x)), 2)
        return x


def make_nchw() -> Any:
    return Convolutions(), (torch.randn(8, 3, 96, 96),)


def make_nchw_well() -> Any:
    image = torch.randn(8, 3, 96, 96).contiguous(memory_format=torch.channels_last)
    return Convolutions().to(memory_format=torch.channels_last), (image,)


class Deep(nn.Module):
    """Many small layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def _adam(**how: Any) -> Workload:
    return Workload(
        Deep(), (torch.randn(4, 16),), optimizer=lambda p: torch.optim.AdamW(p, lr=1e-4, **how)
    )


def make_loop_adam() -> Workload:
    return _adam(foreach=False)


def make_loop_adam_well() -> Workload:
    return _adam(fused=True)


_WEIGHTS = [torch.full((8, 8), 0.5).requires_grad_() for _ in range(60)]


def grad_left_on() -> torch.Tensor:
    value = torch.ones(8, 8)
    for weight in _WEIGHTS:
        value = torch.tanh(value * weight)
    return value.detach()


def grad_left_on_well() -> torch.Tensor:
    with torch.no_grad():
        return grad_left_on()


def make_matmul() -> Any:
    torch.manual_seed(0)
    return nn.Linear(768, 768), (torch.randn(512, 768),)


def _mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))


def make_float64() -> Any:
    return _mlp().double(), (torch.randn(128, 256, dtype=torch.float64),)


def make_float64_well() -> Any:
    return _mlp(), (torch.randn(128, 256),)


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take a while to make."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, place: int) -> torch.Tensor:
        total = 0.0
        for number in range(4000):
            total += number % 7
        return torch.full((16,), total % 5 + place % 3)


class Loads(nn.Module):
    """A step that waits for its data."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512))
        more: dict[str, Any] = {"persistent_workers": True} if workers else {}
        self.loader = torch.utils.data.DataLoader(
            Slow(), batch_size=32, num_workers=workers, **more
        )
        self.batches: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.batches is None:
            self.batches = iter(self.loader)
        try:
            batch = next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return self.net(batch[:1] * 0 + x)

    def __deepcopy__(self, memo: Any) -> Loads:
        made = Loads(self.loader.num_workers)
        made.load_state_dict(self.state_dict())
        return made


def make_starving() -> Any:
    return Loads(0), (torch.randn(32, 16),)


def make_starving_well() -> Any:
    return Loads(2), (torch.randn(32, 16),)


class Items(nn.Module):
    """Reads a number back from a tensor in every part of a step."""

    def __init__(self, read: bool) -> None:
        super().__init__()
        self.read = read
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x
        for _ in range(100):
            total = total * 1.01
            if self.read:
                self.seen.append(total.sum().item())
        del self.seen[:]
        return total


def make_items() -> Any:
    return Items(True), (torch.randn(256),)


def make_items_well() -> Any:
    return torch.compile(Items(False)), (torch.randn(256),)


class Pointwise(nn.Module):
    """A chain of pointwise ops, each through memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.sigmoid(x) * x + 0.5
        return x


def make_pointwise() -> Any:
    return Pointwise(), (torch.randn(1 << 20),)


def make_pointwise_well() -> Any:
    return torch.compile(Pointwise()), (torch.randn(1 << 20),)


class Normalised(nn.Module):
    """Batch normalisation, whose statistics are computed again in training mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(*(nn.BatchNorm2d(32) for _ in range(6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


_NORMALISED = Normalised()
_NORMALISED_WELL = Normalised().eval()
_IMAGES = torch.randn(8, 32, 48, 48)


def train_mode() -> torch.Tensor:
    with torch.no_grad():
        return _NORMALISED(_IMAGES)


def train_mode_well() -> torch.Tensor:
    with torch.no_grad():
        return _NORMALISED_WELL(_IMAGES)


def finite(model: Any) -> float:
    """The metric of `train_mode`: the share of outputs that are finite."""
    return float(torch.isfinite(model()).float().mean())


class Masked(nn.Module):
    """Attention weights under a mask that is made again in every call."""

    def __init__(self, kept: bool, size: int = 512) -> None:
        super().__init__()
        self.size, self.kept = size, kept
        self.register_buffer("mask", self.make())

    def make(self) -> torch.Tensor:
        rows = torch.arange(self.size)
        near = (rows[:, None] - rows[None, :]).abs() < 64
        return near & (rows[:, None] >= rows[None, :])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = self.mask if self.kept else self.make()
        return x.masked_fill(~mask, -1e9).softmax(-1)


def make_masked() -> Any:
    return Masked(False), (torch.randn(1, 512, 512),)


def make_masked_well() -> Any:
    return Masked(True), (torch.randn(1, 512, 512),)


class Strided(nn.Module):
    """Products of matrices whose rows lie apart."""

    def __init__(self, dense: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        weights = torch.randn(512, 1024)[:, ::2]
        self.weights = [weights.contiguous() if dense else weights for _ in range(4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = torch.tanh(x @ weight * 0.01)
        return x


def make_strided() -> Any:
    return Strided(False), (torch.randn(16, 512),)


def make_strided_well() -> Any:
    return Strided(True), (torch.randn(16, 512),)


class Wide(nn.Module):
    """Pointwise layers over a batch that no cache holds."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def body(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.relu(x * 1.5 - 0.1)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.body(part) for part in x.chunk(self.parts)])


def make_giant_batch() -> Any:
    return Wide(1), (torch.randn(16384, 512),)


def make_giant_batch_well() -> Any:
    return Wide(64), (torch.randn(16384, 512),)


# Where nothing helps.


def make_sort() -> Any:
    return torch.sort, (torch.randn(200_000),)


def make_fft() -> Any:
    return torch.fft.rfft, (torch.randn(64, 4096),)


def make_cholesky() -> Any:
    base = torch.randn(256, 256)
    return torch.linalg.cholesky, (base @ base.T + 256 * torch.eye(256),)


def make_cumsum() -> Any:
    return (lambda x: torch.cumsum(x, 0)), (torch.randn(200_000),)
