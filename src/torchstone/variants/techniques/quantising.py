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


def int8_dynamic(model: Any) -> Any:
    """Linear layers in int8, activations quantised in the call (torch.ao, deprecated there)."""
    import warnings

    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no layers to quantise")
    if not any(isinstance(one, torch.nn.Linear) for one in model.modules()):
        raise NotImplementedError("the model has no linear layer")
    quantize: Any = torch.ao.quantization.quantize_dynamic
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that torchao is the place to go
        return quantize(model.eval(), {torch.nn.Linear}, dtype=torch.qint8, inplace=True)


def torchao_int8(model: Any, config: str) -> Any:
    """Linear layers in int8 by torchao."""
    import importlib

    import torch

    try:
        torchao = importlib.import_module("torchao.quantization")
    except ImportError:
        raise NotImplementedError("it needs the package torchao") from None
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no layers to quantise")
    if not any(isinstance(one, torch.nn.Linear) for one in model.modules()):
        raise NotImplementedError("the model has no linear layer")
    torchao.quantize_(model.eval(), getattr(torchao, config)())
    return model


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
    on_model(int8_dynamic),
    code=(Code(MODEL, int8_dynamic),),
    **_COMMON,
)
TORCHAO_DYNAMIC = Technique(
    "torchao_int8_dynamic",
    "linear layers and activations in int8 (torchao)",
    on_model(lambda model: torchao_int8(model, "Int8DynamicActivationInt8WeightConfig")),
    unsupported=_needs_torchao,
    code=(Code(MODEL, torchao_int8, "config='Int8DynamicActivationInt8WeightConfig'"),),
    since="2.5",
    **_COMMON,
)
TORCHAO_WEIGHTS = Technique(
    "torchao_int8_weights",
    "weights of linear layers in int8 (torchao)",
    on_model(lambda model: torchao_int8(model, "Int8WeightOnlyConfig")),
    unsupported=_needs_torchao,
    code=(Code(MODEL, torchao_int8, "config='Int8WeightOnlyConfig'"),),
    since="2.5",
    **_COMMON,
)
