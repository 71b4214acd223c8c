"""Absolute times are what they are called: a floor is undisturbed, or withheld."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchstone.stats import absolute, call_time, central_time

from .synthetic import Model, from_turns, measurement, turn

MS = 1_000_000


def processes(*fastest_ms: float, spread: float = 0.01, seed: int = 0):  # type: ignore[no-untyped-def]
    """Processes of 40 calls each that never were faster than this."""
    rng = np.random.default_rng(seed)
    made = []
    for r, least in enumerate(fastest_ms):
        times = least * MS * np.exp(np.abs(rng.normal(0.0, spread, 40)))
        made += [turn(r, t, [round(one)]) for t, one in enumerate(times)]
    return from_turns("arm", made)


@pytest.mark.parametrize("fastest", [(430.0, 71.2, 182.0), (306.0, 53.9, 70.0)])
def test_without_two_processes_that_agree_there_is_no_floor(fastest: tuple[float, ...]) -> None:
    arm = processes(*fastest)
    found = call_time(arm, "floor")
    assert (found.value, found.interval, found.used) == (None, None, 0)
    assert sorted(found.processes) == pytest.approx([t / 1e3 for t in sorted(fastest)], rel=0.01)
    assert central_time(arm, "floor") is None
    assert math.isnan(absolute(arm, "floor").value)


def test_a_disturbed_process_does_not_pull_a_floor_up() -> None:
    calm, disturbed = processes(71.2, 71.5, 71.9), processes(71.2, 71.5, 71.9, 430.0)
    expected, found = call_time(calm, "floor"), call_time(disturbed, "floor")
    assert found.value == pytest.approx(expected.value)
    assert found.interval == pytest.approx(expected.interval)
    assert (found.used, len(found.processes)) == (3, 4)
    assert central_time(disturbed, "floor") == pytest.approx(found.value)


@pytest.mark.parametrize("name", ["floor", "typical"])
def test_an_interval_never_begins_below_anything_possible(name: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        arm = processes(*np.exp(rng.normal(3.0, rng.uniform(0.0, 1.0), 3)), spread=0.3, seed=seed)
        found = call_time(arm, name)
        fastest = min(t for one in arm.turns for t in one.wall_ns) / 1e9
        assert found.interval is None or found.interval[0] >= fastest / 1.1
    assert call_time(processes(20.0, 55.0, 120.0), "typical").interval is None


@pytest.mark.parametrize("process_sd", [0.0, 0.005, 0.02])
def test_the_intervals_that_are_shown_hold_the_true_floor(process_sd: float) -> None:
    """Of processes that differ as layouts do; a tenth of them disturbed all along."""
    held = shown = 0
    model = Model(process_sd=process_sd, slow_share=0.1, slow_by=0.5, sample_sd=0.05)
    truth = [
        call_time(measurement(seed=10_000 + s, replicates=1, model=model, slow_share=0.0), "floor")
        for s in range(200)
    ]
    true = math.exp(np.mean([math.log(one.value or math.nan) for one in truth]))
    for seed in range(150):
        found = call_time(measurement(seed=seed, replicates=5, turns=4, model=model), "floor")
        if found.interval is not None:
            shown += 1
            held += found.interval[0] <= true * 1.003 and found.interval[1] >= true * 0.997
    assert shown >= 145
    assert held / shown >= 0.92


def test_a_floor_of_few_samples_far_above_the_fastest_is_withheld() -> None:
    """Four samples a process: the mean of three says little where one took far less."""
    slow = [[68, 70, 72, 75], [66, 69, 71, 74]]
    calm = from_turns("arm", [turn(r, 0, [t * MS for t in each]) for r, each in enumerate(slow)])
    assert call_time(calm, "floor").value == pytest.approx(0.0694, rel=0.02)
    slow[1][0] = 51
    odd = from_turns("arm", [turn(r, 0, [t * MS for t in each]) for r, each in enumerate(slow)])
    assert call_time(odd, "floor").value is None
    assert central_time(odd, "floor") is None
    many = [[*each, *[75] * 40] for each in slow]
    known = from_turns("arm", [turn(r, 0, [t * MS for t in each]) for r, each in enumerate(many)])
    assert call_time(known, "floor").value is not None
