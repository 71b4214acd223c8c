"""What kind of work an op does, by its name: may a compiler fuse it, does it only move data."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.explain.passes.names import allocates, copies_to_device
from torchstone.records import Ledger, OpCost

_HEAVY = (
    *("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "dot", "mv", "addmv"),
    *("convolution", "conv1d", "conv2d", "conv3d", "thnn_conv2d", "slow_conv2d_forward"),
    *("attention", "sort", "topk", "lstm", "gru", "fft", "solve", "svd", "cholesky", "cdist"),
)
_LAYOUT = ("contiguous", "clone", "copy_", "_to_copy")


def bare(name: str) -> str:
    """`aten::add_` as `add_`."""
    return name.rpartition("::")[2]


def is_heavy(op: OpCost) -> bool:
    """Work that a compiler hands to a library as it is."""
    name = bare(op.name)
    return any(name.strip("_") == word or word in name.split("_") for word in _HEAVY) or any(
        word in name for word in ("convolution", "attention", "conv2d")
    )


def moves_data(op: OpCost) -> bool:
    """A copy that only changes where or how data lie."""
    return bare(op.name) in _LAYOUT


def fusable(ledger: Ledger) -> list[OpCost]:
    """Ops with kernels that a compiler can merge with their neighbours."""
    return [op for op in _working(ledger) if not (op.generated or is_heavy(op))]


def fusable_s(ledger: Ledger) -> float:
    """Their time, as far as it is in the kernels' line: pages and the pool were taken out of it."""
    working = sum(op.kernel_s for op in _working(ledger))
    return fusable_share(ledger) * min(working, ledger.share("kernels") * ledger.wall_s)


def fusable_share(ledger: Ledger) -> float:
    """Of the time that all ops work."""
    working = sum(op.kernel_s for op in _working(ledger))
    return sum(op.kernel_s for op in fusable(ledger)) / working if working else 0.0


def _working(ledger: Ledger) -> list[OpCost]:
    return [
        op
        for op in ledger.ops
        if op.kernel_s > 0 and not allocates(op.name) and not copies_to_device(op.name)
    ]


def op_calls(ledger: Ledger) -> float:
    """Calls of ops with a kernel or a front end of their own."""
    return sum(op.calls for op in ledger.ops)


def has_convolutions(ops: Sequence[OpCost]) -> bool:
    """Whether the layout of images matters to it."""
    return any("conv" in op.name for op in ops)


def figure(ledger: Ledger, name: str) -> float:
    """A figure of the passes; 0 where there is none."""
    try:
        return float(ledger.facts.get(name, "0"))
    except ValueError:
        return 0.0
