"""The one place that knows accelerators, written against `torch.accelerator`.

A `Device` says how to wait for queued work and how much memory the allocator has held. On the CPU
there is nothing to wait for, and memory is the operating system's to tell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.variants import NotSupported


@dataclass(frozen=True)
class Device:
    """What the timed loop needs to know about where the work runs."""

    name: str
    synchronize: Callable[[], None] | None = None
    reset_peak: Callable[[], None] | None = None
    peak_bytes: Callable[[], int] | None = None
    held_bytes: Callable[[], int] | None = None


CPU = Device("cpu")


def find_device(name: str) -> Device:
    """The device by name; `NotSupported` where this machine or this torch has none of the kind."""
    kind = name.split(":")[0]
    if kind == "cpu":
        return CPU
    torch = sys.modules.get("torch")
    if torch is None:
        raise NotSupported(f"{name}: the target does not use torch")
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not accelerator.is_available():
        raise NotSupported(f"{name}: this torch finds no accelerator on this machine")
    current = accelerator.current_accelerator()
    if current is None or current.type != kind:
        raise NotSupported(f"{name}: the accelerator here is {current and current.type}")
    return accelerator_device(name, accelerator)


def accelerator_device(name: str, accelerator: Any) -> Device:
    """A device on top of anything that looks like `torch.accelerator`."""
    return Device(
        name,
        synchronize=accelerator.synchronize,
        reset_peak=getattr(accelerator, "reset_peak_memory_stats", None),
        peak_bytes=getattr(accelerator, "max_memory_allocated", None),
        held_bytes=getattr(accelerator, "memory_allocated", None),
    )
