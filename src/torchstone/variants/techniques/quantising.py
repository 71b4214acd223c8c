"""Linear layers in 8-bit integers."""

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
