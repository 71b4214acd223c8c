"""How images lie in memory."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import (
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
