"""What the smallest things cost: a reading of the timer, a Python call, an op of torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns as _now

import torch

from torchstone.machine.best import best_cost
from torchstone.records import Peak

ROUNDS = 200
CALLS = 200
"""Of a block: some 10 to 300 µs."""


def measure_costs() -> dict[str, Peak]:
    """Seconds each, the best of many blocks; what cannot be seen is absent."""
    found = {"timer": timer_cost(), "python-call": call_cost(), "dispatch": dispatch_cost()}
    return {name: cost for name, cost in found.items() if cost is not None}


def timer_cost() -> Peak | None:
    """From one reading of the timer to the next."""
    gaps = []
    for _ in repeat(None, ROUNDS * CALLS):
        start = _now()
        gaps.append((_now() - start) / 1e9)
    return best_cost(gaps, Peak(0.0, note="time.perf_counter_ns, back to back"))


def call_cost() -> Peak | None:
    """A call of a Python function that does nothing, without the loop around it."""

    def nothing() -> None:
        pass

    def calls() -> None:
        for _ in repeat(None, CALLS):
            nothing()

    def empty() -> None:
        for _ in repeat(None, CALLS):
            pass

    loop = min(_blocks(empty))
    costs = (seconds - loop for seconds in _blocks(calls))
    return best_cost(costs, Peak(0.0, threads=1, note="an empty function, less the empty loop"))


def dispatch_cost() -> Peak | None:
    """An op of torch on one element: argument parsing, dispatch and a kernel with nothing to do."""
    with torch.inference_mode():
        one, out = torch.ones(1), torch.empty(1)
        add = torch.add

        def ops() -> None:
            for _ in repeat(None, CALLS):
                add(one, one, out=out)

        note = "torch.add of one element, out="
        return best_cost(_blocks(ops), Peak(0.0, dtype="fp32", threads=1, note=note))


def _blocks(block: Callable[[], None]) -> list[float]:
    """Seconds of one of the calls in a block, many times."""
    block()
    found = []
    for _ in repeat(None, ROUNDS):
        start = _now()
        block()
        found.append((_now() - start) / 1e9 / CALLS)
    return found
