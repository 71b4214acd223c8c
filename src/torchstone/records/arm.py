"""What is measured and how it is run: one arm of a case."""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("inference", "training")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp", "amp-bf16", "amp-fp16")
ALLOCATORS = ("default", "keep", "jemalloc", "tcmalloc")
"""`default` is the system's own; `keep` is it too, told never to give memory back."""
DYNAMIC_SHAPES = 4
"""Input shapes of all arms of a case in which one is compiled for dynamic shapes."""


@dataclass(frozen=True)
class Statement:
    """Source code timed in blocks, as `python -m timeit` takes it; `clock` is `wall` or `cpu`."""

    stmt: str
    setup: str = "pass"
    clock: str = "wall"


@dataclass(frozen=True)
class ArmSpec:
    """A workload under a variant, in an interpreter, with an environment.

    `target` is `path.py:make` (a factory), `path.py:fn()` (a function timed as it is),
    `pkg.mod:make`, or a suite name such as `hf:BertForMaskedLM`; it is empty when `statement`
    is set. `python`, `threads` and `env` let two arms differ in interpreter or settings.
    `allocator` is the one that is used: which one where nobody chose is decided before there is
    an arm (`machine.usual_allocator`).
    """

    name: str
    target: str = ""
    variant: str = "eager"
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    allocator: str = "default"
    seed: int = 0
    statement: Statement | None = None
    shapes: int = 1
    """Input shapes that a sample goes through in turn, none of them seen in warm-up; 1: one shape,
    always the same."""
