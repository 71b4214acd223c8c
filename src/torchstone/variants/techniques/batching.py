"""A batch that is too large for the caches, taken in parts; a larger one for more throughput."""

from __future__ import annotations

from typing import Any

from torchstone.variants.techniques.base import MODEL, TOLERANCE, Code, Technique, on_model


def micro_batches(model: Any, parts: int) -> Any:
    """The batch in parts, one after the other; the outputs are put together again."""
    import torch

    whole = model.forward if isinstance(model, torch.nn.Module) else model

    def joined(outputs: list[Any]) -> Any:
        first = outputs[0]
        if isinstance(first, torch.Tensor):
            return torch.cat(outputs)
        if isinstance(first, (tuple, list)) and not hasattr(first, "_fields"):
            return type(first)(joined(list(one)) for one in zip(*outputs, strict=True))
        raise TypeError(f"outputs of type {type(first).__name__} cannot be put together")

    def call(*args: Any) -> Any:
        batch = len(args[0])
        if any(not isinstance(one, torch.Tensor) or len(one) != batch for one in args):
            raise TypeError("not all inputs are tensors of one batch")
        split = [one.chunk(parts) for one in args]
        return joined([whole(*some) for some in zip(*split, strict=True)])

    if isinstance(model, torch.nn.Module):
        model.forward = call
        return model
    return call


def larger_batch(model: Any, times: int) -> Any:
    """As if the batch were so many times as large: it is repeated, and the first part of the
    outputs is the answer."""
    import torch

    whole = model.forward if isinstance(model, torch.nn.Module) else model

    def first(output: Any, batch: int) -> Any:
        if isinstance(output, torch.Tensor):
            return output[:batch]
        if isinstance(output, (tuple, list)) and not hasattr(output, "_fields"):
            return type(output)(first(one, batch) for one in output)
        raise TypeError(f"outputs of type {type(output).__name__} cannot be divided")

    def call(*args: Any) -> Any:
        batch = len(args[0])
        if any(not isinstance(one, torch.Tensor) or len(one) != batch for one in args):
            raise TypeError("not all inputs are tensors of one batch")
        return first(whole(*(torch.cat([one] * times) for one in args)), batch)

    if isinstance(model, torch.nn.Module):
        model.forward = call
        return model
    return call


_COMMON: dict[str, Any] = {
    "tier": TOLERANCE,
    "modes": ("inference",),
    "group": "batching",
    "lines": ("kernels", "allocator", "pool"),
    "may_break": "models whose answer for one row depends on the others; keyword inputs",
}
FOUR = Technique(
    "micro_batches_4",
    "the batch in 4 parts, one after the other",
    on_model(lambda model: micro_batches(model, 4)),
    code=(Code(MODEL, micro_batches, "parts=4"),),
    **_COMMON,
)
SIXTEEN = Technique(
    "micro_batches_16",
    "the batch in 16 parts, one after the other",
    on_model(lambda model: micro_batches(model, 16)),
    code=(Code(MODEL, micro_batches, "parts=16"),),
    **_COMMON,
)


def _larger(times: int) -> Technique:
    return Technique(
        f"larger_batch_{times}",
        f"batches {times} times as large",
        on_model(lambda model: larger_batch(model, times)),
        **{
            **_COMMON,
            "work": times,
            "goals": ("throughput",),
            "may_break": "latency, memory; models whose answer for one row depends on the others",
        },
    )


TWICE, EIGHTFOLD = _larger(2), _larger(8)
