"""Optimizers: faster implementations of the same one; what changes how a training converges."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import (
    CONVERGENCE_STEPS,
    OPTIMIZER,
    STATISTICAL,
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


def accumulate_gradients(optimizer: Any, steps: int) -> Any:
    """The update at every so many steps only, from the mean of their gradients."""
    first, step, zero_grad = optimizer.param_groups[0], optimizer.step, optimizer.zero_grad
    first.setdefault("accumulated", 0)

    def step_rarely(*args: Any, **kwargs: Any) -> Any:
        first["accumulated"] = (first["accumulated"] + 1) % steps
        if first["accumulated"]:
            return None
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(steps)
        return step(*args, **kwargs)

    def zero_rarely(*args: Any, **kwargs: Any) -> None:
        if not first["accumulated"]:
            zero_grad(*args, **kwargs)

    optimizer.step, optimizer.zero_grad = step_rarely, zero_rarely
    return optimizer


def other_optimizer(optimizer: Any, name: str, **options: Any) -> Any:
    """Another optimizer of torch.optim for the same groups of parameters."""
    import torch

    kind = getattr(torch.optim, name)
    if type(optimizer) is kind and all(
        optimizer.defaults.get(option) == value for option, value in options.items()
    ):
        raise NotImplementedError(f"the optimizer is {name} already")
    kept = ("params", "weight_decay")
    groups = [{key: group[key] for key in kept if key in group} for group in optimizer.param_groups]
    return kind(groups, **options)


def one_cycle(optimizer: Any, steps: int, most: float = 10.0) -> Any:
    """The learning rate up to so many times its value and down again, in so many steps. Set
    `steps` to the number of updates of your training."""
    import math

    first, step = optimizer.param_groups[0], optimizer.step
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    first.setdefault("cycle_step", 0)

    def factor(done: float) -> float:
        up = 0.3
        if done < up:
            return most - (most - 1) * (1 + math.cos(math.pi * done / up)) / 2
        return most * (1 + math.cos(math.pi * min(1.0, (done - up) / (1 - up)))) / 2

    def step_in_cycle(*args: Any, **kwargs: Any) -> Any:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(first["cycle_step"] / steps)
        first["cycle_step"] += 1
        return step(*args, **kwargs)

    optimizer.step = step_in_cycle
    return optimizer


_CONVERGING: dict[str, Any] = {
    "tier": STATISTICAL,
    "modes": ("training",),
    "changes": frozenset({"metric"}),
    "trains_otherwise": True,
    "goals": ("speed", "throughput"),
}
ACCUMULATE = Technique(
    "accumulate_gradients_4",
    "gradients of 4 steps accumulated for one update",
    on_optimizer(lambda optimizer: accumulate_gradients(optimizer, 4)),
    group="accumulation",
    lines=("optimizer", "dispatch", "interpreter", "kernels"),
    may_break="convergence: a fourth of the updates, each from four times the batch",
    code=(Code(OPTIMIZER, accumulate_gradients, "steps=4"),),
    **_CONVERGING,
)
ADAMW = Technique(
    "optimizer_adamw",
    "AdamW (lr 0.001) instead of the optimizer",
    on_optimizer(lambda optimizer: other_optimizer(optimizer, "AdamW", lr=1e-3)),
    group="other optimizer",
    may_break="convergence: it trains otherwise; learning rates of groups, and schedules",
    code=(Code(OPTIMIZER, other_optimizer, "name='AdamW', lr=0.001"),),
    **_CONVERGING,
)
MOMENTUM = Technique(
    "optimizer_momentum",
    "SGD with Nesterov momentum (lr 0.01) instead of the optimizer",
    on_optimizer(
        lambda optimizer: other_optimizer(optimizer, "SGD", lr=1e-2, momentum=0.9, nesterov=True)
    ),
    group="other optimizer",
    may_break="convergence: it trains otherwise; learning rates of groups, and schedules",
    code=(Code(OPTIMIZER, other_optimizer, "name='SGD', lr=0.01, momentum=0.9, nesterov=True"),),
    **_CONVERGING,
)
ONE_CYCLE = Technique(
    "one_cycle_lr",
    f"the learning rate up tenfold and down again in {CONVERGENCE_STEPS} steps (one cycle)",
    on_optimizer(lambda optimizer: one_cycle(optimizer, CONVERGENCE_STEPS)),
    group="schedule",
    may_break="convergence: it trains otherwise, and for a set number of steps; other schedules",
    code=(Code(OPTIMIZER, one_cycle, f"steps={CONVERGENCE_STEPS}"),),
    **_CONVERGING,
)
