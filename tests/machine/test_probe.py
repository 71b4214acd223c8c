"""The probe: the same work each time, about as long as asked, out of user code's reach."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from torchstone.machine import noise
from torchstone.machine.memory import minor_faults
from torchstone.machine.noise import make_probe


def test_its_length_is_near_the_target_and_follows_it() -> None:
    short = make_probe(50_000)
    long = make_probe(800_000)
    assert long.exponent_bits > short.exponent_bits
    floor = min(long() for _ in range(30))
    # Between two powers of two, and the machine may have slowed since the size was found.
    assert 800_000 / 4 < floor < 800_000 * 8


def test_its_size_is_a_power_of_two_and_can_be_handed_on() -> None:
    bits = make_probe().exponent_bits
    assert bits & (bits - 1) == 0
    assert make_probe(exponent_bits=bits * 2).exponent_bits == bits * 2


def test_more_work_takes_longer() -> None:
    small, large = make_probe(exponent_bits=64), make_probe(exponent_bits=512)
    assert min(large() for _ in range(20)) > 3 * min(small() for _ in range(20))


def test_a_patched_timer_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_probe()
    before = time.monotonic_ns()
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter_ns", lambda: 0)
        patch.setattr("builtins.pow", lambda *_: 0)
        told = run()
    assert 1000 < told <= time.monotonic_ns() - before


def test_it_leaves_no_footprint() -> None:
    run = make_probe()
    run()
    before = minor_faults()
    tracemalloc.start()
    run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 10  # a fraction of any first-level cache
    assert minor_faults() - before < 50


def test_the_size_stays_in_bounds() -> None:
    assert make_probe(1).exponent_bits == noise.MIN_EXPONENT_BITS
    assert make_probe(10**12).exponent_bits == noise.MAX_EXPONENT_BITS
