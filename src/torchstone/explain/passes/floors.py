"""What an event of the tracer costs, and each op's front end, on operands of one element.

An op on one element spends its time in argument parsing, dispatch, checks and making its result;
its kernel has nothing to do. What the same op takes more in the workload is kernel.
"""

from __future__ import annotations

import mmap
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Any

from torchstone.explain.passes import names
from torchstone.explain.passes.report import Costs, quartile
from torchstone.explain.passes.tally import entry_of
from torchstone.explain.passes.traced import trace
from torchstone.explain.passes.zoo import zoo
from torchstone.measure.clock import thread_clock, wall_clock

CALLS = 40
ROUNDS = 6
FAULT_PAGES = 512
POOL_ELEMENTS = 1 << 16
"""Torch gives work to its threads from 32,768 elements on; twice that is shared by two."""


def measure_costs(training: bool) -> Costs:
    """On this machine, in this process, now."""
    import torch

    with torch.no_grad():
        plain = [_look(call) for call in zoo(grad=False)]
    known = [one for one in plain if one is not None]
    event = statistics.median(one.event for one in known)
    floors = _floors(known)
    grad_floors: dict[str, float] = {}
    if training:
        with torch.enable_grad():
            grad_floors = _floors([one for one in map(_look, zoo(grad=True)) if one is not None])
    bindings = {one.entry: max(0.0, one.outside(event)) for one in known if one.entry}
    return Costs(
        event=event,
        binding=statistics.median(bindings.values()),
        bindings=bindings,
        floors=floors,
        grad_floors=grad_floors,
        default_floor=statistics.median(floors.values()),
        pool=_pool_cost(),
        fault=_fault_cost(),
    )


def usual_costs(found: Sequence[Costs]) -> Costs:
    """Of costs measured at several moments the lower quartile, which is what the steps between them
    are summed up by: a core's speed changes from second to second."""

    def tables(name: str) -> dict[str, float]:
        every = [getattr(one, name) for one in found]
        keys = {key for table in every for key in table}
        return {key: quartile([table[key] for table in every if key in table]) for key in keys}

    def figure(name: str) -> float:
        return quartile([getattr(one, name) for one in found])

    return Costs(
        event=figure("event"),
        binding=figure("binding"),
        bindings=tables("bindings"),
        floors=tables("floors"),
        grad_floors=tables("grad_floors"),
        default_floor=figure("default_floor"),
        pool=figure("pool"),
        fault=figure("fault"),
    )


@dataclass(frozen=True)
class _Look:
    """One call of an op with nothing to do, with and without the tracer; nanoseconds."""

    plain: float
    traced: float
    events: float
    """Of one call."""
    entry: str
    """How the op is entered; empty where the call is more than one op."""
    span: float
    """Of its event."""
    own: Mapping[str, Sequence[int]]

    @property
    def event(self) -> float:
        """What tracing one event costs."""
        return max(0.0, self.traced - self.plain) / self.events

    def outside(self, event: float) -> float:
        """What a call takes outside its event. Of the tracing, all that is nested falls into the
        event's span, and half of its own: it is recorded on entry and on exit."""
        return self.plain - (self.span - (self.events - 0.5) * event)


def _quickest(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The events of the round in which they took least: all that a neighbour does is add."""
    size, left = divmod(len(rows), ROUNDS)
    if left:
        return rows
    rounds = [rows[i * size : (i + 1) * size] for i in range(ROUNDS)]
    return min(rounds, key=lambda one: -sum(row[2] for row in one))


def _look(call: Callable[[], Any]) -> _Look | None:
    """Many calls, plain and traced; None where nothing is to be seen of them."""

    def many() -> None:
        for _ in repeat(None, CALLS):
            call()

    many()
    plain = min(_thread_time(many) for _ in range(ROUNDS))
    rows, traced = trace(lambda: min(_thread_time(many) for _ in range(ROUNDS)))
    if not rows:
        return None
    own, tops = _own_times(_quickest(rows))
    entries = {entry for entry, _ in tops}
    single = len(entries) == 1 and len(tops) == CALLS
    return _Look(
        plain=plain / CALLS - _empty_call(),
        traced=traced / CALLS - _empty_call(),
        events=len(rows) / (CALLS * ROUNDS),
        entry=entries.pop() if single else "",
        span=statistics.median(span for _, span in tops),
        own=own,
    )


@cache
def _empty_call() -> float:
    """What the loop and a call of a function that does nothing take."""

    def nothing() -> None:
        pass

    def many() -> None:
        for _ in repeat(None, CALLS):
            nothing()

    return min(_thread_time(many) for _ in range(ROUNDS * ROUNDS)) / CALLS


def _thread_time(block: Callable[[], None]) -> int:
    started = thread_clock()
    block()
    return thread_clock() - started


def _own_times(rows: list[tuple[Any, ...]]) -> tuple[dict[str, list[int]], list[tuple[str, int]]]:
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


def _floors(looks: Sequence[_Look]) -> dict[str, float]:
    """By event name: the median of its own traced time in all calls."""
    own: dict[str, list[int]] = defaultdict(list)
    for look in looks:
        for name, spans in look.own.items():
            own[name] += spans
    return {name: statistics.median(spans) for name, spans in own.items() if "::" in name}


def _fault_cost() -> float:
    """CPU time to map one page, by touching fresh ones; the least of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        with mmap.mmap(-1, FAULT_PAGES * mmap.PAGESIZE) as fresh:
            started = thread_clock()
            for place in range(0, FAULT_PAGES * mmap.PAGESIZE, mmap.PAGESIZE):
                fresh[place] = 1
            touched = thread_clock() - started
            started = thread_clock()
            for place in range(0, FAULT_PAGES * mmap.PAGESIZE, mmap.PAGESIZE):
                fresh[place] = 2
            best = min(best, touched - (thread_clock() - started))
    return max(0.0, best) / FAULT_PAGES


def _pool_cost() -> float:
    """What an op pays for being shared among the threads; 0 with one."""
    import torch

    threads = torch.get_num_threads()
    if threads == 1:
        return 0.0
    with torch.no_grad():
        values, out = torch.ones(POOL_ELEMENTS), torch.empty(POOL_ELEMENTS)
        shared = _best_wall(lambda: torch.neg(values, out=out))
        torch.set_num_threads(1)
        try:
            alone = _best_wall(lambda: torch.neg(values, out=out))
        finally:
            torch.set_num_threads(threads)
    return max(0.0, shared - alone / threads)


def _best_wall(call: Callable[[], Any]) -> float:
    call()
    found = []
    for _ in range(5 * CALLS):
        started = wall_clock()
        call()
        found.append(wall_clock() - started)
    return float(statistics.median(found))


def floor_of(costs: Costs, name: str, with_grad: bool) -> float:
    """The front end of one call of an op, as traced; never for an op that has no other part."""
    if names.is_view(name) or names.allocates(name):
        return float("inf")
    table = costs.grad_floors if with_grad and name in costs.grad_floors else costs.floors
    return table.get(name, costs.default_floor)


def binding_of(costs: Costs, entry: str) -> float:
    """What it takes to get from Python into an op; a usual one where this one is not known."""
    known = costs.bindings.get(entry)
    return costs.bindings.get(entry.partition(">")[0], costs.binding) if known is None else known
