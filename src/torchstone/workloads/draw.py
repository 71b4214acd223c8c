"""Fresh inputs from a seed: same shapes, types and range of values, another arrangement.

Rolling the example's own values keeps every property that does not depend on their order (token
ids stay in the vocabulary, images in their range) and costs one copy. Sorted integers (offsets,
positions) and booleans (masks) carry meaning in their order and stay as they are.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from torchstone.workloads.nest import map_nest
from torchstone.workloads.workload import Inputs, Workload, normalise_inputs


def seed_everything(seed: int) -> None:
    """Seed the generators of the libraries that are loaded."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)


def draw(workload: Workload, seed: int) -> Inputs:
    """The inputs that belong to `seed`: equal seeds, equal values."""
    if callable(workload.inputs):
        seed_everything(seed)
        return normalise_inputs(workload.inputs(seed))
    example = normalise_inputs(workload.inputs)
    chance = random.Random(seed)
    return Inputs(
        map_nest(example.args, lambda leaf: _fresh(leaf, chance)),
        map_nest(dict(example.kwargs), lambda leaf: _fresh(leaf, chance)),
    )


def _fresh(leaf: Any, chance: random.Random) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return _rolled_tensor(torch, leaf, chance)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(leaf, numpy.ndarray):
        return _rolled_array(numpy, leaf, chance)
    return leaf


def _rolled_tensor(torch: Any, leaf: Any, chance: random.Random) -> Any:
    with torch.no_grad():
        shift = chance.randrange(1, leaf.numel()) if leaf.numel() > 1 else 0
        ordered = leaf.dtype == torch.bool or (
            not leaf.is_floating_point()
            and not leaf.is_complex()
            and leaf.numel() > 1
            and bool((leaf.flatten().diff() >= 0).all())
        )
        fresh = leaf.detach().clone()  # keeps the strides
        if shift and not ordered:
            fresh.copy_(leaf.detach().roll(shift).reshape(leaf.shape))
    return fresh.requires_grad_(leaf.requires_grad) if leaf.requires_grad else fresh


def _rolled_array(numpy: Any, leaf: Any, chance: random.Random) -> Any:
    if leaf.size < 2 or leaf.dtype.kind not in "iufc":
        return leaf.copy()
    shift = chance.randrange(1, leaf.size)
    if leaf.dtype.kind in "iu" and bool((numpy.diff(leaf.ravel()) >= 0).all()):
        return leaf.copy()
    return numpy.roll(leaf, shift)
