"""Precisions: what happens to weights and inputs, and the context a call runs in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torchstone.variants.base import NotSupported
from torchstone.workloads import Inputs, map_nest

_CAST = {"bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
_AUTOCAST = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}


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


def autocast_type(precision: str, device: str) -> str | None:
    """The narrow type of a mixed precision; None for the others."""
    if precision == "amp":
        return "float16" if device.startswith("cuda") else "bfloat16"
    return _AUTOCAST.get(precision)


def autocast(precision: str, device: str) -> Callable[[], AbstractContextManager[Any]]:
    """What to enter around a forward pass."""
    narrow = autocast_type(precision, device)
    if narrow is None:
        return nullcontext
    import torch

    kind, dtype = device.split(":")[0], getattr(torch, narrow)
    return lambda: torch.autocast(kind, dtype=dtype)


def loss_scaler(precision: str, device: str) -> Any:
    """A gradient scaler where training mixes in float16, whose gradients underflow; else None."""
    if autocast_type(precision, device) != "float16":
        return None
    import torch

    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is None:
        raise NotSupported(f"{precision} training needs torch.amp.GradScaler (torch 2.3 or newer)")
    return scaler(device.split(":")[0])


def describe_autocast(precision: str, device: str, training: bool) -> str | None:
    """For the contract: `amp-fp16 (float16, GradScaler)`; None where nothing is cast."""
    narrow = autocast_type(precision, device)
    if narrow is None:
        return None
    return f"{precision} ({narrow}{', GradScaler' if training and narrow == 'float16' else ''})"
