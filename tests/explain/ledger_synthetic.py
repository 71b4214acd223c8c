"""Passes of a step whose composition is known by construction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.show import synthetic_result
from torchstone.explain.passes import report
from torchstone.explain.passes.report import (
    Costs,
    OpTime,
    Passes,
    Place,
    Plain,
    Round,
    Traced,
    Watched,
)
from torchstone.records import ArmSpec, Ledger, LedgerLine, OpCost

EVENT, BINDING, FLOOR = 400.0, 1000.0, 900.0
ARM = ArmSpec("eager", "model.py:make")


def costs(**changes: Any) -> Costs:
    made = Costs(
        event=EVENT,
        binding=BINDING,
        bindings={"aten::mm": BINDING},
        floors={"aten::mm": FLOOR + EVENT / 2},
        default_floor=FLOOR + EVENT / 2,
        fault=500.0,
    )
    return replace(made, **changes)


def step(
    python: float = 2e6,
    kernel: float = 3e6,
    calls: int = 100,
    sleep: float = 0.0,
    collecting: float = 0.0,
    wait: float = 0.0,
    faults: float = 0.0,
) -> Round:
    """`calls` calls of one op from Python; what the tracer would have seen of it."""
    front = calls * (BINDING + FLOOR)
    cpu = python + front + kernel + collecting
    plain = Plain(
        steps=50,
        wall=cpu + sleep + wait,
        cpu=cpu,
        off=sleep,
        wait=wait,
        collecting=collecting,
        process_cpu=cpu,
        faults=faults,
        busy=1.0,
    )
    own = calls * (FLOOR + EVENT / 2) + kernel
    around = python + sleep + collecting + calls * (BINDING + EVENT / 2)
    traced = Traced(
        steps=50,
        wall=plain.wall + calls * EVENT,
        cpu=cpu + calls * EVENT,
        off=sleep,
        wait=wait,
        collecting=collecting,
        events=calls,
        places={report.PYTHON: Place(0, around, calls, {"aten::mm": calls})},
        ops=(OpTime("aten::mm", calls, own, 0.0),),
    )
    return Round(plain, traced)


def passes(*rounds: Round, **changes: Any) -> Passes:
    made = Passes(
        rounds=rounds or (step(),) * 3,
        costs=costs(),
        environment=synthetic_result.environment(),
        watched=Watched(looks=1000),
        facts={"gil": "on", "cores": "4", "threads": "1", "isa": "AVX2"},
    )
    return replace(made, **changes)


def ledger(shares: dict[str, float] | None = None, wall_s: float = 0.01, **changes: Any) -> Ledger:
    """A ledger with these shares, and what is left of the wall time as the rest."""
    from torchstone.explain.ledger import TITLES

    shares = shares or {"interpreter": 0.5, "kernels": 0.5}
    lines = [
        LedgerLine(TITLES[name][0], name, TITLES[name][1], share * wall_s, share)
        for name, share in shares.items()
    ]
    rest = 1 - sum(shares.values())
    lines.append(LedgerLine(-1, "rest", "not explained", rest * wall_s, rest))
    made = Ledger(
        arm=ARM,
        wall_s=wall_s,
        cpu_s=wall_s,
        lines=tuple(lines),
        steps=100,
        rounds=4,
        facts={"threads": "1", "cores": "1"},
    )
    return replace(made, **changes)


def op(
    name: str, kernel: float = 0.0, front: float = 0.0, calls: float = 1.0, **more: Any
) -> OpCost:
    return OpCost(name, calls, kernel, front, **more)
