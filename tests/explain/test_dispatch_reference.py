"""Ops with nothing to do, between the steps that they are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from torchstone.explain.ledger import pooled, run_passes_of
from torchstone.explain.passes import report
from torchstone.explain.passes.blocked import CollectionClock, WaitClock
from torchstone.explain.passes.dispatch_reference import (
    CALLS,
    MOST_CALLS,
    DispatchReference,
    ReferenceCall,
    calls_of,
    children,
    groups_of,
    per_call,
)
from torchstone.explain.passes.floors import for_step
from torchstone.explain.passes.plain import MOST_TIMES, take_samples
from torchstone.explain.passes.report import Costs, OpTime, Plan
from torchstone.explain.passes.traced import traced_round
from torchstone.records import ArmSpec

ONE = torch.ones(1)
FLOOR = 10.0


def reference_call(
    name: str,
    grad: bool = False,
    call: Callable[[], object] = lambda: None,
    floor: float = FLOOR,
    **others: float,
) -> ReferenceCall:
    events = {name: floor, **{f"aten::{other}": ns for other, ns in others.items()}}
    return ReferenceCall(call, name, events, {name: len(others)}, grad)


def op(name: str, with_grad: float = 0.0, inside: float = 0.0) -> OpTime:
    return OpTime(name, 1.0, 1000.0, inside, with_grad)


def dispatch_reference(
    reference_calls: Sequence[ReferenceCall], ops: Sequence[OpTime]
) -> DispatchReference:
    return DispatchReference(groups_of(reference_calls, ops))


def row(name: str, start: int, span: int, thread: int = 1) -> tuple[int, int, int, str]:
    return (thread, start, -span, name)


def test_only_what_the_step_does_is_called() -> None:
    calls: list[str] = []
    reference_calls = [
        reference_call("aten::mm", call=lambda: calls.append("mm")),
        reference_call("aten::add", call=lambda: calls.append("add")),
        reference_call("aten::mm", grad=True, call=lambda: calls.append("grad")),
    ]
    dispatch_reference(reference_calls, [op("aten::mm")])()
    assert calls == ["mm"] * CALLS
    calls.clear()
    dispatch_reference(reference_calls, [op("aten::mm", with_grad=1.0)])()
    assert calls == ["mm"] * CALLS + ["grad"] * CALLS
    calls.clear()
    dispatch_reference(reference_calls, [op("aten::conv2d")])()
    assert calls == []


def test_the_slowest_ops_come_first_and_there_are_not_too_many() -> None:
    reference_calls = [reference_call(f"aten::op{i}") for i in range(40)]
    between = dispatch_reference(reference_calls, [op(f"aten::op{i}") for i in reversed(range(40))])
    assert between.calls == reference_calls[: -MOST_CALLS - 1 : -1]


def test_views_and_allocations_take_no_places() -> None:
    reference_calls = [
        reference_call("aten::empty"),
        reference_call("aten::view"),
        reference_call("aten::mm", empty=3.0),
    ]
    between = dispatch_reference(
        reference_calls, [op("aten::empty"), op("aten::view"), op("aten::mm")]
    )
    assert [one.op for one in between.calls] == ["aten::mm"]


def test_a_call_of_the_op_itself_comes_before_those_that_use_it() -> None:
    direct, other = reference_call("aten::mul"), reference_call("aten::dropout", mul=500.0)
    assert calls_of("aten::mul", [other, direct], grad=False) == [direct]
    assert calls_of("aten::mul", [other], grad=False) == [other]
    assert dispatch_reference([other, direct], [op("aten::mul")]).calls == [direct]


def test_a_product_with_a_number_is_another_than_one_of_two_tensors() -> None:
    """It makes a tensor of the number first, which is an op inside."""
    two, number = (
        reference_call("aten::mul", floor=900.0),
        reference_call("aten::mul", floor=1500.0, to=300.0),
    )
    reference_calls = [two, number]
    assert dispatch_reference(reference_calls, [op("aten::mul")]).calls == [two]
    assert dispatch_reference(reference_calls, [op("aten::mul", inside=1.0)]).calls == [number]
    known = for_step(
        Costs(floors={"aten::mul": 1200.0}), groups_of(reference_calls, [op("aten::mul")])
    )
    assert known.floors == {"aten::mul": 900.0}


def test_rows_of_the_step_and_of_other_threads_say_nothing_about_the_calls() -> None:
    between = dispatch_reference(
        [reference_call("aten::mm"), reference_call("aten::mm", grad=True)],
        [op("aten::mm", with_grad=1)],
    )
    rows = [
        row(f"{report.REFERENCE}0", 0, 100),
        row("aten::mm", 10, 30),
        row("aten::empty", 20, 10),
        row("aten::mm", 20, 999, thread=2),
        row(report.STEP, 200, 1000),
        row("aten::mm", 210, 900),
        row(f"{report.REFERENCE}1", 2000, 100),
        row("aten::mm", 2010, 50),
    ]
    assert between.speeds(rows) == ({"aten::mm": 2.0}, {"aten::mm": 5.0})
    assert between.speeds([]) == ({}, {})


def test_a_speed_is_of_all_the_calls_that_the_floor_is_of() -> None:
    """One of them was measured at a slow moment; now both take the same."""
    quick, slow = reference_call("aten::mul", floor=10.0), reference_call("aten::mul", floor=20.0)
    between = dispatch_reference([quick, slow], [op("aten::mul")])
    rows = [row(f"{report.REFERENCE}{i}", 100 * i, 50) for i in (0, 1)]
    rows += [row("aten::mul", 100 * i + 10, 30) for i in (0, 1)]
    assert between.speeds(sorted(rows, key=lambda one: one[1])) == ({"aten::mul": 2.0}, {})
    assert between.speeds(sorted(rows[:1] + rows[2:3])) == ({}, {})


def test_an_event_within_its_like_counts_by_the_call() -> None:
    """Two in a call that are not alike, as those of `sum`: no middle one of all is either."""
    calls = [
        one
        for start in (0, 1000, 2000)
        for one in (row("aten::sum", start, 400), row("aten::sum", start + 50, 100))
    ]
    assert per_call(calls) == {"aten::sum": 200.0}
    assert per_call([]) == {}
    assert children(calls) == {"aten::sum": 0.5}


def test_speeds_come_out_of_a_traced_round_and_its_ops_do_not_hold_the_calls() -> None:
    weight = torch.ones(1, requires_grad=True)

    def block() -> None:
        torch.neg(ONE)

    reference_calls = [
        reference_call("aten::mul", call=lambda: ONE * ONE),
        reference_call("aten::mul", grad=True, call=lambda: weight * ONE),
    ]
    between = dispatch_reference(reference_calls, [op("aten::mul", with_grad=1.0)])
    with torch.no_grad():
        wait = WaitClock()
        found = traced_round(block, 1, 20, wait, between=between)
        wait.close()
    assert found.speeds["aten::mul"] > 1  # ten nanoseconds would be no op of torch's
    assert found.grad_speeds["aten::mul"] > found.speeds["aten::mul"]
    assert [one.name for one in found.ops] == ["aten::neg"]
    assert found.ops[0].calls == 1


@pytest.mark.parametrize("count", [1, 49, 50, 51, 199, 3000])
def test_what_is_done_between_samples_is_done_so_often_at_most(count: int) -> None:
    times: list[int] = []
    wait = WaitClock()
    take_samples(lambda: None, count, wait, CollectionClock(), lambda: times.append(1))
    wait.close()
    assert 2 <= len(times) <= MOST_TIMES + 1


@pytest.mark.slow
def test_the_rounds_of_a_step_hold_the_speeds_of_its_ops(tmp_path: Path) -> None:
    """The whole way: from a real step to the ledger's own rounds, pooled."""
    file = tmp_path / "small.py"
    file.write_text(SMALL, encoding="utf-8")
    plan = Plan(budget_s=0.6, rounds=3, count_flops=False)
    passes = run_passes_of(ArmSpec("x", f"{file}:make", threads=1), plan)
    for one in (*passes.rounds, pooled(passes.rounds)):
        assert one.traced is not None
        assert 0.2 < one.traced.speeds["aten::mul"] < 20
    assert passes.costs.floors["aten::mul"] > 0


SMALL = """
import torch

def step(x):
    for _ in range(50):
        x = x * 1.01
    return x

def make():
    return step, (torch.ones(4),)
"""
