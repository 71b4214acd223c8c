"""Form: leaves of an output, or of inputs, set against those that were promised."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.records import Leaf, describe_leaf

_PLAIN_TYPES = (
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.nn.modules.parameter.Parameter",
)


def compare_leaves(expected: Sequence[Leaf], found: Sequence[Leaf], changes: frozenset[str]) -> str:
    """The first undeclared difference in structure, in words; empty if there is none."""
    if "container" not in changes:
        known, given = {leaf.path for leaf in expected}, {leaf.path for leaf in found}
        missing = [leaf.path for leaf in expected if leaf.path not in given]
        extra = [leaf.path for leaf in found if leaf.path not in known]
        if missing:
            return f"{missing[0]}: missing" + (f", got {extra[0]} instead" if extra else "")
        if extra:
            return f"{extra[0]}: not in the baseline's output"
    elif len(expected) != len(found):
        return f"output: expected {len(expected)} tensors, got {len(found)}"
    for want, got in zip(expected, _in_order(expected, found, changes), strict=True):
        difference = _leaf_difference(want, got, changes)
        if difference:
            return difference
    return ""


def _in_order(
    expected: Sequence[Leaf], found: Sequence[Leaf], changes: frozenset[str]
) -> Sequence[Leaf]:
    """The leaves as the baseline has them: a dict's order is no part of the contract."""
    if "container" in changes:
        return found
    by_path = {leaf.path: leaf for leaf in found}
    return [by_path[leaf.path] for leaf in expected]


def _leaf_difference(want: Leaf, got: Leaf, changes: frozenset[str]) -> str:
    same_shape = want.shape == got.shape
    same_type = "dtype" in changes or _same_dtype(want, got)
    same_place = "device" in changes or want.device == got.device
    if not (same_shape and same_type and same_place):
        return f"{want.path}: expected {describe_leaf(want)}, got {describe_leaf(got)}"
    if got.kind == "torch" and got.type_name not in (*_PLAIN_TYPES, want.type_name):
        return (
            f"{want.path}: expected a plain tensor, got {got.type_name}, "
            "which may put off its work until it is read"
        )
    return ""


def _same_dtype(want: Leaf, got: Leaf) -> bool:
    if want.kind == got.kind:
        return want.dtype == got.dtype
    # A Python float, a NumPy scalar and a 0-d tensor may all be the same answer.
    return want.dtype.rstrip("0123456789") == got.dtype.rstrip("0123456789")
