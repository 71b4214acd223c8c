"""Weights that are left out."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import METRIC, MODEL, Code, Technique, on_model


def prune_unstructured(model: Any, share: float = 0.5) -> Any:
    """The smallest weights of linear layers and convolutions set to zero."""
    import torch
    import torch.nn.utils.prune

    prune: Any = torch.nn.utils.prune
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no weights to prune")
    layers = [one for one in model.modules() if isinstance(one, (torch.nn.Linear, torch.nn.Conv2d))]
    if not layers:
        raise NotImplementedError("the model has no linear layer and no convolution")
    for layer in layers:
        prune.l1_unstructured(layer, "weight", amount=share)
        prune.remove(layer, "weight")
    return model


def prune_structured(model: Any, share: float = 0.5) -> Any:
    """Hidden units between two linear layers of a Sequential removed, the smallest first."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("a function has no layers to prune")
    pairs: list[Any] = []
    for block in model.modules():
        if not isinstance(block, torch.nn.Sequential):
            continue
        last: Any = None
        for one in block:
            if isinstance(one, torch.nn.Linear):
                if last is not None and last.out_features == one.in_features:
                    pairs.append((last, one))
                last = one
            elif any(True for _ in one.parameters()) or any(True for _ in one.children()):
                last = None  # what lies between may depend on the number of units
    if not pairs:
        raise NotImplementedError("no two linear layers follow one another in a Sequential")
    for first, second in pairs:
        kept = max(1, round(first.out_features * (1 - share)))
        order = first.weight.detach().norm(dim=1).argsort(descending=True)[:kept].sort().values
        first.weight = torch.nn.Parameter(first.weight.detach()[order])
        if first.bias is not None:
            first.bias = torch.nn.Parameter(first.bias.detach()[order])
        second.weight = torch.nn.Parameter(second.weight.detach()[:, order].contiguous())
        first.out_features = second.in_features = kept
    return model


_COMMON: dict[str, Any] = {
    "changes": frozenset({"parameters", "metric"}),
    "tier": METRIC,
    "group": "pruning",
    "may_break": "accuracy, unless the model is trained on afterwards",
    "modes": ("inference",),
    "lines": ("kernels", "allocator"),
}
UNSTRUCTURED = Technique(
    "prune_unstructured",
    "half of the weights, the smallest, set to zero",
    on_model(prune_unstructured),
    code=(Code(MODEL, prune_unstructured),),
    **_COMMON,
)
STRUCTURED = Technique(
    "prune_structured",
    "half of the hidden units between linear layers removed",
    on_model(prune_structured),
    code=(Code(MODEL, prune_structured),),
    **_COMMON,
)
