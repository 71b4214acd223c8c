"""Inference without what only training needs: autograd's bookkeeping, training mode.

Activations computed again in the backward pass, instead of kept.
"""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import (
    BITWISE,
    METRIC,
    MODEL,
    TOLERANCE,
    Code,
    Technique,
    on_model,
)


def no_grad(model: Any) -> Any:
    """The call under torch.no_grad()."""
    import torch

    if isinstance(model, torch.nn.Module):
        model.forward = torch.no_grad()(model.forward)
        return model
    return torch.no_grad()(model)


def inference_mode(model: Any) -> Any:
    """The call under torch.inference_mode()."""
    import torch

    if isinstance(model, torch.nn.Module):
        model.forward = torch.inference_mode()(model.forward)
        return model
    return torch.inference_mode()(model)


def eval_mode(model: Any) -> Any:
    """Modules in evaluation mode: the model, or those that a function reaches by name."""
    import torch

    reached: dict[str, Any] = {}
    if isinstance(model, torch.nn.Module):
        reached["model"] = model
    code = getattr(model, "__code__", None)
    if code is not None:
        cells = [cell.cell_contents for cell in model.__closure__ or ()]
        reached = {name: model.__globals__.get(name) for name in code.co_names}
        reached.update(zip(code.co_freevars, cells, strict=True))
    found = [one for one in reached.values() if isinstance(one, torch.nn.Module) and one.training]
    if not found:
        raise NotImplementedError("no module in training mode was found")
    for one in found:
        one.eval()
    return model


_COMMON: dict[str, Any] = {
    "tier": BITWISE,
    "modes": ("inference",),
    "group": "grad mode",
    "lines": ("autograd", "dispatch", "interpreter", "allocator"),
    "changes": frozenset({"requires_grad"}),
}

NO_GRAD = Technique(
    "no_grad",
    "the call under torch.no_grad()",
    on_model(no_grad),
    may_break="a backward pass through the output",
    code=(Code(MODEL, no_grad),),
    **_COMMON,
)
INFERENCE_MODE = Technique(
    "inference_mode",
    "the call under torch.inference_mode()",
    on_model(inference_mode),
    may_break="any later use of the output by autograd",
    code=(Code(MODEL, inference_mode),),
    **_COMMON,
)
EVAL_MODE = Technique(
    "eval_mode",
    "modules left in training mode put into evaluation mode",
    on_model(eval_mode),
    changes=frozenset({"training", "metric"}),
    tier=METRIC,
    modes=("inference",),
    may_break="answers that rest on statistics of the batch, or on dropout",
    lines=("kernels", "dispatch", "interpreter", "allocator"),
    code=(Code(MODEL, eval_mode),),
)


def checkpoint_blocks(model: Any, selective: bool = False) -> Any:
    """The model's repeated blocks under torch.utils.checkpoint; selective: matrix products are
    kept, all else is computed again."""
    import functools

    import torch
    from torch.utils import checkpoint

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no blocks")
    found: list[Any] = []
    for container in model.modules():
        if not isinstance(container, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        if any(container in one.modules() for one in found):
            continue
        children = [child for child in container if any(True for _ in child.parameters())]
        kinds = [type(child) for child in children]
        found += [child for child in children if kinds.count(type(child)) > 1]
    if not found:
        raise NotImplementedError("the model has no repeated blocks")
    options: dict[str, Any] = {"use_reentrant": False}
    if selective:
        ops = torch.ops.aten
        kept = [ops.mm.default, ops.addmm.default, ops.bmm.default, ops.convolution.default]
        options["context_fn"] = functools.partial(
            checkpoint.create_selective_checkpoint_contexts, kept
        )
    for block in found:
        block.forward = functools.partial(checkpoint.checkpoint, block.forward, **options)
    return model


_COMMON_CHECKPOINT: dict[str, Any] = {
    "tier": TOLERANCE,
    "modes": ("training",),
    "group": "checkpointing",
    "goals": ("memory",),
    "lines": ("kernels",),
    "may_break": "random numbers drawn inside a block; it takes longer",
}
CHECKPOINT = Technique(
    "checkpoint",
    "activations of repeated blocks computed again in the backward pass",
    on_model(checkpoint_blocks),
    code=(Code(MODEL, checkpoint_blocks),),
    **_COMMON_CHECKPOINT,
)
SELECTIVE = Technique(
    "checkpoint_selective",
    "the same, but matrix products are kept",
    on_model(lambda model: checkpoint_blocks(model, selective=True)),
    code=(Code(MODEL, checkpoint_blocks, "selective=True"),),
    since="2.4",
    **_COMMON_CHECKPOINT,
)
