"""The step that is timed: a call in inference; forward, loss, backward and update in training."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.records import ArmSpec, NotSupported, UsageError
from torchstone.variants.registry import resolve_variant
from torchstone.variants.registry import uses_torch as variant_uses_torch
from torchstone.variants.techniques.base import plain_sgd
from torchstone.workloads import Inputs, Workload, map_nest, walk


def _identity(output: Any) -> Any:
    return output


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Prepared:
    """A workload made ready to run as its arm says.

    `evidence` turns a step's return value into what is compared with the reference; `keep_start`
    remembers the state, and the function it returns brings it back (training only). `overflowed`
    says whether the last step's gradients were too large for the loss scale, so that it updated
    nothing; the scale is smaller now, and the step can be made again.
    `apply_ns` is what the variant cost before the first call, which is when captures compile.
    """

    step: Callable[..., Any]
    cast: Callable[[Inputs], Inputs]
    module: Any = None
    evidence: Callable[[Any], Any] = _identity
    overflowed: Callable[[], bool] = _never
    keep_start: Callable[[], Callable[[], None]] | None = None
    changes: frozenset[str] = frozenset()
    training: bool = False
    autocast: str | None = None
    apply_ns: int = 0
    notes: tuple[str, ...] = field(default=())


def prepare(workload: Workload, example: Inputs, arm: ArmSpec) -> Prepared:
    """Apply precision, device, mode and variant, in this order."""
    variant = resolve_variant(arm.variant)
    reason = variant.unsupported(arm)
    if reason:
        raise NotSupported(reason)
    uses_torch = _uses_torch(workload, example)
    wants_torch = variant_uses_torch(arm.variant) or arm.mode == "training"
    wants_torch |= arm.precision != "fp32"
    refused = not uses_torch and (wants_torch or arm.device != "cpu")
    if refused and not _may_use_torch(workload, arm):
        raise NotSupported(
            f"{arm.target} does not use torch, so {arm.variant}/{arm.mode}/{arm.precision} "
            f"on {arm.device} means nothing for it"
        )
    if not uses_torch:
        applied = variant.apply(workload.call, example, arm)
        return Prepared(applied.call, _identity, changes=variant.changes)
    return _prepare_torch(workload, example, arm)


def reference_step(workload: Workload, example: Inputs, arm: ArmSpec) -> Prepared:
    """The same arm as plain eager code in float64."""
    plain = replace(arm, variant="eager", precision="fp64", name=f"{arm.name} (reference)")
    if not _uses_torch(workload, example):
        return Prepared(workload.call, lambda inputs: cast_inputs(inputs, "fp64", "cpu"))
    return _prepare_torch(workload, example, plain)


def _uses_torch(workload: Workload, example: Inputs) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return False
    leaves = walk((example.args, example.kwargs), "")
    return isinstance(workload.call, torch.nn.Module) or any(
        isinstance(leaf, torch.Tensor) for _, leaf in leaves
    )


def _may_use_torch(workload: Workload, arm: ArmSpec) -> bool:
    """Of a function that is given no tensor: whether it makes its own, by what it knows of. It is
    run as it is, with gradients as they are."""
    if arm.mode == "training" or arm.precision != "fp32" or arm.device != "cpu":
        return False
    known = getattr(inspect.unwrap(workload.call), "__globals__", {})  # techniques wrap it
    torch = sys.modules.get("torch")
    return torch is not None and any(
        value is torch or getattr(value, "__name__", "").startswith("torch.")
        for value in list(known.values())
        if isinstance(value, type(sys))
    )


def _prepare_torch(workload: Workload, example: Inputs, arm: ArmSpec) -> Prepared:
    import torch

    call = workload.call
    module = call if isinstance(call, torch.nn.Module) else getattr(call, "__self__", None)
    module = module if isinstance(module, torch.nn.Module) else None
    training = arm.mode == "training"
    if module is not None:
        module = cast_module(module, arm.precision, arm.device)
        module.train(training)
    torch.set_grad_enabled(training)
    variant = resolve_variant(arm.variant)
    cast_example = cast_inputs(example, arm.precision, arm.device)
    context = autocast(arm.precision, arm.device)
    started = time.perf_counter_ns()
    with context():
        applied = variant.apply(call, cast_example, arm)
    apply_ns = time.perf_counter_ns() - started
    mixed = describe_autocast(arm.precision, arm.device, training)
    forward = _in_context(applied.call, context) if mixed else applied.call
    prepared = Prepared(
        step=forward,
        cast=lambda inputs: cast_inputs(inputs, arm.precision, arm.device),
        module=module,
        changes=variant.changes,
        training=training,
        autocast=mixed,
        apply_ns=apply_ns,
        notes=workload.notes,
    )
    if not training:
        return prepared
    if module is None:
        raise UsageError(
            f"{arm.target} is a plain function, and training needs a module with parameters.",
            "Let the factory return (module, inputs), or use --mode inference.",
        )
    loss_of = workload.loss or default_loss

    def loss(*args: Any, **kwargs: Any) -> Any:
        return loss_of(applied.call(*args, **kwargs))

    forward = _in_context(loss, context) if mixed else loss
    return _training(replace(prepared, step=forward), workload, arm)


def _in_context(call: Callable[..., Any], context: Callable[[], Any]) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with context():
            return call(*args, **kwargs)

    return inside


def _training(prepared: Prepared, workload: Workload, arm: ArmSpec) -> Prepared:
    """From a step that computes the loss (under autocast, as is usual) to one that learns."""
    module, forward = prepared.module, prepared.step
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise UsageError(f"{arm.target} has no trainable parameters.", "Use --mode inference.")
    make_optimizer = workload.optimizer or plain_sgd
    optimizer = make_optimizer(parameters)
    scaler = loss_scaler(arm.precision, arm.device)

    def step(*args: Any, **kwargs: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(*args, **kwargs)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)  # as before clipping: what is checked are true gradients
            scaler.step(optimizer)
            scaler.update()
        return loss

    def evidence(loss: Any) -> Any:
        grads = {n: _whole(p.grad) for n, p in module.named_parameters() if p.grad is not None}
        found = {"loss": loss, "grad": grads}
        # Running statistics. Under a loss scale they are of as many steps as it took to fit.
        state = {n: b for n, b in module.named_buffers() if b.is_floating_point()}
        return {**found, "state": state} if state and scaler is None else found

    return replace(
        prepared,
        step=step,
        evidence=evidence,
        overflowed=_never if scaler is None else lambda: _overflowed(parameters, scaler),
        keep_start=lambda: _keep_start(module, optimizer),
    )


def _whole(gradient: Any) -> Any:
    """One that is divided among ranks (a DTensor), put together."""
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def _overflowed(parameters: Any, scaler: Any) -> bool:
    """Not finite, and the loss was still scaled up: below that it is not the scale's fault."""
    grads = [p.grad for p in parameters if p.grad is not None]
    return scaler.get_scale() >= 1 and not all(bool(grad.isfinite().all()) for grad in grads)


def _keep_start(module: Any, optimizer: Any) -> Callable[[], None]:
    import torch

    tensors = [*module.parameters(), *module.buffers()]
    start = [tensor.detach().clone() for tensor in tensors]
    groups = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]

    def restore() -> None:
        with torch.no_grad():
            for tensor, old in zip(tensors, start, strict=True):
                tensor.copy_(old)
        optimizer.state.clear()
        for group, old in zip(optimizer.param_groups, groups, strict=True):
            group.update(old)  # a schedule has changed them

    return restore


def default_loss(output: Any) -> Any:
    """What trains a workload that names no loss: the output's own, else its mean square."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    import torch

    floats = [
        leaf
        for _, leaf in walk(output, "output")
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.requires_grad
    ]
    if not floats:
        raise UsageError(
            "The output has no part that depends on the parameters, so there is nothing to train.",
            "Give the Workload a loss.",
        )
    return sum(_at_least_float32(leaf).square().mean() for leaf in floats)


def _at_least_float32(leaf: Any) -> Any:
    """Half precisions overflow when squared; float64 must stay, or the reference loses digits."""
    return leaf.float() if leaf.element_size() < 4 else leaf


# Precisions: what happens to weights and inputs, and the context a call runs in.

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
