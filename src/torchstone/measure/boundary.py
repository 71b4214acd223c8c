"""What an arm does at the edges of its contract: one row, none, other strides, type, device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torchstone.measure.arm import Phase, build
from torchstone.measure.evidence import leaves_of
from torchstone.records import ArmSpec, describe_leaf, first_line
from torchstone.workloads import Inputs, map_nest, walk

_LONGEST_MESSAGE = 10_000
"""The conductor cuts it shorter when it has looked for secrets: a part of one cannot be told."""


def boundary_behaviour(arm: ArmSpec, phase: Phase, cases: Sequence[str]) -> dict[str, str]:
    """What came of each case: the form of the output, or the error's kind and first line."""
    built = build(arm, phase)
    example = built.inputs(arm.seed)
    found: dict[str, str] = {}
    for case in cases:
        phase(f"boundary {case}")
        inputs = _change(example, CASES[case])
        if inputs is None:
            found[case] = "does not apply"
            continue
        try:
            output = built.call(inputs)
        except Exception as error:  # any error is a behaviour, and is what we came to see
            found[case] = f"{type(error).__name__}: {first_line(error)}"[:_LONGEST_MESSAGE]
        else:
            found[case] = "; ".join(
                f"{leaf.path} {describe_leaf(leaf)}" for leaf in leaves_of(output, "output")
            )
    return found


def _change(inputs: Inputs, change: Callable[[Any, int | None], Any]) -> Inputs | None:
    """The inputs with every tensor changed; None where no tensor can be."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    tensors = [x for _, x in walk((inputs.args, inputs.kwargs), "") if isinstance(x, torch.Tensor)]
    batch = next((int(t.shape[0]) for t in tensors if t.dim()), None)
    changed = 0

    def apply(leaf: Any) -> Any:
        nonlocal changed
        if not isinstance(leaf, torch.Tensor):
            return leaf
        new = change(leaf, batch)
        changed += new is not leaf
        return new

    made = Inputs(map_nest(inputs.args, apply), map_nest(dict(inputs.kwargs), apply))
    return made if changed else None


def _rows(count: int) -> Callable[[Any, int | None], Any]:
    def change(tensor: Any, batch: int | None) -> Any:
        shared = batch is not None and tensor.dim() and tensor.shape[0] == batch and batch > count
        return tensor[:count].clone() if shared else tensor

    return change


def _non_contiguous(tensor: Any, batch: int | None) -> Any:
    if tensor.dim() < 2 or tensor.numel() < 2:
        return tensor
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def _wrong_dtype(tensor: Any, batch: int | None) -> Any:
    return tensor.long() if tensor.is_floating_point() else tensor.float()


def _wrong_device(tensor: Any, batch: int | None) -> Any:
    return tensor.to("meta" if tensor.device.type == "cpu" else "cpu")


CASES: dict[str, Callable[[Any, int | None], Any]] = {
    "batch of one": _rows(1),
    "empty batch": _rows(0),
    "non-contiguous": _non_contiguous,
    "wrong dtype": _wrong_dtype,
    "wrong device": _wrong_device,
}
