"""Workloads of known composition: each step is a row of parts, and each part has a clock.

The targets are `ledger_targets.py:make_NAME`, one for each name of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import ledger_parts as parts_of
import torch
from ledger_clock import clocked
from ledger_parts import COMPILED, LEFT, OPS, Part, disabled
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
    """Lines for what the step takes more than its parts: a truth by difference."""
    within: str = ""
    """Lines of a part that the others hold once more."""
    alone: bool = False
    """Its parts cannot be timed in the step, and are in a process of their own."""
    copies: str = ""
    """The part that level 4 must name as copies for a layout."""
    step: Callable[[Sequence[Callable[[], Any]]], Any] | None = None
    """Made of the parts, where it is not one after the other."""


def compiled(parts: Callable[[], list[Part]], **changes: Any) -> Known:
    """A compiled part cannot have a clock; it is what the others leave of the step."""
    return Known(parts, **{"variant": "inductor", "more": f"{COMPILED}+{LEFT}", **changes})


WORKLOADS: dict[str, Known] = {
    "mix": Known(parts_of.mix),
    "mix-threads": Known(parts_of.mix, threads=2),
    "python": Known(parts_of.python_only),
    "collecting": Known(parts_of.collecting),
    "locked": Known(parts_of.locked),
    "gil": Known(parts_of.lock_of_the_interpreter),
    "loading": Known(parts_of.loading),
    "tiny-ops": Known(parts_of.tiny_ops, within="interpreter"),
    "grad": Known(parts_of.with_grad, within="dispatch+allocator"),
    "huge-op": Known(parts_of.huge_op),
    "layout": Known(parts_of.layout, copies="kernels+allocator"),
    "files": Known(parts_of.files),
    "training": Known(training, mode="training", more=OPS, step=training_step),
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
        alone=True,
        step=lambda _: (parts_of.broken_products(), (torch.ones(1),)),
    ),
}


@cache
def made(name: str) -> tuple[Part, ...]:
    """The parts, made once: some of them start a thread."""
    return tuple(WORKLOADS[name].parts())


def target(name: str) -> str:
    return f"{HERE}:make_{name.replace('-', '_')}"


def with_clocks(name: str) -> list[Callable[[], Any]]:
    """The parts' calls, each with its clock; what is compiled has none."""
    found: list[Callable[[], Any]] = []
    for number, (lines, part) in enumerate(made(name)):
        if lines == COMPILED:
            found.append(part)
        elif WORKLOADS[name].variant == "eager":
            found.append(clocked(number, part))
        else:
            found.append(disabled(clocked(number, part)))
    return found


def make(name: str) -> Any:
    """The step as a target: a function and its inputs, or a workload."""
    known = WORKLOADS[name]
    parts = with_clocks(name)
    if known.step is not None:
        return known.step(parts)
    inputs = () if known.variant == "eager" else (torch.ones(1),)
    return in_order(parts), inputs


def in_order(parts: list[Callable[[], Any]]) -> Callable[..., Any]:
    """The parts one after the other. No loop: a graph break in one is compiled again every time.

    The last one's output is returned: a compiler leaves out what nobody asks for."""
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


for _name in WORKLOADS:
    globals()[f"make_{_name.replace('-', '_')}"] = partial(make, _name)

__all__ = ["COMPILED", "WORKLOADS", "Known", "made", "make", "target"]
