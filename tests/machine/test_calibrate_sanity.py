"""Figures that cannot be are marked, dropped or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchstone.machine.calibrate.request import (
    drop_false_memory,
    flops_per_cycle,
    mark_impossible,
    unsound,
)
from torchstone.machine.hardware import best_cost, best_rate
from torchstone.records import DRAM, Calibration, Peak

ZEN3 = {"architecture": "x86_64", "flags": "avx avx2 fma f16c"}
CLOCK = Peak(3.2e9)


def memory(level: str, value: float, note: str = "triad, x", threads: int = 1) -> Peak:
    return Peak(value, level=level, threads=threads, note=note)


def test_best_of_many_keeps_the_spread() -> None:
    peak = best_rate([1.0, 2.0, 4.0], Peak(0.0, dtype="fp32"))
    assert peak == Peak(4.0, spread=0.5, samples=3, dtype="fp32")
    assert best_cost([4.0, 2.0, 3.0], Peak(0.0)) == Peak(2.0, spread=0.5, samples=3)


@pytest.mark.parametrize("best", [best_rate, best_cost])
def test_samples_that_are_no_figures_never_win(best) -> None:  # type: ignore[no-untyped-def]
    strange = [float("inf"), float("nan"), 0.0, -1.0]
    found = best([*strange, 2.0], Peak(0.0))
    assert (found.value, found.samples) == (2.0, 1)
    assert best(strange, Peak(0.0)) is None
    assert best([], Peak(0.0)) is None


@pytest.mark.parametrize(
    ("dtype", "flags", "most"),
    [
        ("fp32", "avx avx2 fma", 32),
        ("fp64", "avx avx2 fma", 16),
        ("fp32", "avx avx2 fma avx512f", 64),
        ("fp32", "avx", 16),
        ("bf16", "avx fma avx512f amx_bf16", 1024),
        ("int8", "avx fma avx512f amx_int8", 2048),
        ("fp32", "", None),
        ("fp8", "fma", None),
    ],
)
def test_the_most_a_core_can_do(dtype: str, flags: str, most: float | None) -> None:
    assert flops_per_cycle(dtype, flags.split(), "x86_64") == most
    assert flops_per_cycle(dtype, flags.split(), "aarch64") is None


def test_a_peak_above_the_theory_is_marked_and_kept() -> None:
    honest, double = Peak(94e9, dtype="fp32", threads=1), Peak(205e9, dtype="fp32", threads=1)
    kept, notes = mark_impossible([honest, double], CLOCK, ZEN3, cores=2)
    assert kept[0] == honest
    assert kept[1].value == double.value
    assert "above the theoretical bound" in kept[1].note
    assert len(notes) == 1
    assert "205.0 GFLOP/s is more than 102.4" in notes[0]
    # Two cores could; and without a clock nothing can be said.
    assert mark_impossible([replace(double, threads=2)], CLOCK, ZEN3, cores=2)[1] == []
    assert len(mark_impossible([replace(double, threads=2)], CLOCK, ZEN3, cores=1)[1]) == 1
    assert mark_impossible([double], None, ZEN3, cores=2) == ([double], [])


def test_memory_faster_than_caches_is_dropped() -> None:
    cache, false = memory("L3", 60e9), memory(DRAM, 61e9)
    kept, notes = drop_false_memory([cache, false])
    assert kept == [cache]
    assert "61.0 GB/s is above the 60.0" in notes[0]
    # The last cache counts: a false one would be as fast as that, not as the first.
    assert drop_false_memory([memory("L1", 150e9), cache, false])[1] == notes
    true = memory(DRAM, 20e9)
    assert drop_false_memory([cache, true]) == ([cache, true], [])
    # Only the same kernel with the same threads can be compared.
    other = memory("L3", 60e9, "read, y"), memory("L3", 60e9, threads=2)
    assert drop_false_memory([*other, false])[0] == [*other, false]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -3.0])
def test_figures_that_cannot_be_are_named(value: float) -> None:
    sound = Calibration("i", "m", "f", "c", compute=(Peak(1.0, dtype="fp32"),), clock=Peak(3e9))
    assert unsound(sound) == ""
    bad = Peak(value, dtype="fp64", level="L2")
    assert "fp64 peak" in unsound(replace(sound, compute=(*sound.compute, bad)))
    assert "L2 bandwidth" in unsound(replace(sound, bandwidth=(bad,)))
    assert "clock" in unsound(replace(sound, clock=bad))
    assert "dispatch" in unsound(replace(sound, costs={"dispatch": bad}))
    assert "fp32" in unsound(replace(sound, compute=(Peak(1.0, float("nan"), dtype="fp32"),)))
