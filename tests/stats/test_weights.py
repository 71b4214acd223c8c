"""Replicates whose processes never met the core at full speed count for less."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.stats.synthetic import from_turns, turn
from torchstone.records import Measurement
from torchstone.stats import absolute, central_time, fit_ratios, process_data
from torchstone.stats.ratio import fastest_probe, speed_weights

FULL = (1e-4, 1e-4)


def test_full_speed_counts_most_and_beyond_a_limit_nothing_gets_worse() -> None:
    weights = speed_weights([FULL, FULL, (1e-4, 1.02e-4), (1.05e-4, 1e-4), (1e-4, 2e-4)])
    assert weights[:2] == [1.0, 1.0]
    assert 1.0 > weights[2] > weights[3] > weights[4] > 0.05
    assert weights[4] == speed_weights([FULL, FULL, FULL, (1e-4, 1.5e-4)])[3]


def test_one_lucky_probe_does_not_make_the_others_slow() -> None:
    assert speed_weights([FULL, (0.65e-4, 1e-4), FULL, FULL]) == [1.0] * 4


@pytest.mark.parametrize("fastest", [[], [(math.nan, 1e-4), FULL], [(0.0, 1e-4), FULL]])
def test_without_probes_all_count_the_same(fastest: list[tuple[float, float]]) -> None:
    assert speed_weights(fastest) == [1.0] * len(fastest)


def probed(name: str, levels: list[int], probes: list[int]) -> Measurement:
    """A replicate a level, its samples that long and its probes so long."""
    made = [
        replace(turn(r, t, [level] * 6), probe_ns=(probe,) * 7, probe_every=1)
        for r, (level, probe) in enumerate(zip(levels, probes, strict=True))
        for t in range(3)
    ]
    return from_turns(name, made)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_one_odd_reading_is_one_of_four_however_many_samples_stand_beside_it(every: int) -> None:
    probes = [65, *[100] * 19]
    made = replace(turn(0, 0, [1000] * 19 * every), probe_ns=tuple(probes), probe_every=every)
    data = process_data(from_turns("a", [made]), 0)
    assert sorted(data.probes.tolist()) == pytest.approx([one * 1e-9 for one in probes])
    assert fastest_probe(data) == pytest.approx((65 + 3 * 100) / 4 * 1e-9)
    assert math.isnan(fastest_probe(data.only(data.reading < 2)))


def test_a_process_that_never_met_full_speed_hardly_moves_the_floor_and_wholly_the_median() -> None:
    base = probed("a", [1000, 1000, 1000, 1000], [100, 100, 100, 100])
    new = probed("b", [1020, 1020, 1020, 1500], [100, 100, 100, 150])
    assert fastest_probe(process_data(new, 3)) == pytest.approx(150e-9)
    fits = fit_ratios(base, new, ("low1", "median"))
    assert math.exp(fits["low1"].centre) == pytest.approx(1.02, abs=0.01)
    assert math.exp(fits["median"].centre) == pytest.approx(1.02 * (1500 / 1020) ** 0.25)
    low, high = fits["low1"].interval(0.95)
    assert low < 1.0 < high  # one of four says otherwise, and the interval does not hide it


def test_the_time_of_an_arm_is_weighed_as_its_ratio_is() -> None:
    """Two of four processes met a slow core, and their probes say so: the times of both arms must
    not say what their ratio denies."""
    slow = probed("b", [5000, 6500, 5000, 6500], [100, 130, 100, 130])
    found = absolute(slow, "floor")
    assert found.value == pytest.approx(5e-6, rel=0.03)
    assert central_time(slow, "floor") == pytest.approx(found.value)
    typical = absolute(slow, "median")
    assert typical.value == pytest.approx(math.sqrt(5e-6 * 6.5e-6))
