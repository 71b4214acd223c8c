"""Batch normalisation folded into the convolution before it."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import (
    CHANGED_WEIGHTS,
    MODEL,
    TOLERANCE,
    Code,
    Technique,
    on_model,
)


def fold_batchnorm(model: Any) -> Any:
    """Each batch normalisation that follows a convolution becomes part of its weights."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no layers to fold")
    model.eval()
    try:
        graph = torch.fx.symbolic_trace(model).graph
    except Exception as error:
        raise NotImplementedError(f"torch.fx cannot trace the model: {error}") from None
    modules, folded = dict(model.named_modules()), 0
    normalisations = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    convolutions = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    for node in graph.nodes:
        before: Any = node.args[0] if node.op == "call_module" and node.args else None
        if getattr(before, "op", "") != "call_module" or len(before.users) != 1:
            continue
        first, second = modules.get(before.target), modules.get(node.target)
        if not isinstance(first, convolutions) or not isinstance(second, normalisations):
            continue
        for name, new in (
            (before.target, fuse_conv_bn_eval(first, second)),
            (node.target, torch.nn.Identity()),
        ):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, new)
        folded += 1
    if not folded:
        raise NotImplementedError("no batch normalisation follows a convolution")
    return model


FOLD_BATCHNORM = Technique(
    "fold_batchnorm",
    "batch normalisation folded into the convolution before it",
    on_model(fold_batchnorm),
    changes=frozenset({"parameters", "memory_format"}),
    tier=TOLERANCE,
    modes=("inference",),
    may_break="state_dict keys; the model cannot be trained any more",
    conditions=(CHANGED_WEIGHTS,),
    lines=("kernels", "dispatch", "interpreter", "allocator"),
    code=(Code(MODEL, fold_batchnorm),),
)
