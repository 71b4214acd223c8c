"""Every allocation of torch's CPU allocator in one step, with the code that asked for it.

torch's profiler knows each allocation and the ops and Python functions around it. The tree in which
it keeps them is not a public part of torch; where it is missing or different, we say so.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torchstone.profile.probes.base import Step

MOST_EVENTS = 2_000_000
_OUR_ROOM = "torchstone/profile/"
_PROFILER = ("torch/profiler/", "torch/autograd/profiler")


@dataclass(frozen=True)
class Place:
    """A Python function or an op around an allocation."""

    name: str
    file: str = ""
    line: int = 0
    kind: str = "python"


@dataclass(frozen=True)
class Allocation:
    """Bytes taken (or given back, below zero) at an address, and by whom, the outermost first."""

    time_ns: int
    address: int
    bytes: int
    stack: tuple[Place, ...]


def allocations(step: Step) -> tuple[list[Allocation], str]:
    """In order of time; and why there are none, where torch does not tell."""
    try:
        from torch.profiler import ProfilerActivity, profile

        with profile(
            activities=[ProfilerActivity.CPU], with_stack=True, profile_memory=True
        ) as profiler:
            step()
        roots = profiler.profiler.kineto_results.experimental_event_tree()
    except (ImportError, AttributeError) as error:
        return [], f"not measurable here: this torch does not tell ({error})"
    found = sorted(_walk(roots), key=lambda event: event.time_ns)
    return found[:MOST_EVENTS], ""


def _walk(roots: list[Any]) -> Iterator[Allocation]:
    waiting: list[tuple[Any, tuple[Place, ...]]] = [(root, ()) for root in roots]
    while waiting:
        event, stack = waiting.pop()
        kind = event.tag.name
        if kind == "Allocation":
            fields = event.extra_fields
            if str(fields.device) == "cpu":
                yield Allocation(event.start_time_ns, fields.ptr, fields.alloc_size, stack)
            continue
        place = _place(kind, event)
        inside = (*stack, place) if place is not None else stack
        waiting.extend((child, inside) for child in event.children)


def _place(kind: str, event: Any) -> Place | None:
    if kind == "PyCall":
        site = event.extra_fields.callsite
        if _OUR_ROOM in site.file_name or site.file_name.startswith(_PROFILER):
            return None
        module = event.name if event.name.startswith("nn.Module: ") else ""
        return Place(module or site.function_name, site.file_name, site.line_number)
    if kind == "TorchOp":
        return Place(event.name, kind="op")
    return None  # a built-in function adds nothing to the op that it calls


@dataclass(frozen=True)
class Peak:
    """When most bytes were alive, how many, and which allocations these were."""

    time_ns: int
    bytes: int
    alive: tuple[Allocation, ...]


def peak_of(events: list[Allocation]) -> Peak:
    """The peak of what these events took; of memory from before they know nothing."""
    alive: dict[int, Allocation] = {}
    held, best, when = 0, 0, -1
    for place, event in enumerate(events):
        if event.bytes > 0:
            alive[event.address] = event
            held += event.bytes
        elif event.address in alive:
            held -= alive.pop(event.address).bytes
        if held > best:
            best, when = held, place
    alive.clear()
    for event in events[: when + 1]:
        if event.bytes > 0:
            alive[event.address] = event
        else:
            alive.pop(event.address, None)
    at = events[when].time_ns if when >= 0 else 0
    return Peak(at, best, tuple(alive.values()))


def timeline(events: list[Allocation]) -> list[tuple[int, int]]:
    """Time and bytes alive of what the events took, after each of them."""
    alive: dict[int, int] = {}
    held, found = 0, []
    for event in events:
        if event.bytes > 0:
            alive[event.address] = event.bytes
            held += event.bytes
        else:
            held -= alive.pop(event.address, 0)
        found.append((event.time_ns, held))
    return found


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
                storage = thing.untyped_storage()
                address, size = storage.data_ptr(), storage.nbytes()
                kind = f"{type(thing).__name__} {str(thing.dtype).removeprefix('torch.')}"
                memory = self._memory.setdefault(address, _Memory(kind, size))
                memory.holders.append(weakref.ref(thing, memory.ended))
            except Exception:  # a tensor without memory of its own: sparse, fake, nested
                continue

    def alive_at(self, time_ns: int) -> dict[str, tuple[int, int]]:
        """By kind: how many and how many bytes; shared memory once."""
        found: dict[str, tuple[int, int]] = {}
        for memory in self._memory.values():
            if memory.bytes and not 0 < memory.ended_ns <= time_ns:
                count, total = found.get(memory.kind, (0, 0))
                found[memory.kind] = (count + 1, total + memory.bytes)
        return found
