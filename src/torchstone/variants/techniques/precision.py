"""Narrower numbers: autocast, whole models in half precision, faster matrix products, float32.

Less weight: linear layers in 8-bit integers; weights that are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from torchstone.records import ArmSpec
from torchstone.variants.techniques.base import (
    AROUND,
    CAST,
    METRIC,
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


def quantise_int8(model: Any, config: str = "") -> Any:
    """Linear layers in int8: by a configuration of torchao, or by torch.ao, deprecated there."""
    import importlib
    import warnings

    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no layers to quantise")
    if not any(isinstance(one, torch.nn.Linear) for one in model.modules()):
        raise NotImplementedError("the model has no linear layer")

    def quantised(one: Any) -> Any:
        if config:
            torchao = importlib.import_module("torchao.quantization")
            torchao.quantize_(one.eval(), getattr(torchao, config)())
            return one
        quantize: Any = torch.ao.quantization.quantize_dynamic
        return quantize(one.eval(), {torch.nn.Linear}, dtype=torch.qint8, inplace=True)

    device = next((one.device for one in model.parameters()), None)
    layer = torch.nn.Linear(64, 64, bias=False, device=device)
    torch.nn.init.ones_(layer.weight)
    loud = torch.full((1, 64), 10.0, device=device)  # products sum up to 640
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch.ao says that torchao is the place to go
        try:
            largest = float(quantised(torch.nn.Sequential(layer))(loud).max())
            if abs(largest / 640 - 1) > 0.05:
                raise NotImplementedError(
                    f"8-bit products saturate on this CPU: 640 came out as {largest:.0f} (no VNNI)"
                )
            return quantised(model)
        except ImportError:
            raise NotImplementedError("it needs the package torchao") from None


def _needs_torchao(arm: ArmSpec) -> str:
    missing = arm.python is None and find_spec("torchao") is None
    return "it needs the package torchao" if missing else ""


_COMMON_WEIGHTS: dict[str, Any] = {
    "changes": frozenset({"parameters", "dtype", "int8"}),
    "tier": METRIC,
    "modes": ("inference",),
    "group": "quantisation",
    "inputs": (SATURATION,),
    "may_break": "accuracy; without VNNI, sums of large products saturate",
    "lines": ("kernels", "allocator"),
}
INT8_DYNAMIC = Technique(
    "int8_dynamic",
    "linear layers in int8, activations quantised in the call (torch.ao)",
    on_model(quantise_int8),
    code=(Code(MODEL, quantise_int8),),
    **_COMMON_WEIGHTS,
)
TORCHAO_DYNAMIC = Technique(
    "torchao_int8_dynamic",
    "linear layers and activations in int8 (torchao)",
    on_model(lambda model: quantise_int8(model, "Int8DynamicActivationInt8WeightConfig")),
    unsupported=_needs_torchao,
    code=(Code(MODEL, quantise_int8, "config='Int8DynamicActivationInt8WeightConfig'"),),
    since="2.5",
    **_COMMON_WEIGHTS,
)
TORCHAO_WEIGHTS = Technique(
    "torchao_int8_weights",
    "weights of linear layers in int8 (torchao)",
    on_model(lambda model: quantise_int8(model, "Int8WeightOnlyConfig")),
    unsupported=_needs_torchao,
    code=(Code(MODEL, quantise_int8, "config='Int8WeightOnlyConfig'"),),
    since="2.5",
    **_COMMON_WEIGHTS,
)


def prune_unstructured(model: Any, share: float = 0.5) -> Any:
    """The smallest weights of linear layers and convolutions set to zero."""
    import torch
    import torch.nn.utils.prune

    prune: Any = torch.nn.utils.prune
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no weights to prune")
    layers = [one for one in model.modules() if isinstance(one, (torch.nn.Linear, torch.nn.Conv2d))]
    if not layers:
        raise NotImplementedError("the model has no linear layer and no convolution")
    for layer in layers:
        prune.l1_unstructured(layer, "weight", amount=share)
        prune.remove(layer, "weight")
    return model


def prune_structured(model: Any, share: float = 0.5) -> Any:
    """Hidden units between two linear layers of a Sequential removed, the smallest first."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no layers to prune")
    pairs: list[Any] = []
    for block in model.modules():
        if not isinstance(block, torch.nn.Sequential):
            continue
        last: Any = None
        for one in block:
            if isinstance(one, torch.nn.Linear):
                if last is not None and last.out_features == one.in_features:
                    pairs.append((last, one))
                last = one
            elif any(True for _ in one.parameters()) or any(True for _ in one.children()):
                last = None  # what lies between may depend on the number of units
    if not pairs:
        raise NotImplementedError("no two linear layers follow one another in a Sequential")
    for first, second in pairs:
        kept = max(1, round(first.out_features * (1 - share)))
        order = first.weight.detach().norm(dim=1).argsort(descending=True)[:kept].sort().values
        first.weight = torch.nn.Parameter(first.weight.detach()[order])
        if first.bias is not None:
            first.bias = torch.nn.Parameter(first.bias.detach()[order])
        second.weight = torch.nn.Parameter(second.weight.detach()[:, order].contiguous())
        first.out_features = second.in_features = kept
    return model


_PRUNING: dict[str, Any] = {
    "changes": frozenset({"parameters", "metric"}),
    "tier": METRIC,
    "group": "pruning",
    "may_break": "accuracy, unless the model is trained on afterwards",
    "modes": ("inference",),
    "lines": ("kernels", "allocator"),
}
UNSTRUCTURED = Technique(
    "prune_unstructured",
    "half of the weights, the smallest, set to zero",
    on_model(prune_unstructured),
    code=(Code(MODEL, prune_unstructured),),
    **_PRUNING,
)
STRUCTURED = Technique(
    "prune_structured",
    "half of the hidden units between linear layers removed",
    on_model(prune_structured),
    code=(Code(MODEL, prune_structured),),
    **_PRUNING,
)
