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

CALLS = 3
"""Of each, one after the other: the first finds the caches as the step has left them."""
MOST_TOYS = 16
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Toy:
    """A call with nothing to do, and the events that it makes."""

    call: Callable[[], Any]
    events: frozenset[str]
    grad: bool = False


class Yardstick:
    """Calls its toys, under marks that tell them from the step."""

    def __init__(self, toys: Sequence[Toy]) -> None:
        self._toys = toys
        self._mark = marker()

    def __call__(self) -> None:
        """Once, between two samples."""
        import torch

        for toy in self._toys:
            with (
                torch.set_grad_enabled(toy.grad),
                self._mark(names.GRAD_FLOOR if toy.grad else names.FLOOR),
            ):
                for _ in range(CALLS):
                    toy.call()


def yardstick(toys: Iterable[Toy], ops: Sequence[OpTime]) -> Yardstick | None:
    """Of the toys that do what the step does, the dearest first; None where there are none."""
    known, found = list(toys), dict[Toy, None]()
    for op in ops:
        for toy in known:
            if op.name in toy.events and (op.with_grad > 0 or not toy.grad):
                found[toy] = None
    return Yardstick(list(found)[:MOST_TOYS]) if found else None


def floors_seen(rows: Iterable[Row]) -> tuple[dict[str, float], dict[str, float]]:
    """From the tracer's rows, in order: own traced times of the toys' events, without and with
    gradients."""
    inside: dict[str, list[Row]] = {names.FLOOR: [], names.GRAD_FLOOR: []}
    end, owner, kind = 0, None, names.FLOOR
    for row in rows:
        thread, start, minus, name, *_ = row
        if name in inside:
            end, owner, kind = start - minus, thread, name
        elif thread == owner and start < end:
            inside[kind].append(row)
    plain, grad = (_middle(own_times(inside[one])[0]) for one in (names.FLOOR, names.GRAD_FLOOR))
    return plain, grad


def _middle(own: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: median(spans) for name, spans in own.items() if "::" in name}


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
