"""Techniques: small changes of a workload that any variant carries as a modifier.

`eager+channels_last`, `inductor+fused_optimizer`: an arm like any other, so it is checked, stored
and reproduced like any other. Torch is imported only when one is applied.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchstone.records import NotSupported
from torchstone.workloads import Workload
from torchstone.workloads.load import map_nest

FROZEN_THRESHOLDS = (200_000, 100, 100)
"""Of the garbage collector; Python's own first one is 700 to 2,000."""
DEFAULT_LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Technique:
    """One change; `changes` names the contract fields that it may change."""

    name: str
    summary: str
    apply: Callable[[Workload], Workload]
    changes: frozenset[str] = frozenset()
    needs_torch: bool = True


def _gc_freeze(workload: Workload) -> Workload:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*FROZEN_THRESHOLDS)
    return workload


def _no_grad(workload: Workload) -> Workload:
    import torch

    inner = workload.call

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return inner(*args, **kwargs)

    return replace(workload, call=call)


def _channels_last(workload: Workload) -> Workload:
    import torch

    module: Any = workload.call
    given = workload.inputs
    if not isinstance(module, torch.nn.Module):
        raise NotSupported("channels_last converts a module, and this is a function")
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() == 4:
            return leaf.to(memory_format=torch.channels_last)
        return leaf

    if callable(given):
        return replace(workload, inputs=lambda seed: map_nest(given(seed), convert))
    return replace(workload, inputs=map_nest(given, convert))


def _fused_optimizer(workload: Workload) -> Workload:
    import torch

    make = workload.optimizer

    def optimizer(parameters: Any) -> Any:
        parameters = list(parameters)
        if make is None:
            return torch.optim.SGD(parameters, lr=DEFAULT_LEARNING_RATE, fused=True)
        made = make(parameters)
        known = inspect.signature(type(made)).parameters
        if "fused" not in known:
            raise NotSupported(f"{type(made).__name__} has no fused implementation")
        if made.defaults.get("fused"):
            raise NotSupported(f"{type(made).__name__} is fused already")
        options = {**made.defaults, "fused": True}
        options.pop("foreach", None)
        return type(made)(parameters, **{k: v for k, v in options.items() if k in known})

    return replace(workload, optimizer=optimizer)


TECHNIQUES: Mapping[str, Technique] = {
    one.name: one
    for one in (
        Technique(
            "channels_last",
            "weights and images in channels-last memory format",
            _channels_last,
            frozenset({"memory_format"}),
        ),
        Technique("no_grad", "the call under torch.no_grad()", _no_grad),
        Technique("fused_optimizer", "the optimizer's fused implementation", _fused_optimizer),
        Technique(
            "gc_freeze",
            "the garbage collector frozen after building, and run rarely",
            _gc_freeze,
            needs_torch=False,
        ),
    )
}
