"""Trees by hand-made cases whose answers are known, and by laws that hold for any input."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.profile import trees
from torchstone.records import Calls, CallTree, FunctionCalls, Spans, UsageError


def calls(frame: int, own: float, total: float, count: int = 1) -> Calls:
    return Calls(frame, count, count, own, total)


def nodes(tree: CallTree) -> dict[tuple[int, ...], float]:
    paths: list[tuple[int, ...]] = []
    for parent, frame in zip(tree.parents, tree.frames, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), frame))
    return dict(zip(paths, tree.own, strict=True))


def test_spans_give_self_time_and_calls() -> None:
    spans = Spans(
        frames=(0, 1, 1, 0, 1),
        threads=(0, 0, 0, 0, 1),
        start_ns=(0, 10, 40, 200, 0),
        duration_ns=(100, 20, 30, 50, 7),
    )
    tree = trees.from_spans(spans)
    assert tree.parents == (-1, 0, -1)
    assert tree.frames == (0, 1, 1)
    assert tree.threads == (0, 0, 1)
    assert tree.calls == (2, 2, 1)
    assert tree.own == pytest.approx((100e-9, 50e-9, 7e-9))
    assert trees.totals(tree) == pytest.approx([150e-9, 50e-9, 7e-9])


def test_a_span_that_begins_where_another_ends_is_not_inside_it() -> None:
    spans = Spans((0, 1, 1), (0, 0, 0), (0, 10, 10), (10, 5, 0))
    assert trees.from_spans(spans).parents == (-1, -1, 1)


def test_stacks_add_up_along_shared_paths() -> None:
    tree = trees.from_stacks([((0, 1), 2, 0), ((0, 1, 2), 3, 0), ((0,), 1, 0), ((), 9, 0)])
    assert nodes(tree) == {(0,): 1, (0, 1): 2, (0, 1, 2): 3}
    assert trees.totals(tree) == [6, 5, 3]
    assert tree.calls == ()


def test_a_tree_has_a_bound() -> None:
    builder = trees.TreeBuilder(most=3)
    with pytest.raises(UsageError, match="more than 3 call paths"):
        builder.add_stack(range(4), 1.0)


def test_functions_count_recursion_once() -> None:
    # 0 → 1 → 1 → 2, with 1 second of their own each
    tree = CallTree("seconds", (-1, 0, 1, 2), (0, 1, 1, 2), (1.0,) * 4, (0,) * 4, (1, 5, 7, 2))
    by_frame = {one.of.frame: one for one in trees.functions(tree)}
    assert by_frame[1].of == Calls(1, calls=12, primitive=5, own_s=2.0, total_s=3.0)
    assert by_frame[0].of == Calls(0, 1, 1, 1.0, 4.0)
    assert set(by_frame[1].callers) == {Calls(0, 5, 5, 1.0, 3.0), Calls(1, 7, 7, 1.0, 2.0)}
    assert by_frame[2].callers == (Calls(1, 2, 2, 1.0, 1.0),)


REST = 99


def test_paths_through_a_shared_function_are_guessed_in_proportion() -> None:
    """Main calls a (6 s) and b (3 s), both call c: 4 s and 2 s of it, of which d takes 3 s."""
    table = [
        FunctionCalls(calls(0, 1.0, 10.0)),
        FunctionCalls(calls(1, 2.0, 6.0), (calls(0, 2.0, 6.0),)),
        FunctionCalls(calls(2, 1.0, 3.0), (calls(0, 1.0, 3.0),)),
        FunctionCalls(calls(3, 3.0, 6.0), (calls(1, 2.0, 4.0), calls(2, 1.0, 2.0))),
        FunctionCalls(calls(4, 3.0, 3.0), (calls(3, 3.0, 3.0),)),
    ]
    assert nodes(trees.from_callers(table, REST)) == pytest.approx(
        {
            (0,): 1.0,
            (0, 1): 2.0,
            (0, 2): 1.0,
            (0, 1, 3): 2.0,
            (0, 2, 3): 1.0,
            (0, 1, 3, 4): 2.0,
            (0, 2, 3, 4): 1.0,
        }
    )


def test_recursion_is_folded_into_the_outermost_call() -> None:
    """Main calls f, which calls itself and g; f and g call each other."""
    table = [
        FunctionCalls(calls(0, 1.0, 10.0)),
        FunctionCalls(calls(1, 6.0, 9.0), (calls(0, 3.0, 9.0), calls(1, 2.0, 4.0), calls(2, 1, 2))),
        FunctionCalls(calls(2, 3.0, 3.0), (calls(1, 3.0, 3.0),)),
    ]
    tree = trees.from_callers(table, REST)
    assert nodes(tree) == pytest.approx({(0,): 1.0, (0, 1): 6.0, (0, 1, 2): 3.0})


def test_a_ring_that_nobody_entered_keeps_its_time() -> None:
    ring = [FunctionCalls(calls(i, 1.0, 3.0), (calls((i - 1) % 3, 1.0, 3.0),)) for i in range(3)]
    tree = trees.from_callers(ring, REST)
    assert nodes(tree) == pytest.approx({(0,): 1.0, (0, 1): 1.0, (0, 1, 2): 1.0})


def test_a_program_that_runs_itself_begins_where_it_took_longest() -> None:
    """`exec` runs a module, which imports another by `exec`: as every real program does."""
    table = [
        FunctionCalls(calls(0, 1.0, 10.0), (calls(1, 0.5, 6.0), calls(2, 0.4, 3.9))),
        FunctionCalls(calls(1, 4.0, 9.0), (calls(0, 4.0, 9.0),)),
        FunctionCalls(calls(2, 5.0, 5.0), (calls(0, 2.0, 2.0), calls(1, 3.0, 3.0))),
    ]
    tree = trees.from_callers(table, REST)
    found = nodes(tree)
    assert found[(0,)] == pytest.approx(1.0)
    assert sum(found.values()) == pytest.approx(10.0)
    assert not any(path[0] == REST for path in found)


def test_paths_beyond_the_bound_hang_below_one_root() -> None:
    """Layers of two functions each, all calling all: paths double at every layer."""
    depth = 30
    layers = [[2 * i, 2 * i + 1] for i in range(depth)]
    table = []
    for i, layer in enumerate(layers):
        total = float(depth - i)
        for one in layer:
            above = layers[i - 1] if i else []
            edges = tuple(calls(up, 0.5, total / 2) for up in above)
            table.append(FunctionCalls(calls(one, 1.0, total), edges))
    tree = trees.from_callers(table, REST, most=500)
    assert len(tree.parents) <= 500 + 1 + len(table)
    assert REST in tree.frames
    by_function: dict[int, float] = {}
    for frame, own in zip(tree.frames, tree.own, strict=True):
        by_function[frame] = by_function.get(frame, 0.0) + own
    for one in table:
        assert by_function[one.of.frame] == pytest.approx(one.of.own_s)


@st.composite
def tables(draw: st.DrawFn) -> list[FunctionCalls]:
    """Any graph of callers, cycles and nonsense included."""
    size = draw(st.integers(1, 8))
    seconds = st.floats(0, 100, allow_nan=False)
    edge = st.builds(calls, st.integers(0, size), seconds, seconds, st.integers(0, 5))
    return [
        FunctionCalls(
            calls(i, draw(seconds), draw(seconds)), tuple(draw(st.lists(edge, max_size=6)))
        )
        for i in range(size)
    ]


@settings(max_examples=60)
@given(tables())
def test_own_times_are_kept_whatever_the_callers(table: list[FunctionCalls]) -> None:
    tree = trees.from_callers(table, REST, most=200)
    assert all(-1 <= parent < node for node, parent in enumerate(tree.parents))
    assert all(own >= 0 for own in tree.own)
    by_function = dict.fromkeys((one.of.frame for one in table), 0.0)
    for frame, own in zip(tree.frames, tree.own, strict=True):
        by_function[frame] = by_function.get(frame, 0.0) + own
    for one in table:
        assert by_function[one.of.frame] == pytest.approx(one.of.own_s, rel=1e-6, abs=1e-9)
