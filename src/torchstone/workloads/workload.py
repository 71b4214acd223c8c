"""A workload: a callable and the inputs it is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


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
