"""Workloads of known composition: each step is a row of parts, and each part is timed alone too.

The targets are `ledger_targets.py:make_NAME`, one for each name of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import ledger_parts as parts_of
import torch
from ledger_parts import AUTOGRAD, COMPILED, LEFT, Part
from ledger_training import training, training_step

HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Known:
    """What a workload is made of, and how it is run."""

    parts: Callable[[], list[Part]]
    variant: str = "eager"
    mode: str = "inference"
    threads: int = 1
    more: str = ""
    """Lines for what the step takes more than its parts alone: a truth by difference."""
    within: str = ""
    """Lines of a part that holds all others: its truth is what it takes more than they do."""
    copies: str = ""
    """The part that level 4 must name as copies for a layout."""
    step: Callable[[], Any] | None = None
    """Where it is not the parts one after the other."""


def compiled(parts: Callable[[], list[Part]], **changes: Any) -> Known:
    return Known(parts, **{"variant": "inductor", "more": LEFT, **changes})


WORKLOADS: dict[str, Known] = {
    "mix": Known(parts_of.mix),
    "mix-threads": Known(parts_of.mix, threads=2),
    "python": Known(parts_of.python_only),
    "collecting": Known(parts_of.collecting),
    "locked": Known(parts_of.locked),
    "gil": Known(parts_of.lock_of_the_interpreter),
    "loading": Known(parts_of.loading),
    "tiny-ops": Known(parts_of.tiny_ops),
    "grad": Known(parts_of.with_grad, within=AUTOGRAD, step=lambda: last_part("grad")),
    "huge-op": Known(parts_of.huge_op),
    "layout": Known(parts_of.layout, copies="kernels+allocator"),
    "files": Known(parts_of.files),
    "training": Known(training, mode="training", step=training_step),
    "compiled-mix": compiled(parts_of.compiled_mix),
    "compiled-huge-op": compiled(parts_of.compiled_huge_op),
    "compiled-chain": compiled(parts_of.compiled_chain),
    "compiled-locked": compiled(parts_of.compiled_locked),
    "compiled-loading": compiled(parts_of.compiled_loading),
    "compiled-collecting": compiled(parts_of.compiled_collecting),
    "compiled-tiny-ops": compiled(parts_of.compiled_tiny_ops),
    "compiled-layout": compiled(parts_of.compiled_layout),
    "compiled-files": compiled(parts_of.compiled_files),
    "compiled-breaks": compiled(
        parts_of.compiled_breaks,
        more=f"{LEFT}+wrapper",
        step=lambda: (parts_of.broken_products(), (torch.ones(1),)),
    ),
}


@cache
def made(name: str) -> tuple[Part, ...]:
    """The parts, made once: some of them start a thread."""
    return tuple(WORKLOADS[name].parts())


def target(name: str) -> str:
    return f"{HERE}:make_{name.replace('-', '_')}"


def make(name: str) -> Any:
    """The step as a target: a function and its inputs, or a workload."""
    known = WORKLOADS[name]
    if known.step is not None:
        return known.step()
    inputs = () if known.variant == "eager" else (torch.ones(1),)
    return in_order([part for _, part in made(name)]), inputs


def in_order(parts: list[Callable[[], Any]]) -> Callable[..., Any]:
    """The parts one after the other. No loop: a graph break in one is compiled anew every time. The
    last one's output is returned: a compiler leaves out what nobody asks for."""
    first, middle, last = parts[0], parts[len(parts) // 2], parts[-1]

    def one(unused: Any = None) -> Any:
        return last()

    def two(unused: Any = None) -> Any:
        first()
        return last()

    def three(unused: Any = None) -> Any:
        first()
        middle()
        return last()

    return (one, two, three)[len(parts) - 1]


def last_part(name: str) -> tuple[Callable[[], Any], tuple[()]]:
    return made(name)[-1][1], ()


for _name in WORKLOADS:
    globals()[f"make_{_name.replace('-', '_')}"] = partial(make, _name)

__all__ = ["COMPILED", "WORKLOADS", "Known", "made", "make", "target"]
