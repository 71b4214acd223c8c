"""Ops with nothing to do, between the steps that they are held against."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchstone.explain.passes import names
from torchstone.explain.passes.clocks import WaitClock
from torchstone.explain.passes.report import OpTime
from torchstone.explain.passes.traced import traced_round
from torchstone.explain.passes.yardstick import CALLS, MOST_TOYS, Toy, yardstick

ONE = torch.ones(1)
FLOOR = 10.0


def toy(event: str, grad: bool = False, call: Callable[[], object] = lambda: None) -> Toy:
    return Toy(call, {event: FLOOR}, grad)


def op(name: str, with_grad: float = 0.0) -> OpTime:
    return OpTime(name, 1.0, 1000.0, 0.0, with_grad)


def row(name: str, start: int, span: int, thread: int = 1) -> tuple[int, int, int, str]:
    return (thread, start, -span, name)


def test_only_what_the_step_does_is_called() -> None:
    calls: list[str] = []
    toys = [
        toy("aten::mm", call=lambda: calls.append("mm")),
        toy("aten::add", call=lambda: calls.append("add")),
        toy("aten::mm", grad=True, call=lambda: calls.append("grad")),
    ]
    yardstick(toys, [op("aten::mm")])()
    assert calls == ["mm"] * CALLS
    calls.clear()
    yardstick(toys, [op("aten::mm", with_grad=1.0)])()
    assert calls == ["mm"] * CALLS + ["grad"] * CALLS
    calls.clear()
    yardstick(toys, [op("aten::conv2d")])()
    assert calls == []


def test_the_dearest_ops_come_first_and_there_are_not_too_many() -> None:
    toys = [toy(f"aten::op{i}") for i in range(40)]
    between = yardstick(toys, [op(f"aten::op{i}") for i in reversed(range(40))])
    assert between.toys == toys[: -MOST_TOYS - 1 : -1]


def test_rows_of_the_step_and_of_other_threads_say_nothing_about_the_toys() -> None:
    between = yardstick(
        [toy("aten::mm"), toy("aten::mm", grad=True)], [op("aten::mm", with_grad=1)]
    )
    rows = [
        row(f"{names.TOY}0", 0, 100),
        row("aten::mm", 10, 30),
        row("aten::empty", 20, 10),
        row("aten::mm", 20, 999, thread=2),
        row(names.STEP, 200, 1000),
        row("aten::mm", 210, 900),
        row(f"{names.TOY}1", 2000, 100),
        row("aten::mm", 2010, 50),
    ]
    assert between.speeds(rows) == ({"aten::mm": 2.0}, {"aten::mm": 5.0})
    assert between.speeds([]) == ({}, {})


def test_speeds_come_out_of_a_traced_round_and_its_ops_do_not_hold_the_toys() -> None:
    weight = torch.ones(1, requires_grad=True)

    def block() -> None:
        torch.neg(ONE)

    toys = [
        toy("aten::mul", call=lambda: ONE * ONE),
        toy("aten::mul", grad=True, call=lambda: weight * ONE),
    ]
    between = yardstick(toys, [op("aten::mul", with_grad=1.0)])
    with torch.no_grad():
        wait = WaitClock()
        found = traced_round(block, 1, 20, wait, between=between)
        wait.close()
    assert found.speeds["aten::mul"] > 1  # ten nanoseconds would be no op of torch's
    assert found.grad_speeds["aten::mul"] > found.speeds["aten::mul"]
    assert [one.name for one in found.ops] == ["aten::neg"]
    assert found.ops[0].calls == 1
