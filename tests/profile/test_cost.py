"""The cost of profiling: planted, with its control, in turns whose order changes."""

from __future__ import annotations

import random

import pytest

from torchstone.profile.context import LEAST_PAIRS, Turns, cost_of, take_turns


def test_a_planted_cost_is_found_and_the_control_shows_none() -> None:
    noise = random.Random(1)
    order: list[str] = []

    def plain() -> float:
        order.append("plain")
        return noise.uniform(0.98, 1.02)

    def profiled() -> float:
        order.append("profiled")
        return 1.5 * noise.uniform(0.98, 1.02)

    cost = cost_of(take_turns(plain, profiled), steps=10, footprint_bytes=5, memory_bytes=-3)
    low, high = cost.ratio.interval
    assert low < 1.5 < high
    assert high - low < 0.1
    low, high = cost.control.interval
    assert low < 1.0 < high < 1.05
    assert cost.unprofiled_s == pytest.approx(0.1, rel=0.05)
    assert cost.profiled_s == pytest.approx(0.15, rel=0.05)
    assert (cost.footprint_bytes, cost.memory_bytes) == (5, 0)
    firsts = [order[at : at + 2][0] for at in range(0, len(order), 4)]
    assert set(firsts) == {"plain", "profiled"}


def test_drift_hits_both_alike() -> None:
    """A machine that grows slower with every block: the order that changes makes up for it."""
    clock = [1.0]

    def block() -> float:
        clock[0] *= 1.05
        return clock[0]

    cost = cost_of(take_turns(block, block))
    low, high = cost.ratio.interval
    assert low < 1.0 < high


def test_what_a_probe_leaves_behind_does_not_move_the_control() -> None:
    """Caches that it emptied make the next block slower, whichever that is."""
    last = ["plain"]

    def block(name: str) -> float:
        before, last[0] = last[0], name
        return 1.1 if (before, name) == ("profiled", "plain") else 1.0

    turns = take_turns(lambda: block("plain"), lambda: block("profiled"), least=8, most=8)
    assert cost_of(turns).control.time_ratio == pytest.approx(1.0)


def test_a_dear_block_is_run_only_as_often_as_needed() -> None:
    turns = take_turns(lambda: 1.0, lambda: 2.0, budget_s=-1.0)
    assert len(turns.pairs) == len(turns.controls) == LEAST_PAIRS


def test_one_pair_tells_nothing() -> None:
    cost = cost_of(Turns([(1.0, 2.0)], [(1.0, 1.0)]))
    assert cost.ratio.interval == (0.0, float("inf"))
