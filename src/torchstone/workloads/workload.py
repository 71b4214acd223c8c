"""A workload: a callable, the inputs it is called with, and their other shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchstone.records import NotSupported, UsageError
from torchstone.workloads.load import draw, map_nest, seed_everything, walk


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """What a target measures; a factory may also return just `(call, inputs)`.

    `inputs` is a tuple of arguments, a dict of keyword arguments, one tensor, or a function
    from a seed to any of these. With fixed inputs, fresh values are made by rolling the given
    ones; give a function where the order of the values matters. `loss` maps the output to a
    scalar for training (default: the output's own `.loss`, else its mean square) and
    `optimizer` maps parameters to an optimizer (default: plain SGD).

    `at_shape` maps a seed and a number from 1 on to inputs of another shape than `inputs` has,
    each number another one. It is asked only where shapes are varied (`ArmSpec.shapes`), and
    needed only where varying the batch is not the right thing.
    """

    call: Callable[..., Any]
    inputs: Any = ()
    loss: Callable[[Any], Any] | None = None
    optimizer: Callable[[Any], Any] | None = None
    notes: tuple[str, ...] = ()
    at_shape: Callable[[int, int], Any] | None = None


def normalise_inputs(inputs: Any) -> Inputs:
    """Arguments in any of the accepted forms as `Inputs`."""
    if isinstance(inputs, Inputs):
        return inputs
    if isinstance(inputs, (tuple, list)):
        return Inputs(tuple(inputs))
    if isinstance(inputs, Mapping):
        return Inputs((), dict(inputs))
    return Inputs() if inputs is None else Inputs((inputs,))


# Inputs of several shapes, for arms that are measured under changing ones.

LEAST_BATCH = 2
"""Dynamo compiles 0 and 1 as constants, so a batch that varies begins above them."""


def draw_at(workload: Workload, seed: int, shape: int) -> Inputs:
    """The inputs that belong to `seed`, at shape 0 (warm-up and base), 1, 2, …"""
    if workload.at_shape is not None:
        if shape == 0:
            return draw(workload, seed)
        seed_everything(seed)
        return normalise_inputs(workload.at_shape(seed, shape))
    drawn = draw(workload, seed)
    batch = _batch_of(drawn)
    size = _size(batch, shape)
    made = _with_batch(drawn, batch, size)
    if _batch_of(made) != size:  # a container of the user's own, which only `walk` looks into
        raise _cannot("tensors inside an object that is no tuple, list or dict")
    return made


def describe_shapes(workload: Workload, seed: int, count: int) -> str:
    """What is varied, for the contract; refuses what will not work when it comes to timing."""
    if workload.at_shape is None:
        batch = _batch_of(draw(workload, seed))
        draw_at(workload, seed, count)
        return "batch " + ", ".join(str(_size(batch, shape)) for shape in range(1, count + 1))
    seen: dict[tuple[tuple[int, ...], ...], int] = {}
    for shape in range(count + 1):
        found = tuple(
            tuple(int(n) for n in leaf.shape) for leaf in _arrays(draw_at(workload, seed, shape))
        )
        other = seen.setdefault(found, shape)
        if other != shape:
            raise UsageError(
                f"The workload's at_shape gives the same shapes for {other} and {shape}.",
                "Let it return inputs of another shape for every number from 0 (its inputs) on.",
            )
    return f"{count} of the workload's own"


def _size(batch: int, shape: int) -> int:
    return max(batch, LEAST_BATCH) + shape


def _batch_of(inputs: Inputs) -> int:
    """The first dimension that all tensors and arrays share; 0-d ones have no say."""
    sizes = {int(leaf.shape[0]) for leaf in _arrays(inputs) if len(leaf.shape)}
    if not sizes:
        raise _cannot("no tensor or array among them")
    if len(sizes) > 1:
        raise _cannot(f"first dimensions of {', '.join(map(str, sorted(sizes)))}")
    if sizes == {0}:
        raise _cannot("an empty batch")
    return sizes.pop()


def _cannot(reason: str) -> NotSupported:
    return NotSupported(
        f"the input shapes cannot be varied ({reason}); give the Workload an at_shape"
    )


def _arrays(inputs: Inputs) -> list[Any]:
    return [leaf for _, leaf in walk((inputs.args, inputs.kwargs), "") if _library(leaf)]


def _library(leaf: Any) -> str:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(leaf, getattr(torch, "Tensor", ())):
        return "torch"
    return "numpy" if numpy is not None and isinstance(leaf, numpy.ndarray) else ""


def _with_batch(inputs: Inputs, batch: int, size: int) -> Inputs:
    if size == batch:
        return inputs
    whole, rest = divmod(size, batch)

    def extend(leaf: Any) -> Any:
        library = _library(leaf)
        if not library or not len(leaf.shape):
            return leaf
        module = sys.modules[library]
        if library == "numpy":
            return module.concatenate([leaf] * whole + [leaf[:rest]] * bool(rest))
        rows = leaf.detach()
        longer = module.cat([rows] * whole + [rows[:rest]] * bool(rest))  # keeps channels_last
        return longer.requires_grad_() if leaf.requires_grad else longer

    return Inputs(map_nest(inputs.args, extend), map_nest(dict(inputs.kwargs), extend))
