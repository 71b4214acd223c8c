"""The compiler's own one-time cost: what a machine's first compilation pays for all later ones."""

from __future__ import annotations

from torchstone.measure.built import Phase, set_threads
from torchstone.measure.clock import wall_clock
from torchstone.records import ArmSpec


def warm_toolchain(arm: ArmSpec, phase: Phase) -> int:
    """Compile something trivial; precompiled headers are left behind. Nanoseconds."""
    phase("import")
    import torch

    set_threads(arm)
    phase("first call")
    started = wall_clock()
    torch.compile(lambda x: x * 2 + 1, backend="inductor")(torch.ones(64))
    return wall_clock() - started
