"""Allocations by the real memray."""

from __future__ import annotations

import pytest

from tests.profile.probing import names
from tests.targets import profiled
from torchstone.profile.formats.own import check_profile
from torchstone.profile.probes.base import ProbeFailed
from torchstone.profile.probes.memory import AllocatorProbe
from torchstone.records import Profile

pytest.importorskip("memray")

HELD = 16 << 20


def keeps(where: list[bytearray]) -> None:
    where.append(bytearray(HELD))


def taken() -> Profile:
    """Memory that is given back, and memory that is kept beside it at the peak."""
    held: list[bytearray] = []
    probe = AllocatorProbe()
    assert not probe.unavailable()
    probe.start()
    keeps(held)
    profiled.grows()
    profile = probe.stop()
    assert probe.written_bytes > 0
    check_profile(profile)
    return profile


def test_who_held_what_at_the_peak() -> None:
    profile = taken()
    memory = profile.memory
    assert memory is not None
    assert memory.at_peak is not None
    assert profiled.GROWTH + HELD <= memory.peak_bytes < profiled.GROWTH + 2 * HELD
    largest, second = memory.alive[:2]
    assert (largest.what, largest.count) == ("grows", 1)
    assert profiled.GROWTH <= largest.bytes < profiled.GROWTH * 1.1
    assert [profile.frames[frame].name for frame in largest.stack] == ["taken", "grows"]
    grows = profile.frames[largest.stack[-1]]
    assert (grows.file, grows.line) == (
        profiled.__file__,
        profiled.grows.__code__.co_firstlineno,
    )
    assert (second.what, second.bytes // HELD) == ("keeps", 1)
    assert not {"pytest_pyfunc_call", "stop"} & names(profile.frames)


def test_memory_over_time() -> None:
    memory = taken().memory
    assert memory is not None
    assert len(memory.time_ns) == len(memory.resident) == len(memory.heap) > 0
    assert list(memory.time_ns) == sorted(memory.time_ns)
    assert min(memory.resident) > 0


def test_a_second_one_is_told() -> None:
    first = AllocatorProbe()
    first.start()
    try:
        with pytest.raises(ProbeFailed, match="memray could not begin"):
            AllocatorProbe().start()
    finally:
        first.discard()
    assert taken().memory is not None  # and nothing is left of either
