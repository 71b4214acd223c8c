"""Narrower numbers: autocast, whole models in half precision, faster matrix products, float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchstone.records import ArmSpec
from torchstone.variants.techniques.base import (
    AROUND,
    CAST,
    MODEL,
    SATURATION,
    STATISTICAL,
    TOLERANCE,
    Code,
    Technique,
    on_model,
)


def autocast(model: Any, device: str, dtype: str) -> Any:
    """The call under torch.autocast."""
    import torch

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device.split(":")[0], dtype=getattr(torch, dtype)):
            return model(*args, **kwargs)

    return call


def cast(model: Any, dtype: str) -> Any:
    """Weights, and floating-point inputs in the call, in another type."""
    import torch

    kind = getattr(torch, dtype)
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no weights to cast")
    model.to(kind)

    def convert(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(kind) if floating else value

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        return tuple(map(convert, args)), {name: convert(one) for name, one in kwargs.items()}

    model.register_forward_pre_hook(before, with_kwargs=True)
    return model


def float32(model: Any) -> Any:
    """A model with float64 weights or buffers in float32; inputs are cast in the call."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no weights to cast")
    tensors = [*model.parameters(), *model.buffers()]
    if not any(tensor.dtype == torch.float64 for tensor in tensors):
        raise NotImplementedError("no weight of the model is float64")
    model.to(torch.float32)

    def convert(value: Any) -> Any:
        wide = isinstance(value, torch.Tensor) and value.dtype == torch.float64
        return value.to(torch.float32) if wide else value

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        return tuple(map(convert, args)), {name: convert(one) for name, one in kwargs.items()}

    model.register_forward_pre_hook(before, with_kwargs=True)
    return model


def matmul_precision(model: Any, precision: str) -> Any:
    """Products of float32 matrices in fewer bits inside, for the whole process."""
    import torch

    torch.set_float32_matmul_precision(precision)
    return model


def _precision(name: str) -> Callable[[ArmSpec], ArmSpec]:
    return lambda arm: replace(arm, precision=name)


def _only_from_fp32(arm: ArmSpec) -> str:
    return "" if arm.precision == "fp32" else f"the baseline's precision is {arm.precision} already"


def _only_cuda(arm: ArmSpec) -> str:
    if not arm.device.startswith("cuda"):
        return "tf32 is a mode of CUDA devices"
    return _only_from_fp32(arm)


_COMMON: dict[str, Any] = {
    "tier": STATISTICAL,
    "group": "precision",
    "changes": frozenset({"dtype"}),
    "unsupported": _only_from_fp32,
    "lines": ("kernels", "allocator", "copies"),
    "may_break": "small differences between large numbers; losses that drift",
}
AUTOCAST_BF16 = Technique(
    "autocast_bf16",
    "the forward pass under autocast to bfloat16",
    set_arm=_precision("amp-bf16"),
    code=(Code(AROUND, autocast, "device={device!r}, dtype='bfloat16'"),),
    **_COMMON,
)
AUTOCAST_FP16 = Technique(
    "autocast_fp16",
    "the forward pass under autocast to float16",
    set_arm=_precision("amp-fp16"),
    modes=("inference",),
    inputs=(SATURATION,),
    code=(Code(AROUND, autocast, "device={device!r}, dtype='float16'"),),
    **_COMMON,
)
BF16 = Technique(
    "bf16",
    "weights and inputs in bfloat16",
    set_arm=_precision("bf16"),
    code=(Code(CAST, cast, "dtype='bfloat16'"),),
    **_COMMON,
)
TF32 = Technique(
    "tf32",
    "matrix products in TF32",
    set_arm=_precision("tf32"),
    code=(Code(MODEL, matmul_precision, "precision='high'"),),
    **{**_COMMON, "unsupported": _only_cuda},
)
BF16_MATMUL = Technique(
    "bf16_matmul",
    "products of float32 matrices in bfloat16 inside (set_float32_matmul_precision)",
    on_model(lambda model: matmul_precision(model, "medium")),
    code=(Code(MODEL, matmul_precision, "precision='medium'"),),
    since="2.0",
    **{**_COMMON, "changes": frozenset({"bf16"})},
)
FLOAT32 = Technique(
    "float32",
    "a model that is float64 somewhere, in float32",
    on_model(float32),
    changes=frozenset({"dtype"}),
    tier=TOLERANCE,
    group="float64",
    lines=("kernels", "allocator", "copies", "dispatch"),
    may_break="results that need more than seven digits",
    code=(Code(MODEL, float32),),
)
