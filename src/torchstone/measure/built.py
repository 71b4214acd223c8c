"""An arm built in this process: its step, fresh inputs for it, and the blocks that time it."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torchstone.measure.device import CPU, Device, find_device
from torchstone.measure.loops import TimeBlock, statement_block, step_block
from torchstone.measure.statement import compile_statement
from torchstone.records import ArmSpec
from torchstone.variants import Prepared, prepare, resolve_variant
from torchstone.workloads import (
    Inputs,
    Workload,
    describe_shapes,
    draw,
    draw_at,
    load_workload,
    walk,
)

RING_SLOTS = 64
RING_BYTES = 64 * 1024 * 1024
"""Inputs of one turn: all fresh up to these limits, then the ring goes round."""

OPTIMIZERS_IMPORT = ("torch._dynamo",)
"""What torch's optimizers import when the first one is made: some 70 MB that are not the model's,
and that a compiled arm has imported before its memory is looked at."""

Phase = Callable[[str], None]


@dataclass(frozen=True)
class Built:
    """What the loops need. A statement has `inner` and no workload."""

    arm: ArmSpec
    device: Device
    workload: Workload | None = None
    prepared: Prepared | None = None
    inner: Callable[[Any, Any], int] | None = None

    @property
    def is_statement(self) -> bool:
        """Timed in `timeit` blocks, without inputs or outputs."""
        return self.inner is not None

    def inputs(self, seed: int, shape: int = 0) -> Inputs:
        """Inputs for one call, in the arm's precision and on its device."""
        assert self.workload is not None
        assert self.prepared is not None
        return self.prepared.cast(draw_for(self.arm, self.workload, seed, shape))

    def call(self, inputs: Inputs) -> Any:
        """One step, waited for."""
        assert self.prepared is not None
        output = self.prepared.step(*inputs.args, **inputs.kwargs)
        if self.device.synchronize is not None:
            self.device.synchronize()
        return output

    def ring(self, seed: int, slots: int, timed: bool = False) -> list[Inputs]:
        """`slots` fresh inputs, fewer where they would take too much memory.

        All of the base shape; in `timed` turns of an arm whose shapes vary, whole passes through
        the others.
        """
        shapes = self.timed_shapes if timed else (0,)
        once = [self.inputs(seed + i, shape) for i, shape in enumerate(shapes)]
        size = max(1, sum(map(inputs_bytes, once)))
        passes = min(min(slots, RING_SLOTS) // len(shapes), RING_BYTES // size)
        passes = max(2 if len(shapes) == 1 else 1, passes)
        more = range(len(shapes), passes * len(shapes))
        return once + [self.inputs(seed + i, shapes[i % len(shapes)]) for i in more]

    @property
    def timed_shapes(self) -> tuple[int, ...]:
        """The shapes that a sample goes through, in order."""
        return tuple(range(1, self.arm.shapes + 1)) if self.arm.shapes > 1 else (0,)

    def whole_passes(self, loops: int) -> int:
        """At least `loops` calls, every shape equally often: no sample is of small ones alone."""
        return -(-loops // self.arm.shapes) * self.arm.shapes

    def block(self, ring: list[Inputs], loops: int) -> TimeBlock:
        """The function that times one sample."""
        if self.inner is not None:
            assert self.arm.statement is not None
            return statement_block(self.inner, loops, self.arm.statement.clock)
        assert self.prepared is not None
        return step_block(self.prepared.step, ring, loops, self.device.synchronize)


def build(arm: ArmSpec, phase: Phase) -> Built:
    """Import and build. `phase` is called before each part, so that a death can be placed."""
    if arm.statement is not None:
        phase("build")
        return Built(arm, CPU, inner=compile_statement(arm.statement))
    phase("import")
    import_variant(arm)
    workload = load_workload(arm, phase)
    set_threads(arm)
    device = find_device(arm.device)
    prepared = prepare(workload, draw_for(arm, workload, arm.seed), arm)
    if arm.shapes > 1:
        varied = f"shapes varied: {describe_shapes(workload, arm.seed, arm.shapes)}"
        prepared = replace(prepared, notes=(*prepared.notes, varied))
    return Built(arm, device, workload, prepared)


def draw_for(arm: ArmSpec, workload: Workload, seed: int, shape: int = 0) -> Inputs:
    """Inputs as the arm wants them: of the one shape, or of one of its shapes."""
    return draw_at(workload, seed, shape) if arm.shapes > 1 else draw(workload, seed)


def import_variant(arm: ArmSpec) -> None:
    """Find the variant while the path is still as we made it, and import what it runs by."""
    variant = resolve_variant(arm.variant)
    if _wants_torch(arm):
        _import_torch(arm)
    wanted = tuple(getattr(variant, "modules", ()))
    if arm.mode == "training":
        wanted += OPTIMIZERS_IMPORT
    for name in wanted:
        with contextlib.suppress(ImportError):  # whoever uses it will say so
            importlib.import_module(name)


def _wants_torch(arm: ArmSpec) -> bool:
    return arm.variant != "eager" or arm.mode == "training" or arm.precision != "fp32"


def _import_torch(arm: ArmSpec) -> None:
    """Before the memory baseline is taken, so that torch itself never counts as the model's."""
    from torchstone.variants import NotSupported

    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise NotSupported(f"{arm.variant} needs torch, and this interpreter has none") from None


def set_threads(arm: ArmSpec) -> None:
    """OMP_NUM_THREADS is in the environment already; torch has a say of its own."""
    torch = sys.modules.get("torch")
    if arm.threads is not None and torch is not None:
        torch.set_num_threads(arm.threads)


def thread_counts() -> dict[str, int]:
    """What the libraries say they will use."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}


def inputs_bytes(inputs: Inputs) -> int:
    """Memory of the tensors and arrays of one call."""
    total = 0
    for _, leaf in walk((inputs.args, inputs.kwargs), ""):
        size = getattr(leaf, "nbytes", 0)
        total += int(size) if isinstance(size, (int, float)) and math.isfinite(size) else 0
    return total
