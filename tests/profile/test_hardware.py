"""Counters of the processor: whose they are, and what is said where they took turns."""

from __future__ import annotations

import os
import struct

import pytest

from torchstone.profile.probes import count
from torchstone.profile.probes.count import EVENTS, HardwareCounters, Reading, counter_of

FULL = Reading(1000, 50, 50)


def test_counters_that_always_counted_are_counts() -> None:
    found = counter_of("cycles", [FULL, FULL, Reading(0, 0, 0)], 3, 3)
    assert found.value == 2000
    assert found.note == "in user code, of all threads"


def test_a_counter_that_took_turns_is_scaled_and_called_an_estimate() -> None:
    found = counter_of("cycles", [FULL, Reading(1000, 50, 25)], 2, 2)
    assert found.value == 1000 + 2000
    assert "an estimate: it counted 75 % of the time" in found.note


def test_threads_that_are_not_counted_are_told() -> None:
    assert "of the first 64 of 70 threads" in counter_of("cycles", [FULL] * 64, 64, 70).note


def test_a_thread_that_was_never_counted_makes_it_too_low() -> None:
    found = counter_of("cycles", [FULL, Reading(0, 50, 0)], 2, 2)
    assert found.value == 1000
    assert "too low: it never counted on 1 of them" in found.note
    lost = counter_of("cycles", [FULL, None], 2, 2)
    assert "too low: it could not be read on 1 of them" in lost.note


@pytest.mark.parametrize("readings", [[Reading(0, 50, 0)], [None], [None, Reading(0, 9, 0)]])
def test_nothing_counted_is_no_zero(readings: list[Reading | None]) -> None:
    found = counter_of("cycles", readings, len(readings), len(readings))
    assert found.value is None
    assert found.note.startswith("not measurable here: ")


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with counters, each a pipe with one reading in it, and a process of 70 threads."""
    asked: list[int] = []

    def opened(event: int, thread: int) -> int:
        asked.append(thread)
        reader, writer = os.pipe()
        os.write(writer, struct.pack("=QQQ", 10, 40, 20))
        os.close(writer)
        return reader

    monkeypatch.setattr(count, "_open_event", opened)
    monkeypatch.setattr(count, "list_numbers", lambda folder: list(range(170, 100, -1)))
    return asked


def test_from_the_kernels_three_numbers_to_a_figure(pipes: list[int]) -> None:
    counters = HardwareCounters()
    counters.start()
    found = counters.stop()
    assert [one.name for one in found] == list(EVENTS)
    for one in found:
        assert one.value == 64 * 20
        assert "of the first 64 of 70 threads" in one.note
        assert "an estimate: it counted 50 % of the time" in one.note
    assert pipes[:64] == list(range(101, 165))  # the main thread is among them


def test_the_kernel_is_asked_for_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """As <linux/perf_event.h> has it: the format of readings is the fifth field, at byte 32."""
    seen: list[bytes] = []

    class Library:
        def syscall(self, number: object, attribute: object, *more: object) -> int:
            seen.append(bytes(memoryview(attribute)))  # type: ignore[arg-type]
            return -1

    monkeypatch.setattr(count.ctypes, "CDLL", lambda *words, **more: Library())
    monkeypatch.setattr(count.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(count.sys, "platform", "linux")
    count._open_event(0, 0)
    assert struct.unpack_from("=Q", seen[0], 32) == (3,)
