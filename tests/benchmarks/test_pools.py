"""Resampled trials: known effects come back, and the maths is that of the real thing."""

from __future__ import annotations

import random

import numpy as np
import pytest
from aa_journal import Row
from aa_ours import decode, encode
from aa_pools import (
    Cell,
    Condition,
    Design,
    Pair,
    Rate,
    Rules,
    as_data,
    deal,
    evaluate,
    fit,
    load_pools,
    log_ratio,
    pairs,
    pools_table,
    shorten,
    side,
)

from tests.stats.synthetic import Model, clopper_pearson, measurement
from torchstone.stats import compare, fit_ratio
from torchstone.stats.estimators import is_floor
from torchstone.stats.ratio import fastest_probe

NOISY = Model(process_sd=0.004, turn_sd=0.003, burst_share=0.5)


def condition(effect: int) -> Condition:
    return Condition("5ms", 1, False, effect)


def arms(effect: int, replicates: int = 48, turns: int = 6, seed: int = 0, model: Model = NOISY):
    slower = Model(**{**model.__dict__, "step": model.step * (1 + effect / 100)})
    shape = {"replicates": replicates, "turns": turns, "per_turn": 8}
    return (
        measurement("base", seed=seed, model=model, **shape),
        measurement("new", seed=seed + 1, model=slower, **shape),
    )


def pool(effect: int, **changes: int) -> list[Pair]:
    return list(pairs(*arms(effect, **changes)))


def cell(effect: int, estimator: str, **rules: float) -> Cell:
    found = evaluate(
        condition(effect), pool(effect), [Design(6)], [estimator], [Rules(**rules)], resamples=200
    )
    return next(found)


@pytest.mark.parametrize("effect", [2, 5])
def test_a_known_slow_down_is_found(effect: int) -> None:
    found = cell(effect, "low1")
    assert found.different.value > 0.6 if effect == 2 else found.different.value > 0.98
    assert found.covered is not None
    assert found.covered.value > 0.85
    assert found.wrong_way == 0.0
    assert found.error < 0.004


def test_identical_arms_raise_few_false_alarms() -> None:
    found = cell(0, "low1")
    assert found.different.value <= 0.1
    assert found.covered is not None
    assert found.covered.value > 0.85


def test_a_poor_estimator_looks_poor() -> None:
    floor, typical = cell(2, "low1"), cell(2, "median")
    assert typical.half_width > 2 * floor.half_width
    assert typical.different.value < floor.different.value


def test_the_fit_is_that_of_the_real_comparison() -> None:
    rough = Model(turn_sd=0.02)  # where the variance floor of few processes counts
    for seed in range(0, 12, 2):
        base, new = arms(5, replicates=3, seed=seed, model=rough)
        for estimator in ("low1", "median"):
            pool = list(pairs(base, new))
            values = [log_ratio(pair, estimator) for pair in pool]
            fastest = [(fastest_probe(pair.base), fastest_probe(pair.new)) for pair in pool]
            found = fit(values, fastest, range(len(pool)), is_floor(estimator))
            assert found == fit_ratio(base, new, estimator)


@pytest.mark.parametrize("effect", [0, 1, 2, 5])
def test_the_verdict_is_that_of_the_real_comparison(effect: int) -> None:
    quiet = Model(process_sd=0.006, sample_sd=0.001)
    rules = Rules()
    sides = {"slower": 1, "faster": -1}
    for seed in range(0, 60, 2):
        base, new = arms(effect, replicates=5, turns=4, seed=seed, model=quiet)
        real = compare(base, new, margin=rules.margin, alpha=rules.alpha, aa_floor=rules.aa_floor)
        if "contradict" not in real.reason:  # that rule is not played, and the module says so
            fit = fit_ratio(base, new, real.decided_by)
            assert side(fit, rules) == sides.get(real.verdict.value, 0)


def test_raw_data_survive_the_journal() -> None:
    base, new = arms(5, replicates=2)
    row: Row = {
        "step": "5ms",
        "threads": 1,
        "load": False,
        "effect": 5,
        "raw": [encode(base), encode(new)],
    }
    again = decode(row["raw"][1])
    for turn, other in zip(again.turns, new.turns, strict=True):
        assert (turn.replicate, turn.index) == (other.replicate, other.index)
        assert (turn.wall_ns, turn.cpu_ns, turn.probe_ns) == (
            other.wall_ns,
            other.cpu_ns,
            other.probe_ns,
        )
    (key, loaded), *rest = load_pools([row, {"kind": "pin"}]).items()
    assert (key, len(loaded), rest) == (condition(5), 2, [])
    assert [log_ratio(p, "low1") for p in loaded] == [
        log_ratio(p, "low1") for p in pairs(base, new)
    ]


def test_hands_of_one_deal_are_disjoint() -> None:
    hands = list(deal(20, 6, 30, random.Random(0)))
    assert len(hands) == 30
    for at in range(0, 30, 3):
        cards = [card for hand in hands[at : at + 3] for card in hand]
        assert len(set(cards)) == 18
    assert list(deal(5, 6, 30, random.Random(0))) == []


def test_a_shorter_pair_has_neighbouring_turns_and_their_beginnings() -> None:
    whole = pool(5, replicates=1, turns=10)[0]
    short = shorten(whole, 3, None, random.Random(4))
    first = short.turns[0]
    assert short.turns == [first, first + 1, first + 2]
    assert short.base.samples.size == 24
    cut = shorten(whole, None, 22.0, random.Random(4))
    assert cut.turns == whole.turns
    for turn in cut.turns:
        kept, all_of = cut.base.samples[cut.base.turn == turn], whole.base.samples
        assert np.array_equal(kept, all_of[whole.base.turn == turn][: kept.size])
        assert kept.size >= 4
        assert kept[:-1].sum() < 0.022 or kept.size == 4


def test_the_interval_counts_one_deal_only() -> None:
    assert Rate(0.25, 40).interval == pytest.approx(clopper_pearson(10, 40))
    assert Rate(0.0, 8).interval == pytest.approx(clopper_pearson(0, 8))
    assert Rate(1.0, 8).interval == pytest.approx(clopper_pearson(8, 8))
    assert cell(5, "low1").different.groups == 48 // 6


def test_designs_that_the_pool_cannot_fill_are_left_out() -> None:
    designs = [Design(4), Design(4, 3), Design(4, 99), Design(50)]
    small = pool(0, replicates=8)
    found = list(evaluate(condition(0), small, designs, ["min"], resamples=10))
    assert [c.design for c in found] == [Design(4), Design(4, 3)]
    assert found[0].seconds > found[1].seconds
    assert "5ms, 1 thread, quiet, 0 %" in pools_table(found)
    assert as_data(found[0])["different"]["interval"] == found[0].different.interval


def test_a_wider_margin_calls_more_the_same() -> None:
    assert cell(2, "low1", margin=0.05).different.value < cell(2, "low1").different.value
