"""Activations computed again in the backward pass, instead of kept."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import MODEL, TOLERANCE, Code, Technique, on_model


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


_COMMON: dict[str, Any] = {
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
    **_COMMON,
)
SELECTIVE = Technique(
    "checkpoint_selective",
    "the same, but matrix products are kept",
    on_model(lambda model: checkpoint_blocks(model, selective=True)),
    code=(Code(MODEL, checkpoint_blocks, "selective=True"),),
    since="2.4",
    **_COMMON,
)
