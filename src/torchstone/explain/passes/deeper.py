"""What stands behind the kernels: the environment, libraries, threads, and work counted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torchstone.explain.passes.report import Library
from torchstone.explain.passes.verbose import library_lines
from torchstone.machine.cgroup import usable_cores
from torchstone.machine.clock import measure_clock
from torchstone.machine.environment import describe_environment
from torchstone.measure.built import Built, Phase
from torchstone.measure.contract import describe_contract
from torchstone.measure.flops import count_flops
from torchstone.records import ArmSpec, Contract, Environment, Flops, UsageError
from torchstone.workloads import Inputs


def environment(arm: ArmSpec, threads: Mapping[str, int]) -> Environment:
    """Where the passes ran; hidden variables stay hidden."""
    return describe_environment(
        arm_env={}, target_dir=None, threads=threads, allocator=arm.allocator, salt=os.urandom(16)
    )


def contract(built: Built, inputs: Inputs) -> Contract | None:
    """Modes and types, for the roofs; without the outputs."""
    if built.prepared is None:
        return None
    return describe_contract(built.arm, built.prepared, inputs, None)


def count(arm: ArmSpec, phase: Phase) -> Flops | None:
    """Operations and bytes of one plain step; None where they cannot be counted."""
    phase("counting")
    try:
        return count_flops(arm, phase)
    except (UsageError, RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def libraries(block: Callable[[], object], loops: int) -> tuple[Library, ...]:
    """What oneDNN and MKL say of one block of steps."""
    return library_lines(block, loops)


def facts(built: Built) -> dict[str, str]:
    """The interpreter's lock, threads, cores and vector instructions."""
    found = {"gil": gil_state(), "cores": str(usable_cores())}
    clock = measure_clock().peak
    if clock is not None:
        found["clock_hz"] = f"{clock.value:.0f}"
    found["switch_interval_s"] = f"{sys.getswitchinterval():g}"
    torch = sys.modules.get("torch")
    if torch is not None:
        found["threads"] = str(torch.get_num_threads())
        found["interop"] = str(torch.get_num_interop_threads())
        found["isa"] = _isa(torch)
        found["device"] = built.device.name
        found["torch"] = str(torch.__version__)
    return found


def gil_state(module: Any = sys) -> str:
    """`on`, `off`, or `none` for a build of the interpreter that has no lock at all.

    A free-threaded build may have switched the lock on for an extension that asks for it.
    """
    asked = getattr(module, "_is_gil_enabled", None)
    if asked is None:
        return "on"
    return "on" if asked() else "off"


def _isa(torch: Any) -> str:
    try:
        return str(torch.backends.cpu.get_cpu_capability())
    except (AttributeError, RuntimeError):
        return ""
