"""Planted troubles, each found with its cause and its step; and quiet trainings."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tests.monitor.playing import MS, Training
from torchstone.monitor.clock import Span, StepRow
from torchstone.monitor.collect import Collector, _paused
from torchstone.monitor.detect import Block, DriftTest, LeakTest, change_point, two_modes
from torchstone.records.monitoring import MonitorEvent, MonitorLevel


def test_a_quiet_training_says_nothing() -> None:
    training = Training()
    training.play(20_000)
    assert training.events == []


def test_moods_of_a_shared_machine_are_no_drift() -> None:
    """Slow waves of 2 % are in every machine; a tenth of them alone is no warning."""
    training = Training()
    training.play(20_000, mood=lambda step: 1.0 + 0.02 * math.sin(step / 700.0))
    assert training.warnings == []


def test_a_gradual_drift_of_data_is_found_with_its_cause() -> None:
    """10 % over 2,000 steps, all of it waiting for data."""
    training = Training()

    def slower(step: int, phases: dict[str, float]) -> None:
        grown = min(1.0, max(0.0, (step - 5000) / 2000))
        phases["data"] += 0.1 * 5 * MS * grown

    training.play(9000, slower)
    (found,) = [one for one in training.warnings if one.what == "drift"]
    assert found.cause == "data"
    assert "waiting for data grew" in found.text
    assert 4500 <= found.figures["since_step"] <= 6500
    assert 1.05 <= found.figures["ratio"] <= 1.12


def test_a_jump_is_found_where_it_happened() -> None:
    training = Training()

    def slower(step: int, phases: dict[str, float]) -> None:
        if step >= 4000:
            phases["optimizer"] += 0.08 * 5 * MS

    training.play(6000, slower)
    (found,) = [one for one in training.warnings if one.what == "drift"]
    assert found.cause == "optimizer"
    assert abs(found.figures["since_step"] - 4000) <= 64


def test_steps_that_became_quicker_are_no_warning() -> None:
    training = Training()
    training.play(4000)
    training.play(4000, lambda step, phases: phases.update(forward=phases["forward"] * 0.5))
    assert training.warnings == []


@pytest.mark.slow
def test_the_rate_of_false_drifts_is_what_is_said() -> None:
    """Exchangeable blocks, no effect gate: the martingale itself passes 1/alpha seldom."""
    alpha, passed, runs = 0.05, 0, 200
    for seed in range(runs):
        drawn = random.Random(seed)
        test = DriftTest(alpha, seed)
        logs = [drawn.gauss(15.0, 0.05) for _ in range(400)]
        evidence = [test._bet(value) for value in logs]
        passed += max(evidence) >= -math.log(alpha)
    # The bound is for ever and for the worst case: 10 of 200 are allowed, two deviations more.
    assert passed <= 17


def _block(place: int, log_median: float) -> Block:
    return Block(place, log_median, np.zeros(6), 0.0, 0.0, 0.0, 0.0)


def test_blocks_are_joined_so_that_memory_stays_flat() -> None:
    test, drawn = DriftTest(), random.Random(1)
    for place in range(5000):
        test.add(_block(place, drawn.gauss(15.0, 0.01)))
    assert len(test.blocks) <= 513
    assert test.join >= 8


def test_a_starved_loader_is_named() -> None:
    training = Training()
    training.play(350)  # within what is looked at together
    training.play(600, lambda step, phases: phases.update(data=3.0 * MS))
    (found,) = [one for one in training.warnings if one.what == "starved"]
    assert found.cause == "data"
    assert 350 <= found.step <= 355
    assert found.figures["share"] > 0.25


@pytest.mark.parametrize("held", [False, True])
def test_a_loader_that_may_only_wait_for_a_core_is_a_note(held: bool) -> None:
    events: list[MonitorEvent] = []
    collector = Collector(events.append)
    rows, readings, wait = [], [], 0
    for step in range(400):
        now = (step + 1) * 10 * MS
        wait += 4 * MS if held else 0
        readings.append((now, f"{now} {wait} 1".encode()))
        rows.append(
            StepRow(step, now, 0, 4 * MS, 2 * MS, 2 * MS, -1, MS, MS, 1, 1, 0.5, 0, 0, 1, 0)
        )
    collector.add(rows, 4.0, scheduler=readings)
    levels = {one.what: one.level for one in events}
    assert levels.pop("starved") is (MonitorLevel.NOTE if held else MonitorLevel.WARN)
    assert list(levels) == (["contention"] if held else [])


def test_an_epoch_that_begins_is_no_starved_loader() -> None:
    """Its first batch takes long, because workers start; once in 2,000 steps is no trouble."""
    training = Training(step_ms=120.0)

    def epochs(step: int, phases: dict[str, float]) -> None:
        if step % 2000 == 1999:
            phases["data"] += 4000 * MS

    training.play(6100, epochs)
    assert training.warnings == []


def test_a_storm_of_collections_is_named() -> None:
    training = Training()

    def storm(step: int, begin: int, end: int) -> list[Span]:
        return [Span("gc", begin, begin + MS)] if step >= 350 else []

    training.play(900, spans=storm)
    (found,) = [one for one in training.warnings if one.what == "gc-share"]
    assert found.cause == "gc"
    assert 350 <= found.step <= 355


def test_compiling_again_at_each_step_is_named() -> None:
    training = Training()

    def again(step: int, phases: dict[str, float]) -> None:
        if step >= 100:
            phases["forward"] += 30 * MS

    def spans(step: int, begin: int, end: int) -> list[Span]:
        return [Span("compile", begin, begin + 30 * MS)] if step >= 100 else []

    training.play(300, again, spans)
    assert "compile-share" in [one.what for one in training.warnings]


@pytest.mark.parametrize(
    ("kind", "phase"), [("gc", "backward"), ("checkpoint", "other"), ("compile", "forward")]
)
def test_one_slow_step_is_explained(kind: str, phase: str) -> None:
    training = Training()

    def slow(step: int, phases: dict[str, float]) -> None:
        if step == 1234:
            phases[phase] += 50 * MS

    def spans(step: int, begin: int, end: int) -> list[Span]:
        return [Span(kind, end - 48 * MS, end - MS)] if step == 1234 else []

    training.play(2000, slow, spans)
    (found,) = [one for one in training.events if one.what == "slow-step"]
    assert (found.step, found.cause) == (1234, kind)
    assert training.warnings == []


def test_a_slow_step_without_a_cause_names_its_phase() -> None:
    training = Training()

    def slow(step: int, phases: dict[str, float]) -> None:
        if step == 700:
            phases["backward"] += 50 * MS

    training.play(1000, slow)
    (found,) = training.events
    assert (found.step, found.cause) == (700, "backward")


def test_a_leak_is_found_and_a_warm_up_is_not() -> None:
    leaking = Training()
    leaking.play(8000, rss=lambda step: (1 << 30) + step * (1 << 20))
    (found,) = leaking.warnings[:1]
    assert found.what == "leak"
    assert abs(found.figures["bytes_per_step"] / (1 << 20) - 1) < 0.05
    warming = Training()
    warming.play(
        20_000, rss=lambda step: (1 << 30) + round((1 << 28) * (1 - math.exp(-step / 2000)))
    )
    assert warming.warnings == []


def test_memory_that_breathes_is_no_leak() -> None:
    drawn = random.Random(3)
    test = LeakTest()
    found = [test.add(step, 1e9 + drawn.random() * 5e8) for step in range(5000)]
    assert not any(found)


def test_two_modes_are_seen_once() -> None:
    training = Training()

    def modes(step: int, phases: dict[str, float]) -> None:
        if step % 3 == 0:
            phases["forward"] += 4 * MS

    training.play(4000, modes)
    (found,) = [one for one in training.events if one.what == "two-modes"]
    assert found.figures["share"] == pytest.approx(1 / 3, abs=0.05)
    assert two_modes(np.random.default_rng(0).normal(0.0, 0.3, 512)) is None


def test_the_change_point_tells_a_jump_from_a_slope() -> None:
    drawn = np.random.default_rng(2)
    jump = np.concatenate([np.zeros(40), np.full(30, 0.1)]) + drawn.normal(0, 0.01, 70)
    slope = np.concatenate([np.zeros(40), np.linspace(0, 0.3, 30)]) + drawn.normal(0, 0.01, 70)
    assert change_point(jump) == (40, False)
    at, gradual = change_point(slope)
    assert gradual
    assert abs(at - 40) <= 5


@pytest.mark.slow
def test_ten_healthy_hours_have_at_most_one_alarm() -> None:
    """An hour each: 30,000 steps of 120 ms on a machine with moods, pauses and epochs."""
    alarms = []
    for seed in range(10):
        training = Training(step_ms=120.0, noise=0.05, seed=seed)
        drawn = random.Random(seed)
        phase = drawn.random() * 7.0

        def mood(step: int, phase: float = phase) -> float:
            return 1.0 + 0.015 * math.sin(step / 700.0 + phase)

        def pauses(step: int, phases: dict[str, float], drawn: random.Random = drawn) -> None:
            if drawn.random() < 0.001:
                phases["other"] += 300 * MS
            if step % 2000 == 1999:
                phases["data"] += 900 * MS

        training.play(30_000, pauses, mood=mood)
        alarms += training.warnings
    assert len(alarms) <= 1, [one.text for one in alarms]


@pytest.mark.slow
def test_what_the_collector_keeps_stays_flat() -> None:
    training = Training(step_ms=100.0)
    training.play(30_000)
    kept = training.collector._kinds.values()
    assert all(len(one.drift.blocks) <= 513 for one in kept)
    assert sum(len(rows) for one in kept for rows in one.rows) < 64
    assert len(training.collector._leak._samples) <= 4096


def test_pauses_are_put_to_the_steps_that_they_held_up() -> None:
    ends, walls = np.array([10.0, 20.0, 40.0, 50.0]), np.array([10.0, 10.0, 15.0, 10.0])
    spans = [Span("gc", 5, 12), Span("gc", 18, 30), Span("compile", 0, 50), Span("gc", 41, 42)]
    assert _paused(spans, ends, walls).tolist() == [5.0, 4.0, 5.0, 1.0]
