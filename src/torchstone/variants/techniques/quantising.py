"""Less weight: linear layers in 8-bit integers; weights that are left out."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torchstone.records import ArmSpec
from torchstone.variants.techniques.base import (
    METRIC,
    MODEL,
    SATURATION,
    Code,
    Technique,
    on_model,
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


_COMMON: dict[str, Any] = {
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
    **_COMMON,
)
TORCHAO_DYNAMIC = Technique(
    "torchao_int8_dynamic",
    "linear layers and activations in int8 (torchao)",
    on_model(lambda model: quantise_int8(model, "Int8DynamicActivationInt8WeightConfig")),
    unsupported=_needs_torchao,
    code=(Code(MODEL, quantise_int8, "config='Int8DynamicActivationInt8WeightConfig'"),),
    since="2.5",
    **_COMMON,
)
TORCHAO_WEIGHTS = Technique(
    "torchao_int8_weights",
    "weights of linear layers in int8 (torchao)",
    on_model(lambda model: quantise_int8(model, "Int8WeightOnlyConfig")),
    unsupported=_needs_torchao,
    code=(Code(MODEL, quantise_int8, "config='Int8WeightOnlyConfig'"),),
    since="2.5",
    **_COMMON,
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
