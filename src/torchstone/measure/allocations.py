"""Every allocation of torch's CPU allocator in one step, and the tensors that were there before it.

torch's profiler knows each allocation and the ops and Python functions around it. The tree in which
it keeps them is not a public part of torch; where it is missing or different, we say so. It sees
the thread that runs the step (and a backward pass in it), not threads that the step itself starts.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from torchstone.machine import memory as memory_signals
from torchstone.measure.arm import Built, Device, Phase
from torchstone.measure.channel import NO_TENSORS, TensorReport
from torchstone.records import Frame, Memory

MOST_EVENTS = 2_000_000
CLOCKS_APART_S = 0.01
"""Far more than the profiler's clock and Python's can differ (microseconds)."""
_OURS = ("torchstone/profile/", "torchstone/measure/allocations")
_PROFILER = ("torch/profiler/", "torch/autograd/profiler")


@dataclass(frozen=True)
class Allocation:
    """Bytes taken (or given back, below zero) at an address, and by whom, the outermost first."""

    time_ns: int
    address: int
    bytes: int
    stack: tuple[Frame, ...]


def allocations(step: Callable[[], object], stacks: bool = True) -> tuple[list[Allocation], str]:
    """In order of time; and why there are none, where torch does not tell."""
    try:
        # Not `torch.profiler.profile`, which does the same: its start imports the compiler, 2 s.
        from torch.autograd.profiler import profile

        with profile(use_kineto=True, with_stack=stacks, profile_memory=True) as profiler:
            step()
        roots = profiler.kineto_results.experimental_event_tree()
    except (ImportError, AttributeError) as error:
        return [], f"not measurable here: this torch does not tell ({error})"
    found = sorted(_walk(roots), key=lambda event: event.time_ns)
    return found[:MOST_EVENTS], ""


def _walk(roots: list[Any]) -> Iterator[Allocation]:
    waiting: list[tuple[Any, tuple[Frame, ...]]] = [(root, ()) for root in roots]
    while waiting:
        event, stack = waiting.pop()
        kind = event.tag.name
        if kind == "Allocation":
            fields = event.extra_fields
            if str(fields.device) == "cpu":
                yield Allocation(event.start_time_ns, fields.ptr, fields.alloc_size, stack)
            continue
        frame = _frame_of(kind, event)
        inside = (*stack, frame) if frame is not None else stack
        waiting.extend((child, inside) for child in event.children)


def _frame_of(kind: str, event: Any) -> Frame | None:
    if kind == "PyCall":
        site = event.extra_fields.callsite
        if any(ours in site.file_name for ours in _OURS) or site.file_name.startswith(_PROFILER):
            return None
        module = event.name if event.name.startswith("nn.Module: ") else ""
        return Frame(module or site.function_name, site.file_name, site.line_number)
    if kind == "TorchOp":
        return Frame(event.name, kind="op")
    return None  # a built-in function adds nothing to the op that it calls


@dataclass(frozen=True)
class Peak:
    """When most bytes were alive, how many, and which allocations these were."""

    time_ns: int
    bytes: int
    alive: tuple[Allocation, ...]


def peak_of(events: list[Allocation]) -> Peak:
    """The peak of what these events took; of memory from before they know nothing."""
    levels = timeline(events)
    when = max(range(len(levels)), key=lambda place: levels[place][1], default=-1)
    if when < 0 or not levels[when][1]:
        return Peak(0, 0, ())
    alive: dict[int, Allocation] = {}
    for event in events[: when + 1]:
        if event.bytes > 0:
            alive[event.address] = event
        else:
            alive.pop(event.address, None)
    return Peak(*levels[when], tuple(alive.values()))


def timeline(events: list[Allocation]) -> list[tuple[int, int]]:
    """Time and bytes alive of what the events took, after each of them."""
    held = accumulate(change for _, change in _changes(events))
    return [(event.time_ns, level) for event, level in zip(events, held, strict=True)]


def _changes(events: list[Allocation]) -> Iterator[tuple[int, int]]:
    """The time of each event, and by how much it changes what is alive of what they took."""
    alive: dict[int, int] = {}
    for event in events:
        if event.bytes > 0:
            alive[event.address] = event.bytes
            yield event.time_ns, event.bytes
        else:
            yield event.time_ns, -alive.pop(event.address, 0)


@dataclass
class _Memory:
    """One piece of memory from before, the tensors that share it, and when the last one ended."""

    kind: str
    bytes: int
    holders: list[weakref.ref[Any]] = field(default_factory=list)
    ended_ns: int = 0

    def ended(self, holder: weakref.ref[Any]) -> None:
        self.holders.remove(holder)
        if not self.holders:
            self.ended_ns = time.time_ns()


class TensorsBefore:
    """Tensors that Python knows before a step, and which of them the step gives back.

    The profiler cannot tell: torch reports no release of memory that was taken while it was off. So
    each tensor is asked to say when it ends, which changes nothing of how long it lives.
    """

    def __init__(self) -> None:
        torch: Any = sys.modules.get("torch")
        self._memory: dict[int, _Memory] = {}
        for thing in gc.get_objects() if torch is not None else ():
            try:
                if not issubclass(type(thing), torch.Tensor) or thing.device.type != "cpu":
                    continue
                address, size = _memory_of(thing)
                kind = f"{type(thing).__name__} {str(thing.dtype).removeprefix('torch.')}"
                memory = self._memory.setdefault(address, _Memory(kind, size))
                memory.holders.append(weakref.ref(thing, memory.ended))
            except Exception:  # a tensor without memory of its own: sparse, fake, nested
                continue

    @property
    def bytes(self) -> int:
        """Of all of them; shared memory once."""
        return sum(memory.bytes for memory in self._memory.values())

    def alive_at(self, time_ns: int) -> dict[str, tuple[int, int]]:
        """By kind: how many and how many bytes; shared memory once."""
        found: dict[str, tuple[int, int]] = {}
        for memory in self._memory.values():
            if memory.bytes and not 0 < memory.ended_ns <= time_ns:
                count, total = found.get(memory.kind, (0, 0))
                found[memory.kind] = (count + 1, total + memory.bytes)
        return found

    def still(self, time_ns: int) -> list[_Memory]:
        """Those that were still there at a time."""
        ended = (0 < memory.ended_ns <= time_ns for memory in self._memory.values())
        return [m for m, gone in zip(self._memory.values(), ended, strict=True) if not gone]


def _memory_of(tensor: Any) -> tuple[int, int]:
    """Where a tensor's memory is and how large. oneDNN's own format hides the first."""
    if tensor.is_mkldnn:
        return -id(tensor), tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    if storage.device.type != "cpu":  # a fake tensor's, which says `cpu` of itself
        return 0, 0
    return storage.data_ptr(), storage.nbytes()


@dataclass(frozen=True)
class TensorPeak:
    """Bytes of tensors alive between two steps, and at the fullest moment of the second."""

    held_bytes: int
    peak_bytes: int


def tensor_peak(step: Callable[[], object], before: TensorsBefore) -> tuple[TensorPeak | None, str]:
    """Of all tensors, exact by the allocator's events; None, and why, where torch does not tell.

    `before` are the tensors of this moment. Two steps are watched and the second counts: what a
    step replaces (gradients, a cache) was taken by the first, so the allocator reports its release.
    """
    began_ns = 0

    def twice() -> None:
        nonlocal began_ns
        step()
        gc.collect()
        time.sleep(CLOCKS_APART_S)
        began_ns = time.time_ns()
        step()

    gc.freeze()  # so that collecting looks at what the first step made, and is quick
    try:
        events, reason = allocations(twice, stacks=False)
    finally:
        gc.unfreeze()
    if reason or len(events) >= MOST_EVENTS:
        return None, reason or "the step makes more allocations than are recorded"
    return _second_peak(events, before, began_ns), ""


def _second_peak(events: list[Allocation], before: TensorsBefore, began_ns: int) -> TensorPeak:
    changes = list(_changes(events))
    older = before.still(began_ns)
    held = sum(change for time_ns, change in changes if time_ns < began_ns)
    held += sum(memory.bytes for memory in older)
    later = [(time_ns, change) for time_ns, change in changes if time_ns >= began_ns]
    later += [(memory.ended_ns, -memory.bytes) for memory in older if memory.ended_ns]
    levels = accumulate((change for _, change in sorted(later)), initial=held)
    return TensorPeak(held, max(levels))


# The memory of an arm's tensors, and what its process holds beside them.
#
# Looked for in the process of the solo pass when nothing is timed there any more: torch's profiler
# stays loaded once it has been used.

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
