"""What an event of the tracer costs, and each op's front end, on operands of one element.

An op on one element spends its time in argument parsing, dispatch, checks and making its result;
its kernel has nothing to do. What the same op takes more in the workload is kernel.
"""

from __future__ import annotations

import mmap
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from typing import Any

from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import WaitClock
from torchstone.explain.passes.dispatch_reference import (
    Groups,
    ReferenceCall,
    calls_of,
    children,
    floor_by,
    nested,
    op_microbenchmarks,
    per_call,
)
from torchstone.explain.passes.report import Costs
from torchstone.explain.passes.traced import entry_of, trace, traced_round
from torchstone.measure.loops import thread_clock, wall_clock

CALLS = 40
ROUNDS = 6
FAULT_PAGES = 512
POOL_ELEMENTS = 1 << 16
"""Torch gives work to its threads from 32,768 elements on; twice that is shared by two."""


def measure_costs(training: bool) -> tuple[Costs, tuple[ReferenceCall, ...]]:
    """On this machine, in this process, now; and the calls that it was measured with."""
    import torch

    with torch.no_grad():
        looks = _looks(grad=False)
    calls = [look.reference for look in looks]
    if training:
        with torch.enable_grad():
            calls += [look.reference for look in _looks(grad=True)]
    floors = _floors(calls, grad=False)
    bindings = {look.entry: max(0.0, look.outside) for look in looks if look.entry}
    costs = Costs(
        event=statistics.median(look.event for look in looks),
        binding=statistics.median(bindings.values()),
        bindings=bindings,
        floors=floors,
        grad_floors=_floors(calls, grad=True),
        default_floor=statistics.median(floors.values()),
        pool=_pool_cost(),
        fault=_fault_cost(),
    )
    return costs, tuple(calls)


def _floors(calls: Sequence[ReferenceCall], grad: bool) -> dict[str, float]:
    """By event name: what it takes in the calls of this op."""
    seen = {name for one in calls if one.grad == grad for name in one.events}
    return {name: floor_by(name, calls_of(name, calls, grad)) for name in seen}


def for_step(costs: Costs, groups: Groups) -> Costs:
    """With the floors of the calls that are most like the step's own ops."""
    floors, grad_floors = dict(costs.floors), dict(costs.grad_floors)
    for (name, grad), group in groups.items():
        (grad_floors if grad else floors)[name] = floor_by(name, group)
    return replace(costs, floors=floors, grad_floors=grad_floors)


def at_speed(costs: Costs, speeds: Mapping[str, float], grad: Mapping[str, float]) -> Costs:
    """Tracing, floors and ways in at the speed that the reference calls saw between the steps. What
    they did not see is as much slower or faster as the rest was, in the middle."""
    if not speeds and not grad:
        return costs
    usual = statistics.median([*speeds.values(), *grad.values()])
    return replace(
        costs,
        event=costs.event * usual,
        binding=costs.binding * usual,
        bindings={
            entry: ns * speeds.get(entry.partition(">")[0], usual)
            for entry, ns in costs.bindings.items()
        },
        floors={name: ns * speeds.get(name, usual) for name, ns in costs.floors.items()},
        grad_floors={
            name: ns * grad.get(name, speeds.get(name, usual))
            for name, ns in costs.grad_floors.items()
        },
        default_floor=costs.default_floor * usual,
    )


@dataclass(frozen=True)
class _Look:
    """One call of an op with nothing to do, with and without the tracer; nanoseconds."""

    reference: ReferenceCall
    entry: str
    """How the op is entered; empty where the call is more than one op."""
    event: float
    """What tracing one event costs."""
    outside: float
    """What a call takes outside its event."""


def _looks(grad: bool) -> list[_Look]:
    looks = (_look(call, grad) for call in op_microbenchmarks(grad))
    return [look for look in looks if look is not None]


def _quickest(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The events of the round in which they took least: all that a neighbour does is add."""
    size, left = divmod(len(rows), ROUNDS)
    if left:
        return rows
    rounds = [rows[i * size : (i + 1) * size] for i in range(ROUNDS)]
    return min(rounds, key=lambda one: -sum(row[2] for row in one))


def _look(call: Callable[[], Any], grad: bool) -> _Look | None:
    """Many calls, plain and traced; None where nothing is to be seen of them."""

    def many() -> None:
        for _ in repeat(None, CALLS):
            call()

    many()
    plain = min(_thread_time(many) for _ in range(ROUNDS)) / CALLS - _empty_call()
    rows, quickest_ns = trace(lambda: min(_thread_time(many) for _ in range(ROUNDS)))
    if not rows:
        return None
    traced = quickest_ns / CALLS - _empty_call()
    events = len(rows) / (CALLS * ROUNDS)
    event = max(0.0, traced - plain) / events
    quickest = _quickest(rows)
    tops = [one for one in nested(quickest) if one.outermost]
    entries = {entry_of(one.name, one.first) for one in tops}
    single = len(entries) == 1 and len(tops) == CALLS
    entry = entries.pop() if single else ""
    # Of the tracing all that is nested falls into the event's span, and half of its own: it is
    # recorded on entry and on exit.
    span = statistics.median(one.span for one in tops) - (events - 0.5) * event
    op = entry.partition(">")[0]
    reference = ReferenceCall(call, op, per_call(quickest), children(quickest), grad)
    return _Look(reference, entry, event, plain - span)


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
    if report.is_view(name) or report.allocates(name):
        return float("inf")
    table = costs.grad_floors if with_grad and name in costs.grad_floors else costs.floors
    return table.get(name, costs.default_floor)


def binding_of(costs: Costs, entry: str) -> float:
    """What it takes to get from Python into an op; a usual one where this one is not known."""
    known = costs.bindings.get(entry)
    return costs.bindings.get(entry.partition(">")[0], costs.binding) if known is None else known


# What a graph break costs: compiled code that calls a function which may not be compiled and has
# nothing to do. What a break in the workload takes more is the Python that runs there.


BREAK_LOOPS, BREAK_SAMPLES = 10, 20
"""Calls in a sample, and samples: some milliseconds, and enough for medians."""


def breaking_cost(costs: Costs, backend: str) -> float:
    """Nanoseconds of one break, less what tracing it and getting into its ops takes. The graphs
    around it call a library, so that there is nothing to generate."""
    import torch

    disable: Any = torch.compiler.disable
    nothing = disable(lambda: None)

    def broken(x: Any) -> Any:
        y = torch.mm(x, x)
        nothing()
        return torch.mm(y, x)

    step: Any = torch.compile(broken, backend=backend)
    one = torch.ones(1, 1)

    def block() -> None:
        for _ in range(BREAK_LOOPS):
            step(one)

    block()
    wait = WaitClock()
    seen = traced_round(block, BREAK_LOOPS, BREAK_SAMPLES, wait)
    wait.close()
    place = seen.places.get(report.BREAK)
    if place is None or not seen.breaks:
        return 0.0
    tracing = (place.events + place.inside) * costs.event / 2
    entering = sum(n * binding_of(costs, entry) for entry, n in place.entries.items())
    return max(0.0, place.own - tracing - entering) / seen.breaks
