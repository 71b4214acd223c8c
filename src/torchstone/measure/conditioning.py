"""Conditioning: how far an answer moves when the numbers it is made from move by one rounding.

A gradient behind a ReLU or a maximum can jump when an activation near the kink changes by the last
bit, and two correct orders of the same sums differ by just that. What eager code itself moves by,
no arm can be blamed for.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from torchstone.workloads import Inputs, walk
from torchstone.workloads.nest import map_nest

NUDGES = 5
"""Runs with nudged numbers, of which the furthest counts: jumps are rare and large, and five see
nine of ten that come every third time."""
NUDGE_SECONDS = 20.0
"""No nudged run starts later than this, all calls together; each has an equal part. They are not
counted by the time of the call before them: the first one in a process takes many times a step."""


CLOSER_NUDGES = 40
CLOSER_STEPS = 8
"""Where an arm would be called wrong by a little: more runs, and nudged by three bits. That is what
the order of a long sum changes, and finds a jump eight times as often; an answer without a kink
moves by some parts in a million all the same."""
CLOSER_SECONDS = 60.0


def nudge_weights(module: Any, seed: int, steps: int = 1) -> None:
    """Move each float32 and float64 weight so many neighbours on, up or down by chance.

    Narrower types stay: their products are summed in float32, so a last bit of theirs is far more
    than what an order of sums changes.
    """
    if module is None or not callable(getattr(module, "parameters", None)):
        return
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(_nudged(torch, parameter, generator, steps))


def nudge_inputs(inputs: Inputs, seed: int, steps: int = 1) -> Inputs:
    """The inputs with every float32 and float64 tensor moved alike."""
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(seed + 1)

    def nudge(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        moved = _nudged(torch, leaf.detach(), generator, steps)
        return moved.requires_grad_() if leaf.requires_grad else moved

    return Inputs(map_nest(inputs.args, nudge), map_nest(dict(inputs.kwargs), nudge))


def _nudged(torch: Any, tensor: Any, generator: Any, steps: int) -> Any:
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.layout != torch.strided:
        return tensor
    up = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device)
    beyond = (2 * up - 1).to(tensor.dtype) * math.inf
    moved = tensor
    for _ in range(steps):
        moved = torch.nextafter(moved, beyond)
    # A zero stays: it is a mask or padding more often than a number, and its neighbour is no
    # rounding of anything.
    return torch.where(tensor == 0, tensor, moved)


def distances(first: Any, second: Any) -> dict[str, float]:
    """Root mean square difference of each floating-point leaf the two have in common."""
    torch = sys.modules["torch"]
    others = dict(walk(second, "output"))
    found = {}
    for path, value in walk(first, "output"):
        other = others.get(path)
        if not (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)):
            continue
        if not value.is_floating_point() or value.shape != other.shape or not value.numel():
            continue
        gap = (value.detach().double() - other.detach().double()).square().mean().sqrt().item()
        if math.isfinite(gap):
            found[path] = gap
    return found


def furthest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The larger of the two for every leaf."""
    return {path: max(one.get(path, 0.0), other.get(path, 0.0)) for path in {**one, **other}}


def write_distances(path: str, moved: Mapping[str, float]) -> None:
    """For the judge, in another process."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(moved, file)
