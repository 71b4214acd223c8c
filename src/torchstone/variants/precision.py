"""Precisions: what happens to weights and inputs, and the context a call runs in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torchstone.variants.base import NotSupported
from torchstone.workloads import Inputs, map_nest

_CAST = {"bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}


def cast_module(module: Any, precision: str, device: str) -> Any:
    """The module on its device, with its weights in the precision."""
    import torch

    module = module.to(device)
    if precision in _CAST:
        module = module.to(getattr(torch, _CAST[precision]))
    if precision == "tf32":
        if not device.startswith("cuda"):
            raise NotSupported("tf32 is a mode of CUDA devices")
        torch.set_float32_matmul_precision("high")
    return module


def cast_inputs(inputs: Inputs, precision: str, device: str) -> Inputs:
    """The inputs on the device; floating-point ones in the precision."""
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    dtype = _CAST.get(precision)

    def cast(leaf: Any) -> Any:
        if torch is not None and isinstance(leaf, torch.Tensor):
            moved = leaf.to(device)
            if dtype and moved.is_floating_point():
                moved = moved.to(getattr(torch, dtype))
            if leaf.requires_grad and not moved.requires_grad:
                moved = moved.detach().requires_grad_()
            return moved
        if numpy is not None and isinstance(leaf, numpy.ndarray) and precision == "fp64":
            return leaf.astype("float64") if leaf.dtype.kind == "f" else leaf
        return leaf

    return Inputs(map_nest(inputs.args, cast), map_nest(dict(inputs.kwargs), cast))


def autocast(precision: str, device: str) -> Callable[[], AbstractContextManager[Any]]:
    """What to enter around a forward pass."""
    if precision != "amp":
        return nullcontext
    import torch

    kind = device.split(":")[0]
    dtype = torch.float16 if kind == "cuda" else torch.bfloat16
    return lambda: torch.autocast(kind, dtype=dtype)
