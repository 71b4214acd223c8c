"""Models for images: how they lie in memory; batch normalisation folded into convolutions."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import (
    CHANGED_WEIGHTS,
    MODEL,
    PERMUTED_STRIDES,
    TOLERANCE,
    Code,
    Technique,
    on_model,
)


def channels_last(model: Any) -> Any:
    """Weights and images in channels-last memory format; other images are converted in the call."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("channels_last converts a module, and this is a function")
    if not any(p.dim() == 4 for p in model.parameters()):
        raise NotImplementedError("the model has no convolution over images")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        return tuple(map(convert, args)), {name: convert(one) for name, one in kwargs.items()}

    model.register_forward_pre_hook(before, with_kwargs=True)
    return model


CHANNELS_LAST = Technique(
    "channels_last",
    "weights and images in channels-last memory format",
    on_model(channels_last),
    changes=frozenset({"memory_format"}),
    tier=TOLERANCE,
    may_break="code that takes a .view of an image, or reads its strides",
    inputs=(PERMUTED_STRIDES,),
    lines=("kernels", "copies", "allocator"),
    code=(Code(MODEL, channels_last),),
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
