"""The compiler's own one-time cost: what a machine's first compilation pays for all later ones."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from torchstone.measure.built import Phase, set_threads
from torchstone.measure.clock import wall_clock
from torchstone.records import ArmSpec

AHEAD_OF_TIME = "aoti"


def warm_toolchain(arm: ArmSpec, phase: Phase) -> int:
    """Compile something trivial; precompiled headers are left behind. Nanoseconds."""
    phase("import")
    import torch

    set_threads(arm)
    phase("first call")
    started = wall_clock()
    if arm.variant.split("+")[0] == AHEAD_OF_TIME:
        _compile_ahead(torch, arm.device)
    else:
        torch.compile(lambda x: x * 2 + 1, backend="inductor")(torch.ones(64))
    return wall_clock() - started


def _compile_ahead(torch: Any, device: str) -> None:
    """AOTInductor has headers of its own, another for each kind of device."""

    class Trivial(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 + 1

    exported = torch.export.export(Trivial(), (torch.ones(64, device=device),))
    folder = tempfile.mkdtemp(prefix="toolchain-", dir=os.environ.get("TORCHSTONE_SCRATCH"))
    torch._inductor.aoti_compile_and_package(
        exported, package_path=os.path.join(folder, "trivial.pt2")
    )
