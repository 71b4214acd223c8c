"""What an arm must keep to: the shape of its inputs and outputs, its state, its reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Leaf:
    """One tensor, array or scalar inside a nest of inputs or outputs.

    `kind` is `torch`, `numpy`, `python` or `object`; `type_name` is the exact class, because a
    tensor subclass may postpone its work. Scalars have shape `()`.
    """

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    memory_format: str = "contiguous"
    requires_grad: bool = False
    type_name: str = ""


def describe_leaf(leaf: Leaf) -> str:
    """`float32[8,128]`, with the device when it is not the CPU."""
    size = ",".join(str(n) for n in leaf.shape)
    where = "" if leaf.device == "cpu" else f" on {leaf.device}"
    return f"{leaf.dtype}[{size}]{where}"


DROPOUT_NOTE = "dropout is on, and its masks are drawn at random"
"""Among the notes of a contract: two ways to run such a model need not draw the same."""


@dataclass(frozen=True)
class Contract:
    """Everything about an arm's computation that a variant may change only if it says so."""

    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    training: bool = False
    grad_enabled: bool = False
    autocast: str | None = None
    parameters: int = 0
    parameter_dtypes: Mapping[str, int] = field(default_factory=dict)
    weights_hash: str = ""
    inputs_hash: str = ""
    seed: int = 0
    determinism: Mapping[str, bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """The evidence that an arm computes what the reference computes.

    `method` is `fp64` (RMSE against a float64 run, bounded by the baseline's own error),
    `eager` (compared with the baseline where float64 is not possible; `reason` says why),
    `exact` (integers, strings) or `none`. Errors are the largest over all leaves and inputs
    checked; `checked` counts outputs, of which `timed` came from inside timed turns.
    `error_ratio` is the largest of error ÷ the baseline's own of one and the same leaf; None
    where no leaf has both against float64, and in records older than it.
    """

    method: str
    reason: str = ""
    tolerance: float = 0.0
    multiplier: float = 0.0
    rmse: float = 0.0
    rmse_baseline: float = 0.0
    cosine: float = 1.0
    checked: int = 0
    timed: int = 0
    mismatch: str = ""
    error_ratio: float | None = None


NO_REFERENCE = "no reference"
"""Begins the reason of an agreement by method `none` where none could be made."""
LEAF_GROUPS = ("output.grad.", "output.state.")
"""How the paths of gradients and of buffers begin, in the answer of a training step."""
NOTHING_COMPARABLE = "the target returns nothing that can be compared"
"""The reason where an answer has no tensors, arrays, numbers or text in it."""
