"""Steps of a known size: 512 MiB at once, or the same work in two halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

BYTES = 512 * 2**20


def _numpy(count: int, value: Any) -> Any:
    return np.full(count // 8, value)[::512].sum()


def _torch(count: int, value: Any) -> Any:
    return torch.full((count // 4,), float(value))[::1024].sum()


def _make(fill: Any, parts: int, example: Any) -> Any:
    def call(x: Any) -> Any:
        return sum(fill(BYTES // parts, x[0]) for _ in range(parts))

    return call, (example,)


def make_numpy() -> Any:
    return _make(_numpy, 1, np.arange(1.0, 9.0))


def make_numpy_halves() -> Any:
    return _make(_numpy, 2, np.arange(1.0, 9.0))


def make_torch() -> Any:
    return _make(_torch, 1, torch.arange(1.0, 9.0))


def make_torch_halves() -> Any:
    return _make(_torch, 2, torch.arange(1.0, 9.0))
