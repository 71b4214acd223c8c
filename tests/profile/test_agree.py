"""Ways side by side: shares that agree, and one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchstone.profile.trees import from_stacks, side_by_side
from torchstone.records import Calls, Frame, FunctionCalls, Profile, Sampling, Thread

FRAMES = (
    Frame("main", "/home/a/app.py", 1),
    Frame("left", "/home/a/app.py", 5),
    Frame("right", "/home/a/app.py", 9),
)


def counted(left: float) -> Profile:
    rows = [
        Calls(0, 1, 1, 0.0, 1.0),
        Calls(1, 9, 9, left, left),
        Calls(2, 9, 9, 1 - left, 1 - left),
    ]
    functions = tuple(FunctionCalls(row) for row in rows)
    return Profile("1", "", "count", "cProfile", FRAMES, functions=functions)


def sampled(left: float, samples: int = 1000, side: float = 0.0) -> Profile:
    stacks = [((0, 1), left, 0), ((0, 2), 1 - left, 0), ((1,), side, 1)]
    return Profile(
        "2",
        "",
        "sample",
        "sampler",
        tuple(Frame(f.name, f.file.removeprefix("/home/a/"), f.line) for f in FRAMES),
        threads=(Thread("main", critical=True), Thread("side")),
        tree=from_stacks([stack for stack in stacks if stack[1]], "seconds"),
        sampling=Sampling(samples, 0.005, "wall"),
    )


def test_shares_that_agree_are_not_named() -> None:
    found = side_by_side([counted(0.7), sampled(0.71)])
    assert found.ways == ("count", "sample")
    assert found.sentences == ()
    left = next(row for row in found.rows if row.name == "left")
    assert left.shares["count"].value == 0.7
    low, high = left.shares["sample"].interval or (0.0, 0.0)
    assert low < 0.7 < high


def test_a_difference_beyond_the_interval_is_named() -> None:
    found = side_by_side([counted(0.7), sampled(0.4)])
    assert len(found.sentences) == 2
    assert any(
        said.startswith("left (app.py:5): count 70%, sample 40% (") for said in found.sentences
    )


def test_a_function_that_one_way_did_not_see_has_a_share_of_nothing() -> None:
    blind = replace(sampled(1.0), frames=(FRAMES[0], FRAMES[1], FRAMES[1]))
    found = side_by_side([counted(0.7), blind])
    right = next(row for row in found.rows if row.name == "right")
    assert right.shares["sample"].value == 0
    assert right.apart
    assert any(
        said.startswith("right (app.py:9): count 30%, sample 0%") for said in found.sentences
    )


def test_a_function_that_the_tracer_names_otherwise_is_not_compared() -> None:
    called = (FRAMES[0], Frame("_wrapped_call_impl", "/torch/nn/modules/module.py", 9), FRAMES[2])
    traced = replace(counted(0.7), how="trace", frames=FRAMES)
    found = side_by_side([replace(counted(0.7), frames=called), traced])
    row = next(row for row in found.rows if row.name == "_wrapped_call_impl")
    assert set(row.shares) == {"count"}
    assert not row.apart


def test_two_exact_ways_can_disagree() -> None:
    traced = replace(counted(0.4), how="trace")
    assert len(side_by_side([counted(0.7), traced]).sentences) == 2
    assert side_by_side([counted(0.7), replace(counted(0.71), how="trace")]).sentences == ()


def test_counts_of_other_threads_do_not_count() -> None:
    """Exact figures are of all threads together: `left` ran as long again in another one."""
    tree = from_stacks([((0, 1), 0.7, 0), ((0, 2), 0.3, 0), ((1,), 5.0, 1)], "seconds")
    both = replace(
        counted(0.7),
        functions=(
            FunctionCalls(Calls(0, 1, 1, 0.0, 1.0)),
            FunctionCalls(Calls(1, 9, 9, 5.7, 5.7)),
            FunctionCalls(Calls(2, 9, 9, 0.3, 0.3)),
        ),
        threads=(Thread("main", critical=True), Thread("side")),
        tree=tree,
        wall_s=1.0,
    )
    found = side_by_side([both, sampled(0.7)])
    left = next(row for row in found.rows if row.name == "left")
    assert left.shares["count"].value == pytest.approx(0.7)
    assert found.sentences == ()


def test_few_samples_cannot_disagree() -> None:
    assert side_by_side([counted(0.7), sampled(0.4, samples=10)]).sentences == ()


def test_other_threads_do_not_count() -> None:
    found = side_by_side([counted(0.7), sampled(0.7, side=5.0)])
    assert found.sentences == ()
