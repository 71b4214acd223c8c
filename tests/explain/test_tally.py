"""Events of the tracer laid over each other: what is whose, and what a neighbour cannot spoil."""

from __future__ import annotations

import pytest

from torchstone.explain.passes import report
from torchstone.explain.passes.traced import (
    ON_DEVICE,
    Event,
    Tally,
    _first_line,
    copies_of,
    steps_of,
    with_nodes,
)


def event(name: str, start: int, duration: int, mark: bool = False, node: bool = False) -> Event:
    return (name, start, duration, mark, node)


def sums(steps: list[list[Event]], span: int = 1000, loops: int = 1) -> Tally:
    tally = Tally()
    for events in steps:
        tally.add(0, span, events)
    return tally


NESTED = [
    event("aten::linear", 100, 300),
    event("aten::t", 110, 50),
    event("aten::addmm", 200, 150),
    event("aten::relu", 500, 100),
]


def test_own_time_is_what_callees_leave() -> None:
    found = sums([NESTED] * 3).sums(1, 1000)
    ops = {op.name: op for op in found.ops("op")}
    assert {name: op.own for name, op in ops.items()} == {
        "aten::linear": 100,
        "aten::t": 50,
        "aten::addmm": 150,
        "aten::relu": 100,
    }
    assert ops["aten::linear"].inside == 2
    python = found.places()[report.PYTHON]
    assert python.own == 600
    assert python.inside == 2
    assert python.entries == {"aten::linear>aten::t": 1, "aten::relu": 1}


def test_all_stretches_together_are_the_step() -> None:
    found = sums([NESTED] * 4).sums(1, 1000)
    total = sum(op.own for op in found.ops("op")) + sum(p.own for p in found.places().values())
    assert total == 1000


def test_a_step_out_of_several_in_a_sample() -> None:
    found = sums([NESTED] * 3).sums(2, 1000)
    assert found.places()[report.PYTHON].own == 300
    assert {op.calls for op in found.ops("op")} == {0.5}


def test_a_neighbour_that_hits_another_stretch_each_time_is_gone() -> None:
    def pushed_off(at: int) -> list[Event]:
        return [
            event(n, s + (5000 if i > at else 0), d + (5000 if i == at else 0))
            for i, (n, s, d, _, _) in enumerate(FLAT)
        ]

    FLAT = [event(f"aten::op{i}", 100 * i + 10, 50) for i in range(8)]
    tally = Tally()
    for at in range(5):
        tally.add(0, 6000, pushed_off(at))
    found = tally.sums(1, 10_000)
    assert all(op.own == 50 for op in found.ops("op"))


def test_long_stretches_give_back_what_the_clocks_deny() -> None:
    tally = Tally()
    for _ in range(3):
        tally.add(
            0, 10_000_000, [event("aten::mm", 1000, 8_000_000), event("aten::t", 9_000_000, 100)]
        )
    found = tally.sums(1, 5_000_000)
    ops = {op.name: op.own for op in found.ops("op")}
    assert ops["aten::t"] == 100
    total = sum(ops.values()) + sum(place.own for place in found.places().values())
    assert total == pytest.approx(5_000_000, rel=0.01)


def test_steps_that_differ_are_averaged() -> None:
    found = sums([NESTED, NESTED[:1], NESTED[3:]]).sums(1, 1000)
    ops = {op.name: op for op in found.ops("op")}
    assert ops["aten::relu"].calls == pytest.approx(2 / 3)
    assert ops["aten::relu"].own == pytest.approx(200 / 3)


def test_between_two_nodes_it_is_the_engine() -> None:
    node = "autograd::engine::evaluate_function: MulBackward0"
    events = [
        event(node, 100, 100),
        event("MulBackward0", 110, 80),
        event("aten::mul", 120, 50),
        event(node, 230, 100),
    ]
    places = sums([events] * 3).sums(1, 1000).places()
    assert places[report.AUTOGRAD].own == (100 - 50) + 30 + 100
    assert places[report.PYTHON].own == 100 + 670
    assert places[report.AUTOGRAD].entries == {}


def test_the_optimizer_the_loader_and_marks_of_others() -> None:
    events = [
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 200, True),
        event("aten::stack", 50, 100),
        event("my part", 250, 300, True),
        event("aten::add", 300, 100),
        event("Optimizer.step#SGD.step", 600, 300, True),
        event("aten::add_", 700, 100),
    ]
    found = sums([events] * 3).sums(1, 1000)
    places = found.places()
    assert places[report.LOADING].own == 200
    assert places[report.OPTIMIZER].own == 200
    assert places[report.PYTHON].own == 50 + 200 + 50 + 100
    assert {op.name for op in found.ops("op")} == {"aten::add", "aten::add_"}


def test_python_between_two_compiled_regions_is_a_graph_break() -> None:
    events = [
        event("TorchDynamo Cache Lookup", 0, 50),
        event("Torch-Compiled Region: 0/0", 60, 900),
        event("graph_0_cpp_fused_add_0", 100, 200),
        event("TorchDynamo Cache Lookup", 600, 50),
        event("Torch-Compiled Region: 1/0", 660, 200),
        event("## Call CompiledFxGraph f ##", 700, 100),
    ]
    found = sums([events] * 3).sums(1, 1000)
    places = found.places()
    assert places[report.BREAK].own + places[report.GUARDS].own == 50 + 900 - 200 - 100
    assert places[report.BREAK].own == 300 + 10 + 100
    assert found.breaks == 1
    assert places[report.WRAPPER].own == 100
    assert [kernel.name for kernel in found.ops("kernel")] == ["graph_0_cpp_fused_add_0"]


REGION = "Torch-Compiled Region: 2/0"
ENDS_IN_PYTHON = [
    event("TorchDynamo Cache Lookup", 0, 50),
    event(REGION, 60, 900),
    event("Pregraph bytecode", 70, 10),
    event("## Call CompiledFxGraph f ##", 100, 100),
    event("somebody's mark", 250, 500, True),
    event("aten::sin", 400, 100),
]


def test_python_at_the_end_of_a_region_that_breaks_is_not_called_guards() -> None:
    """No compiled code follows; but the compiler has said that it had to stop there."""
    tally = Tally()
    for _ in range(3):
        tally.add(0, 1000, ENDS_IN_PYTHON, frozenset({REGION}))
    found = tally.sums(1, 1000)
    places = found.places()
    assert places[report.GUARDS].own == 50 + 10 + 10 + 20
    assert places[report.BREAK].own == 50 + 400 + 210
    assert places[report.BREAK].entries == {"aten::sin": 1}
    assert found.breaks == 1


def test_a_region_that_does_not_break_is_all_the_compilers() -> None:
    found = sums([ENDS_IN_PYTHON] * 3).sums(1, 1000)
    assert report.BREAK not in found.places()
    assert found.breaks == 0


def test_compiled_code_under_a_mark_follows_a_break_and_within_a_graph_it_does_not() -> None:
    marked = [*ENDS_IN_PYTHON[:5], event("TorchDynamo Cache Lookup", 500, 50)]
    assert sums([marked] * 3).sums(1, 1000).breaks == 1
    nested = [*ENDS_IN_PYTHON[:4], event("TorchDynamo Cache Lookup", 120, 50)]
    assert sums([nested] * 3).sums(1, 1000).breaks == 0


def test_an_event_that_outlives_its_caller_is_cut() -> None:
    events = [event("aten::a", 100, 100), event("aten::b", 150, 500)]
    ops = {op.name: op.own for op in sums([events] * 3).sums(1, 1000).ops("op")}
    assert ops == {"aten::a": 50, "aten::b": 50}


def test_only_the_op_that_made_a_node_is_said_to_have_made_one() -> None:
    raw = [
        ("aten::linear", 0, 100, False, 4),
        ("aten::t", 10, 10, False, 4),
        ("aten::addmm", 30, 50, False, 5),
        ("aten::relu", 200, 10, False, 6),
        ("aten::sum", 300, 10, False, 6),
        ("aten::detach", 400, 10, False, 7),
    ]
    made = {name: node for name, _, _, _, node in with_nodes(raw)}
    assert made == {
        "aten::linear": False,
        "aten::t": True,
        "aten::addmm": True,
        "aten::relu": False,
        "aten::sum": True,
        "aten::detach": False,
    }


def test_without_parameters_nobody_makes_nodes() -> None:
    raw = [("aten::mul", 10 * i, 5, False, 3) for i in range(4)]
    assert not any(node for *_, node in with_nodes(raw))


def test_steps_are_of_the_thread_that_marked_them() -> None:
    rows = [
        (1, 0, -100, report.STEP, False, -1),
        (1, 10, -10, "aten::a", False, -1),
        (1, 200, -100, report.STEP, False, -1),
        (1, 210, -10, "aten::b", False, -1),
        (2, 20, -10, "aten::other", False, -1),
    ]
    steps = steps_of(rows)
    assert [[e[0] for e in events] for _, _, events in steps] == [["aten::a"], ["aten::b"]]


def test_what_a_device_does_is_beside_the_thread() -> None:
    """Rows as a device would give them: its marks are no steps, and of its copies those within
    steps count."""
    copy = "Memcpy HtoD (Pinned -> Device)"
    rows = [
        (ON_DEVICE, 90, -30, report.STEP, True, -1),
        (ON_DEVICE, 110, -20, copy, False, -1),
        (ON_DEVICE, 150, -20, "gemm", False, -1),
        (ON_DEVICE, 310, -40, copy, False, -1),
        (ON_DEVICE, 900, -20, copy, False, -1),
        (1, 100, -100, report.STEP, True, -1),
        (1, 120, -10, "aten::mm", False, -1),
        (1, 300, -100, report.STEP, True, -1),
    ]
    steps = steps_of(rows)
    assert [(start, duration, len(events)) for start, duration, events in steps] == [
        (100, 100, 1),
        (300, 100, 0),
    ]
    (found,) = copies_of(rows, [step[:2] for step in steps], 1)
    assert (found.name, found.calls, found.own) == (copy, 1.0, 30.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", ""), ("  \n", ""), ("one\ntwo", "one"), ("one\n  Explanation: why", "one. why")],
)
def test_a_reason_in_one_line(text: str, said: str) -> None:
    assert _first_line(text) == said
