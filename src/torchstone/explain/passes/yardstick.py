"""Ops of the step with nothing to do, called between the step's own samples.

A core's speed changes from second to second, by a factor of two where others use it too. What an
op takes in the step is told from what it takes with nothing to do, so both must be of the same
moments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torchstone.explain.passes import names
from torchstone.explain.passes.report import OpTime
from torchstone.explain.passes.tally import entry_of

CALLS = 6
"""Of each, one after the other: the first find the caches as the step has left them."""
MOST_TOYS = 16
Row = tuple[Any, ...]
Speeds = dict[str, float]
"""By event name: what it takes, as a multiple of what it took when its floor was measured."""


@dataclass(frozen=True)
class Toy:
    """A call with nothing to do, and what its events took when floors were measured."""

    call: Callable[[], Any]
    op: str
    """The one that it is a call of."""
    events: Mapping[str, float]
    inside: Mapping[str, float] = field(default_factory=dict)
    """How many events each of these calls."""
    grad: bool = False


Groups = dict[tuple[str, bool], Sequence[Toy]]
"""The toys that a floor is of, by op and by whether it makes an autograd node."""


def toys_of(name: str, toys: Iterable[Toy], grad: bool, inside: float | None = None) -> list[Toy]:
    """The calls of an op; where there is none, those that call it on their way. Of these the ones
    that call as many ops `inside`: a product with a number is another than one of two tensors."""
    alike = [toy for toy in toys if toy.grad == grad and name in toy.events]
    found = [toy for toy in alike if toy.op == name] or alike
    if inside is None or not found:
        return found
    nearest = min(abs(toy.inside.get(name, 0.0) - inside) for toy in found)
    return [toy for toy in found if abs(toy.inside.get(name, 0.0) - inside) == nearest]


def groups_of(toys: Sequence[Toy], ops: Sequence[OpTime]) -> Groups:
    """For the ops of a step that have a floor, the dearest first."""
    found: Groups = {}
    for op in ops:
        if op.calls and not (names.is_view(op.name) or names.allocates(op.name)):
            for grad in (False, True) if op.with_grad > 0 else (False,):
                group = toys_of(op.name, toys, grad, op.inside / op.calls)
                if group:
                    found[op.name, grad] = group
    return found


def floor_by(name: str, group: Sequence[Toy]) -> float:
    """What an event took in these toys when floors were measured, the middle one of them."""
    return median(toy.events[name] for toy in group)


class Yardstick:
    """Calls its toys, under marks that tell them from the step and from each other."""

    def __init__(self, groups: Groups) -> None:
        """For each op all toys that its floor is of, or none; the first ops come first."""
        self.toys: list[Toy] = []
        self._groups: Groups = {}
        for key, group in groups.items():
            more = [toy for toy in group if toy not in self.toys]
            if len(self.toys) + len(more) <= MOST_TOYS:
                self.toys += more
                self._groups[key] = group
        self._mark = marker()

    def __call__(self) -> None:
        """Once, between two samples."""
        import torch

        for number, toy in enumerate(self.toys):
            with torch.set_grad_enabled(toy.grad), self._mark(f"{names.TOY}{number}"):
                for _ in range(CALLS):
                    toy.call()

    def speeds(self, rows: Iterable[Row]) -> tuple[Speeds, Speeds]:
        """From the tracer's rows, in order: of events without and with gradients. Each is of all
        the toys that its floor is of, so that the two are alike."""
        seen = {number: per_call(inside) for number, inside in _by_toy(rows).items()}
        found: dict[bool, Speeds] = {False: {}, True: {}}
        for (name, grad), group in self._groups.items():
            numbers = [self.toys.index(toy) for toy in group]
            if all(name in seen.get(number, {}) for number in numbers):
                now, then = median(seen[number][name] for number in numbers), floor_by(name, group)
                if then:
                    found[grad][name] = now / then
        return found[False], found[True]


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


def per_call(rows: Iterable[Row]) -> dict[str, float]:
    """By event name: its own time in a call, shared among its events there, the middle one of the
    calls. An event may occur twice in a call, once within the other, and the two are not alike."""
    calls: list[dict[str, list[int]]] = []
    end = 0
    inside: list[Row] = []
    for row in rows:
        if row[1] >= end and inside:
            calls.append(own_times(inside)[0])
            inside = []
        end = max(end, row[1] - row[2]) if inside else row[1] - row[2]
        inside.append(row)
    if inside:
        calls.append(own_times(inside)[0])
    names_seen = {name for call in calls for name in call if "::" in name}
    return {
        name: median(sum(call[name]) / len(call[name]) for call in calls if name in call)
        for name in names_seen
    }


def children(rows: Iterable[Row]) -> dict[str, float]:
    """By event name: how many others it calls, on average."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    stack: list[tuple[str, int]] = []
    for _, start, minus, name, *_ in rows:
        while stack and stack[-1][1] <= start:
            stack.pop()
        if stack:
            counts[stack[-1][0]][1] += 1
        counts[name][0] += 1
        stack.append((name, start - minus))
    return {name: inside / calls for name, (calls, inside) in counts.items()}


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
