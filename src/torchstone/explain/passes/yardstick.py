"""Ops of the step with nothing to do, called between the step's own samples.

A core's speed changes from second to second, and by a half where somebody else shares it. What an
op takes in the step is told from what it takes with nothing to do, so both must be of the same
moments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from torchstone.explain.passes import names
from torchstone.explain.passes.report import OpTime
from torchstone.explain.passes.tally import entry_of

CALLS = 8
"""Of each, one after the other: the first find the caches as the step has left them."""
MOST_TOYS = 16
Row = tuple[Any, ...]
Speeds = dict[str, float]
"""By event name: what it takes, as a multiple of what it took when its floor was measured."""


@dataclass(frozen=True)
class Toy:
    """A call with nothing to do, and what its events took when floors were measured."""

    call: Callable[[], Any]
    events: Mapping[str, float]
    grad: bool = False


class Yardstick:
    """Calls its toys, under marks that tell them from the step and from each other."""

    def __init__(self, toys: Sequence[Toy]) -> None:
        self.toys = toys
        self._mark = marker()

    def __call__(self) -> None:
        """Once, between two samples."""
        import torch

        for number, toy in enumerate(self.toys):
            with torch.set_grad_enabled(toy.grad), self._mark(f"{names.TOY}{number}"):
                for _ in range(CALLS):
                    toy.call()

    def speeds(self, rows: Iterable[Row]) -> tuple[Speeds, Speeds]:
        """From the tracer's rows, in order: of events without and with gradients."""
        found: dict[bool, dict[str, list[float]]] = {False: {}, True: {}}
        for number, inside in _by_toy(rows).items():
            toy = self.toys[number]
            for name, spans in own_times(inside)[0].items():
                if toy.events.get(name):
                    ratio = median(spans) / toy.events[name]
                    found[toy.grad].setdefault(name, []).append(ratio)
        plain, grad = ({name: median(r) for name, r in found[one].items()} for one in (False, True))
        return plain, grad


def yardstick(toys: Iterable[Toy], ops: Sequence[OpTime]) -> Yardstick:
    """Of the toys that do what the step does, the dearest first."""
    known, found = list(toys), list[Toy]()
    for op in ops:
        for toy in known:
            if op.name in toy.events and (op.with_grad > 0 or not toy.grad) and toy not in found:
                found.append(toy)
    return Yardstick(found[:MOST_TOYS])


def _by_toy(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """What happened under each toy's mark."""
    inside: dict[int, list[Row]] = defaultdict(list)
    end, owner, number = 0, None, 0
    for row in rows:
        thread, start, minus, name, *_ = row
        if name.startswith(names.TOY):
            end, owner, number = start - minus, thread, int(name[len(names.TOY) :])
        elif thread == owner and start < end:
            inside[number].append(row)
    return inside


def own_times(rows: Iterable[Row]) -> tuple[dict[str, list[int]], list[tuple[str, int]]]:
    """Own times by event name; and the outermost events, each with how it was entered."""
    own: dict[str, list[int]] = defaultdict(list)
    tops: list[tuple[str, int]] = []
    stack: list[list[Any]] = []  # name, end, own time so far, span, first child

    def close() -> None:
        name, _, left, span, first = stack.pop()
        own[name].append(max(0, left))
        if not stack:
            tops.append((entry_of(name, first), span))

    for _, start, minus, name, *_ in rows:
        while stack and stack[-1][1] <= start:
            close()
        if stack:
            stack[-1][2] += minus
            stack[-1][4] = stack[-1][4] or name
        stack.append([name, start - minus, -minus, -minus, ""])
    while stack:
        close()
    return own, tops


def marker() -> Any:
    """The cheapest mark that this torch has."""
    try:
        from torch._C._profiler import _RecordFunctionFast
    except ImportError:
        from torch.autograd.profiler import record_function

        return record_function
    return _RecordFunctionFast
