"""Played trials of real models: pairs are formed from turns, and known effects come back."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from aa_journal import Row
from aa_models import CALLS
from aa_ours import encode
from aa_pairs import ESTIMATORS
from aa_pools import Rules
from aa_real_pools import (
    Design,
    Replicate,
    aligned,
    cut,
    error_of,
    evaluate,
    fit,
    load_pools,
    scores_table,
    summary_table,
)
from aa_real_record import Setup

from tests.stats.synthetic import Model, measurement
from torchstone.records import Measurement

SETUP = Setup("bert", 1)
STEADY = Model(step=0.03, process_sd=0.004, sample_sd=0.01, weather_sd=0.1)


def arms(effect: int, replicates: int = 12, turns: int = 40, per_turn: int = 1, seed: int = 0):
    """Two arms that share the machine's slow moments; turns of one call unless told otherwise."""
    base_calls, new_calls = CALLS[effect]
    slower = replace(STEADY, step=STEADY.step * new_calls / base_calls)
    shape = {"replicates": replicates, "turns": turns, "per_turn": per_turn}
    return (
        measurement("base", seed=seed, model=STEADY, **shape),
        measurement("new", seed=seed + 1, model=slower, **shape),
    )


def row(effect: int, pair: tuple[Measurement, Measurement], **changes: object) -> Row:
    return {
        "kind": "replicates",
        "model": "bert",
        "threads": 1,
        "load": False,
        "together": False,
        "allocator": "keep",
        "effect": effect,
        "raw": [encode(arm) for arm in pair],
        **changes,
    }


def pool(replicates: int = 12) -> dict[int, list[Replicate]]:
    rows = [row(e, arms(e, replicates, seed=10 * e)) for e in CALLS]
    return load_pools(rows)[SETUP]


def test_turns_of_one_call_become_pairs() -> None:
    base, new = arms(5, replicates=3, turns=7)
    found = list(aligned(base, new, math.log(1.05)))
    assert [one.base.size for one in found] == [7, 7, 7]
    walls = [t.wall_ns[0] / 1e9 for t in base.turns if t.replicate == 1]
    assert found[1].base.tolist() == walls
    assert found[1].turn.tolist() == list(range(7))


def test_longer_turns_are_paired_call_by_call_and_gaps_fall_out() -> None:
    base, new = arms(5, replicates=1, turns=3, per_turn=4)
    short = replace(new.turns[1], wall_ns=new.turns[1].wall_ns[:2])
    gappy = replace(new, turns=(new.turns[0], short))  # no third turn, a second one cut short
    (one,) = aligned(base, gappy, 0.0)
    assert one.turn.tolist() == [0, 0, 0, 0, 1, 1]
    assert one.new.tolist() == [w / 1e9 for t in gappy.turns for w in t.wall_ns]
    assert one.base.tolist() == [
        w / 1e9 for w in (*base.turns[0].wall_ns, *base.turns[1].wall_ns[:2])
    ]


def test_pools_are_told_apart_and_disturbed_rows_left_out() -> None:
    pair = arms(5, replicates=2)
    rows = [
        {"kind": "pin"},
        row(5, pair),
        row(5, pair, kind="trial"),
        row(5, pair, kind="disturbed"),
        row(5, pair, together=True),
        {**row(5, pair), "raw": None},
    ]
    found = load_pools(rows)
    assert {setup: len(of[5]) for setup, of in found.items()} == {
        SETUP: 4,
        replace(SETUP, together=True): 2,
    }


def test_a_cut_is_a_run_of_neighbours_of_about_that_length() -> None:
    one = next(aligned(*arms(0, replicates=1), 0.0))
    chance = random.Random(3)
    starts = set()
    for _ in range(50):
        short = cut(one, 0.5, chance)
        first = int(short.turn[0])
        starts.add(first)
        assert short.turn.tolist() == list(range(first, first + short.base.size))
        assert short.seconds.sum() <= 0.5 < short.seconds.sum() + 2 * one.seconds.max()
    assert len(starts) > 10
    assert cut(one, 1e9, chance) is one


@pytest.mark.parametrize("own", [False, True])
def test_known_effects_come_back(own: bool) -> None:
    found = list(
        evaluate(SETUP, pool(), [Design(4, 2.0)], ["pair-median", "medians"], Rules(), 200, own)
    )
    assert [(one.estimator, one.floored) for one in found] == [
        ("pair-median", True),
        ("pair-median", False),
        ("medians", True),
        ("medians", False),
    ]
    best, _, usual, _ = found
    assert list(best.found) == [0, 3, 5, 10]
    assert best.found[0].value <= 0.1
    assert best.found[5].value > 0.95
    assert best.found[10].value == 1.0
    assert best.covered.value > 0.9
    assert best.wrong_way == 0.0
    assert best.half_width < usual.half_width
    # Twelve replicates an effect: three groups of its own, twelve of all.
    assert (best.found[5].groups, best.covered.groups) == (3 if own else 12, 12)


def test_own_pools_know_nothing_of_other_effects() -> None:
    planted = pool()
    del planted[3]
    found = list(evaluate(SETUP, planted, [Design(4, 1.0)], ["low25"], Rules(), 20, own=True))
    assert [list(one.found) for one in found] == [[0, 5, 10]] * 2


def test_a_design_that_the_pool_cannot_fill_is_left_out() -> None:
    designs = [Design(4, 1.0), Design(4, 60.0), Design(99, 1.0)]
    found = list(evaluate(SETUP, pool(), designs, ["pair-median"], Rules(), 20))
    assert {one.design for one in found} == {Design(4, 1.0)}


def test_the_floor_only_ever_widens() -> None:
    values = [error_of(one, "pair-median") for one in pool()[5][:4]]
    truth = math.log(1.05)
    floored, plain = fit(values, truth, True), fit(values, truth, False)
    assert floored.centre == plain.centre == pytest.approx(np.mean([v for v, _ in values]) + truth)
    assert floored.std_error >= plain.std_error
    assert not plain.floored


def test_a_whole_model_has_identical_arms_only() -> None:
    setup = Setup("whole-bert", 2)
    rows = [row(0, arms(0), model="whole-bert", threads=2)]
    found = list(evaluate(setup, load_pools(rows)[setup], [Design(4, 1.0)], ["floor"], Rules(), 20))
    assert [list(one.found) for one in found] == [[0], [0]]


def test_the_tables_have_every_estimator_and_both_floors() -> None:
    designs = [Design(4, 1.0), Design(8, 1.0)]
    scores = list(evaluate(SETUP, pool(), designs, tuple(ESTIMATORS), Rules(), 20))
    text = scores_table(scores)
    assert len(text.splitlines()) == 2 + 2 * 2 * len(ESTIMATORS)
    assert "bert, 1 thread, a process an arm, keep" in text
    summary = summary_table(scores, markdown=True)
    assert all(f"| {name}" in summary for name in ESTIMATORS)
    assert "large enough" in scores_table([])
