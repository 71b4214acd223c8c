r"""Fused against unfused arithmetic: a * b + c, then * d + e, on a quarter million numbers.

    torchstone bench examples/fusion.py:make_unfused examples/fusion.py:make_fused \
        --threads 1
    torchstone bench examples/fusion.py:make_unfused --vs inductor --threads 1

Unfused, each of the four operations reads and writes the whole memory once. `torch.addcmul` does
two of them in one pass. `torch.compile` (the second command) makes one loop of all four.

Every operation takes memory for its result. With `--allocator default` it depends on the process
how much of that memory goes back to the system after each call, and page faults hide the rest.
"""

from __future__ import annotations

import torch

from torchstone import Workload

SIZE = 1 << 18
"""One megabyte a tensor, five tensors: more than fits the caches close to a core."""


def unfused(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, e: torch.Tensor
) -> torch.Tensor:
    """Four passes, each with a result of its own."""
    product = a * b
    moved = product + c
    scaled = moved * d
    return scaled + e


def fused(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, e: torch.Tensor
) -> torch.Tensor:
    """The same in two passes: addcmul(x, y, z) is x + y * z."""
    return torch.addcmul(e, torch.addcmul(c, a, b), d)


def tensors() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(SIZE) for _ in range(5))


def make_unfused() -> Workload:
    """Separate operations."""
    return Workload(unfused, tensors())


def make_fused() -> Workload:
    """Operations that do two steps each."""
    return Workload(fused, tensors())
