"""The contract of an arm as it was found in the worker."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from torchstone.measure.leaves import fingerprint, leaves_of
from torchstone.records import DROPOUT_NOTE, ArmSpec, Contract
from torchstone.variants import Prepared
from torchstone.workloads import Inputs, walk


def describe_contract(arm: ArmSpec, prepared: Prepared, inputs: Inputs, output: Any) -> Contract:
    """Inputs, outputs, state and modes of one call."""
    torch = sys.modules.get("torch")
    nest: dict[Any, Any] = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    module = prepared.module
    named = list(module.named_parameters()) if module is not None else []
    return Contract(
        inputs=leaves_of(nest, "input"),
        outputs=leaves_of(output, "output"),
        training=prepared.training if module is None else bool(module.training),
        grad_enabled=bool(torch.is_grad_enabled()) if torch is not None else False,
        autocast=prepared.autocast,
        parameters=sum(p.numel() for _, p in named),
        parameter_dtypes=_by_dtype(named),
        weights_hash="",
        inputs_hash=fingerprint(walk(nest, "input")),
        seed=arm.seed,
        determinism=_determinism(torch),
        notes=(
            *prepared.notes,
            f"allocator: {arm.allocator}",
            *((DROPOUT_NOTE,) if _drops_out(torch, module) else ()),
        ),
    )


def _drops_out(torch: Any, module: Any) -> bool:
    if torch is None or module is None:
        return False
    kind = torch.nn.modules.dropout._DropoutNd
    return any(isinstance(one, kind) and one.training and one.p > 0 for one in module.modules())


def _by_dtype(named: list[tuple[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for _, parameter in named:
        counts[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return dict(counts)


def weights_fingerprint(module: Any) -> str:
    """Of parameters and buffers, before the first step changes them."""
    if module is None:
        return ""
    return fingerprint([*module.named_parameters(), *module.named_buffers()])


def _determinism(torch: Any) -> dict[str, bool]:
    if torch is None:
        return {}
    return {
        "deterministic_algorithms": bool(torch.are_deterministic_algorithms_enabled()),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
    }
