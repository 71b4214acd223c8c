"""The memory of an arm's tensors, and what its process holds beside them.

Looked for in the process of the solo pass when nothing is timed there any more: torch's profiler
stays loaded once it has been used.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import replace

from torchstone.machine import memory as memory_signals
from torchstone.measure.allocations import TensorPeak, TensorsBefore, tensor_peak
from torchstone.measure.built import Built, Phase
from torchstone.measure.device import Device
from torchstone.measure.reports import NO_TENSORS, TensorReport
from torchstone.records import Memory

SEED = 9000
"""Of the inputs: any, but the same for every arm."""


def with_tensors(built: Built, phase: Phase, memory: Memory) -> TensorReport:
    """The same memory with the figures of tensors. An arm never fails for lack of them."""
    if built.is_statement or "torch" not in sys.modules:
        return TensorReport(memory)
    try:
        return _looked_at(built, phase, memory)
    except Exception as error:  # a step that cannot be watched is a measured one all the same
        kind = type(error).__name__
        return TensorReport(memory, f"{NO_TENSORS}: {kind}: {error}")


def _looked_at(built: Built, phase: Phase, memory: Memory) -> TensorReport:
    inputs = built.inputs(built.arm.seed + SEED)

    def step() -> None:
        phase("tensors")  # the time-out is of one step
        built.call(inputs)

    step()  # inputs of this very kind have been met, and an optimizer has its state
    resident, before = _between_steps()
    on_device = _device_peak(built.device, step)
    found, reason = (on_device, "") if on_device is not None else tensor_peak(step, before)
    if found is None:
        return TensorReport(memory, f"{NO_TENSORS}: {reason}")
    if not found.peak_bytes:  # a function of arrays
        return TensorReport(memory)
    return TensorReport(
        replace(
            memory,
            tensor_peak_bytes=found.peak_bytes,
            tensor_held_bytes=found.held_bytes,
            overhead_bytes=_overhead(memory, resident, before.bytes),
        )
    )


def _between_steps() -> tuple[int | None, TensorsBefore]:
    """What is resident when free memory has been handed back, and the tensors of the host."""
    gc.unfreeze()  # frozen objects are not among those that the collector names
    gc.collect()
    memory_signals.trim()
    return memory_signals.rss_bytes(), TensorsBefore()


def _overhead(memory: Memory, resident: int | None, tensors: int) -> int | None:
    """Resident beyond tensors and what was there before the model was built."""
    if resident is None or not memory.before_bytes:
        return None
    return max(0, resident - memory.before_bytes - tensors)


def _device_peak(device: Device, step: Callable[[], None]) -> TensorPeak | None:
    if device.reset_peak is None or device.peak_bytes is None or device.held_bytes is None:
        return None
    device.reset_peak()
    held = device.held_bytes()
    step()
    return TensorPeak(held, device.peak_bytes())
