"""Rules about how an arm ran: its threads, its memory, debug settings."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from tests.targets.support import ROOT, settings, target
from tests.validate.cases import arm, levels, one, pair
from torchstone.lab.bench import measure
from torchstone.measure.warmup import debug_settings
from torchstone.records import ArmSpec, Integrity, Level, Measurement, Result

MIB = 1 << 20


def seen(*threads: int, debug: tuple[str, ...] = (), asked: int | None = 1) -> Measurement:
    made = arm("inductor", 4e-3, seed=2)
    integrity = Integrity(threads_seen=threads, debug_settings=debug)
    return replace(made, arm=replace(made.arm, threads=asked), integrity=integrity)


def sized(sizes: list[int]) -> Measurement:
    """An arm whose processes have these sizes, turn by turn."""
    made = arm("inductor", 4e-3, seed=2)
    turns = [replace(turn, resident_bytes=sizes[turn.index] * MIB) for turn in made.turns]
    return replace(made, turns=tuple(turns))


def test_a_thread_count_that_the_arm_changes_is_a_warning_with_both_numbers() -> None:
    check = one("thread-change", pair(seen(1, 2)), "inductor")
    assert check.level is Level.WARN
    assert "1 thread" in check.message
    assert "ran with 2" in check.message
    assert levels("thread-change", pair(seen(1))) == [Level.OK]
    assert levels("thread-change", pair(seen())) == []


def test_debug_settings_are_named() -> None:
    check = one("debug", pair(seen(debug=("CUDA_LAUNCH_BLOCKING",))), "inductor")
    assert check.level is Level.WARN
    assert "CUDA_LAUNCH_BLOCKING" in check.message
    alone = one("debug", pair(seen(debug=("torch.use_deterministic_algorithms",))), "inductor")
    assert alone.level is Level.NOTE


def test_debug_settings_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = debug_settings()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("TORCH_LOGS", "0")
    gc.set_debug(gc.DEBUG_UNCOLLECTABLE)
    try:
        assert set(debug_settings()) - set(before) == {"CUDA_LAUNCH_BLOCKING", "gc.set_debug"}
    finally:
        gc.set_debug(0)


@pytest.mark.parametrize(
    ("sizes", "level"),
    [
        ([500, 600, 700, 800, 900, 1000], Level.WARN),
        ([500, 700, 750, 750, 750, 750], Level.OK),  # a cache that was filled
        ([500, 502, 504, 506, 508, 510], Level.OK),
        ([900, 800, 700, 700, 700, 700], Level.OK),
    ],
)
def test_memory_that_goes_on_growing_is_a_leak(sizes: list[int], level: Level) -> None:
    assert levels("leak", pair(sized(sizes))) == [level]


def test_a_process_without_sizes_has_no_check() -> None:
    assert levels("leak", pair(arm("inductor", 4e-3, seed=2))) == []


def bench(*arms: ArmSpec) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return measure(arms, settings(budget_s=1.0), None, None, (), "bench")


def warned(result: Result, rule: str) -> set[str]:
    found = [c for c in result.checks if c.rule == rule and c.level is Level.WARN]
    return {name for check in found for name in check.arms}


def test_a_real_leak_is_found() -> None:
    result = bench(
        ArmSpec("honest", target("cheats", "honest")), ArmSpec("leaks", target("cheats", "leaks"))
    )
    assert warned(result, "leak") == {"leaks"}


@pytest.mark.slow
def test_a_model_that_sets_its_threads_is_found() -> None:
    result = bench(ArmSpec("two", target("cheats", "torch_sets_threads"), threads=1))
    assert warned(result, "thread-change") == {"two"}
