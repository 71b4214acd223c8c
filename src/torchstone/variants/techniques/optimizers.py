"""Implementations of the same optimizer that update all parameters at once."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import (
    OPTIMIZER,
    TOLERANCE,
    Code,
    Technique,
    on_optimizer,
)


def fused_optimizer(optimizer: Any) -> Any:
    """The same optimizer in its fused implementation."""
    import inspect

    known = inspect.signature(type(optimizer)).parameters
    if "fused" not in known:
        raise NotImplementedError(f"{type(optimizer).__name__} has no fused implementation")
    if optimizer.defaults.get("fused"):
        raise NotImplementedError(f"{type(optimizer).__name__} is fused already")
    options = {**optimizer.defaults, "fused": True, "foreach": False}
    groups = [{**group, "fused": True, "foreach": False} for group in optimizer.param_groups]
    return type(optimizer)(groups, **{name: v for name, v in options.items() if name in known})


def foreach_optimizer(optimizer: Any) -> Any:
    """The same optimizer in its multi-tensor implementation."""
    import inspect

    known = inspect.signature(type(optimizer)).parameters
    if "foreach" not in known:
        raise NotImplementedError(f"{type(optimizer).__name__} has no foreach implementation")
    if optimizer.defaults.get("foreach"):
        raise NotImplementedError(f"{type(optimizer).__name__} is a foreach one already")
    options = {**optimizer.defaults, "fused": False, "foreach": True}
    groups = [{**group, "fused": False, "foreach": True} for group in optimizer.param_groups]
    return type(optimizer)(groups, **{name: v for name, v in options.items() if name in known})


_COMMON: dict[str, Any] = {
    "tier": TOLERANCE,
    "modes": ("training",),
    "group": "optimizer",
    "lines": ("optimizer", "dispatch", "interpreter", "kernels", "allocator"),
    "may_break": "a subclass of the optimizer, and hooks on its step",
}
FUSED = Technique(
    "fused_optimizer",
    "the optimizer's fused implementation",
    on_optimizer(fused_optimizer),
    code=(Code(OPTIMIZER, fused_optimizer),),
    since="2.4",
    **_COMMON,
)
FOREACH = Technique(
    "foreach_optimizer",
    "the optimizer's multi-tensor (foreach) implementation",
    on_optimizer(foreach_optimizer),
    code=(Code(OPTIMIZER, foreach_optimizer),),
    **_COMMON,
)
