"""Models with planted faults beside healthy ones, for suites. Torch modules, small."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, Callable[[int], Any]]


class Healthy(nn.Module):
    """A few layers that take about a millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def _inputs(seed: int) -> torch.Tensor:
    return torch.randn(32, 256, generator=torch.Generator().manual_seed(seed))


def healthy() -> Made:
    return Healthy(), _inputs


def healthy_too() -> Made:
    return Healthy(), _inputs


class Faulty(Healthy):
    """Calls `before` on the way in and `after` on the way out."""

    def __init__(
        self,
        before: Callable[[], object] | None = None,
        after: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.before, self.after = before, after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before is not None:
            self.before()
        out = super().forward(x)
        return out if self.after is None else self.after(out)


def segfault() -> Made:
    return Faulty(torch.compiler.disable(lambda: ctypes.string_at(0))), _inputs


def memory_hog() -> Made:
    """Joins the memory group that the test made, and takes more than it allows."""

    def take() -> None:
        Path(os.environ["TEST_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))
        kept = []
        for _ in range(64):
            kept.append(bytearray(os.urandom(1 << 20) * 8))

    return Faulty(torch.compiler.disable(take)), _inputs


def hang() -> Made:
    calls = [0]

    def wait() -> None:
        calls[0] += 1
        if calls[0] > 2:  # the first calls have the time-out of building
            time.sleep(600)

    return Faulty(torch.compiler.disable(wait)), _inputs


def _when_compiled(change: Callable[[torch.Tensor], torch.Tensor]) -> Made:
    def after(out: torch.Tensor) -> torch.Tensor:
        return change(out) if torch.compiler.is_compiling() else out

    return Faulty(after=after), _inputs


def wrong_answer() -> Made:
    return _when_compiled(lambda out: out * 1.01)


def wrong_dtype() -> Made:
    return _when_compiled(lambda out: out.to(torch.bfloat16))


def not_a_number() -> Made:
    return _when_compiled(lambda out: out / (out - out))


def nondeterministic() -> Made:
    def noise(out: torch.Tensor) -> torch.Tensor:
        return out + int.from_bytes(os.urandom(2), "little") / 65536

    return Faulty(after=torch.compiler.disable(noise)), _inputs


def babbles() -> Made:
    """A megabyte on stdout at every build."""
    sys.stdout.write("noise " * 180_000)
    sys.stdout.flush()
    os.write(1, b'\x00\x00\x00\x10{"reply": "lie"}' * 1000)
    return Healthy(), _inputs


def forks() -> Made:
    """A child that outlives its parent."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return Healthy(), _inputs
