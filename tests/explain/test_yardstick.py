"""Ops with nothing to do, between the steps that they are held against."""

from __future__ import annotations

import torch

from torchstone.explain.passes import names
from torchstone.explain.passes.clocks import WaitClock
from torchstone.explain.passes.report import OpTime
from torchstone.explain.passes.traced import traced_round
from torchstone.explain.passes.yardstick import CALLS, MOST_TOYS, Toy, floors_seen, yardstick

ONE = torch.ones(1)


def toy(*events: str, grad: bool = False) -> Toy:
    return Toy(lambda: None, frozenset(events), grad)


def op(name: str, with_grad: float = 0.0) -> OpTime:
    return OpTime(name, 1.0, 1000.0, 0.0, with_grad)


def test_only_what_the_step_does_is_called() -> None:
    calls: list[str] = []
    toys = [
        Toy(lambda: calls.append("mm"), frozenset({"aten::mm"})),
        Toy(lambda: calls.append("add"), frozenset({"aten::add"})),
        Toy(lambda: calls.append("grad"), frozenset({"aten::mm"}), grad=True),
    ]
    between = yardstick(toys, [op("aten::mm")])
    assert between is not None
    between()
    assert calls == ["mm"] * CALLS
    calls.clear()
    between = yardstick(toys, [op("aten::mm", with_grad=1.0)])
    assert between is not None
    between()
    assert calls == ["mm"] * CALLS + ["grad"] * CALLS
    assert yardstick(toys, [op("aten::conv2d")]) is None


def test_the_dearest_ops_come_first_and_there_are_not_too_many() -> None:
    toys = [toy(f"aten::op{i}") for i in range(40)]
    between = yardstick(toys, [op(f"aten::op{i}") for i in reversed(range(40))])
    assert between is not None
    assert between._toys == toys[: -MOST_TOYS - 1 : -1]


def test_rows_of_the_step_are_not_taken_for_floors() -> None:
    def row(name: str, start: int, span: int, thread: int = 1) -> tuple[int, int, int, str]:
        return (thread, start, -span, name)

    rows = [
        row(names.FLOOR, 0, 100),
        row("aten::mm", 10, 30),
        row("aten::empty", 20, 10),
        row("aten::mm", 20, 999, thread=2),
        row(names.STEP, 200, 1000),
        row("aten::mm", 210, 900),
        row(names.GRAD_FLOOR, 2000, 100),
        row("aten::mm", 2010, 50),
    ]
    assert floors_seen(rows) == ({"aten::mm": 20, "aten::empty": 10}, {"aten::mm": 50})
    assert floors_seen([]) == ({}, {})


def test_floors_come_out_of_a_traced_round_and_its_ops_do_not_hold_them() -> None:
    weight = torch.ones(1, requires_grad=True)

    def block() -> None:
        torch.neg(ONE)

    toys = [
        Toy(lambda: ONE * ONE, frozenset({"aten::mul"})),
        Toy(lambda: weight * ONE, frozenset({"aten::mul"}), grad=True),
    ]
    between = yardstick(toys, [op("aten::mul", with_grad=1.0)])
    with torch.no_grad():
        wait = WaitClock()
        found = traced_round(block, 1, 20, wait, between=between)
        wait.close()
    assert found.floors["aten::mul"] > 0
    assert found.grad_floors["aten::mul"] > 0
    assert [one.name for one in found.ops] == ["aten::neg"]
    assert found.ops[0].calls == 1
