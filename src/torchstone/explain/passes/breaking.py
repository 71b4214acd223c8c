"""What a graph break costs: compiled code that calls a function which may not be compiled and has
nothing to do. What a break in the workload takes more is the Python that runs there."""

from __future__ import annotations

from typing import Any

from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import WaitClock
from torchstone.explain.passes.floors import binding_of
from torchstone.explain.passes.report import Costs
from torchstone.explain.passes.traced import traced_round

LOOPS, SAMPLES = 10, 20
"""Calls in a sample, and samples: some milliseconds, and enough for medians."""


def breaking_cost(costs: Costs, backend: str) -> float:
    """Nanoseconds of one break, less what tracing it and getting into its ops takes. The graphs
    around it call a library, so that there is nothing to generate."""
    import torch

    disable: Any = torch.compiler.disable
    nothing = disable(_nothing)

    def broken(x: Any) -> Any:
        y = torch.mm(x, x)
        nothing()
        return torch.mm(y, x)

    step: Any = torch.compile(broken, backend=backend)
    one = torch.ones(1, 1)

    def block() -> None:
        for _ in range(LOOPS):
            step(one)

    block()
    wait = WaitClock()
    seen = traced_round(block, LOOPS, SAMPLES, wait)
    wait.close()
    place = seen.places.get(report.BREAK)
    if place is None or not seen.breaks:
        return 0.0
    tracing = (place.events + place.inside) * costs.event / 2
    entering = sum(n * binding_of(costs, entry) for entry, n in place.entries.items())
    return max(0.0, place.own - tracing - entering) / seen.breaks


def _nothing() -> None:
    pass
