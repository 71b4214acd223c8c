"""What kind of work an op does, by its name: may a compiler fuse it, does it only move data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone.explain.passes.report import allocates, copies_to_device
from torchstone.records import Ledger, OpCost

_HEAVY = (
    *("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "dot", "mv", "addmv"),
    *("convolution", "conv1d", "conv2d", "conv3d", "thnn_conv2d", "slow_conv2d_forward"),
    *("attention", "sort", "topk", "lstm", "gru", "fft", "solve", "svd", "cholesky", "cdist"),
)
_LAYOUT = ("contiguous", "clone", "copy_", "_to_copy")
_CAST, _COPY = "_to_copy", "copy_"
"""`.to(...)` calls the one, and that calls the other, which does the work of all copies."""

ONE_TYPE, IMAGES, OPTIMIZER_FILE = "one_type", "image_layout", "optimizer_file"
"""Facts of a ledger, for findings: `true` where inputs and parameters are all float32 and nothing
casts by itself; `channels_last` where images come so; the file of torch's optimizer that was seen
at work."""


def bare(name: str) -> str:
    """`aten::add_` as `add_`."""
    return name.rpartition("::")[2]


def is_heavy(op: OpCost) -> bool:
    """Work that a compiler hands to a library as it is."""
    name = bare(op.name)
    return any(name.strip("_") == word or word in name.split("_") for word in _HEAVY) or any(
        word in name for word in ("convolution", "attention", "conv2d")
    )


def moves_data(ledger: Ledger) -> list[OpCost]:
    """Copies that only change where or how data lie. Where there are types to cast between,
    `.to(...)` is taken for a cast. What casts take of `copy_` is taken out by their number: names
    do not tell one copy from another."""
    found = [op for op in ledger.ops if bare(op.name) in _LAYOUT]
    if ledger.facts.get(ONE_TYPE) == "true":
        return found
    casts = sum(op.calls for op in found if bare(op.name) == _CAST)
    kept = (
        _fewer(op, casts) if bare(op.name) == _COPY else op
        for op in found
        if bare(op.name) != _CAST
    )
    return [op for op in kept if op.calls > 0]


def _fewer(op: OpCost, calls: float) -> OpCost:
    left = max(0.0, op.calls - calls)
    share = left / op.calls if op.calls else 0.0
    return replace(op, calls=left, kernel_s=op.kernel_s * share, front_s=op.front_s * share)


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


def physical_cores(ledger: Ledger) -> int:
    """Those that may be used, two hyper-threads as one: torch takes no more threads by itself. All
    that may be used where the machine did not say."""
    usable = int(figure(ledger, "cores"))
    said = ledger.environment.cpu.get("physical_cores", "") if ledger.environment else ""
    return min(usable, int(said)) if said.isdigit() and int(said) else usable


def updates_fused(ops: Sequence[OpCost]) -> bool:
    """Whether an optimizer's fused implementation ran: `aten::_fused_adamw_`. In place, which
    `aten::_fused_sdp_choice` and other fused ops are not."""
    names = [bare(op.name) for op in ops]
    return any(name.startswith("_fused_") and name.endswith("_") for name in names)


def figure(ledger: Ledger, name: str) -> float:
    """A figure of the passes; 0 where there is none."""
    try:
        return float(ledger.facts.get(name, "0"))
    except ValueError:
        return 0.0
