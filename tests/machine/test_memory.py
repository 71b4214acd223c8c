"""Peaks, faults and their price, on real memory."""

from __future__ import annotations

import mmap
import os

import pytest

from tests.machine.support import clean_env, run
from torchstone.machine import memory
from torchstone.machine.memory import (
    allocator_environment,
    fault_cost_ns,
    major_faults,
    minor_faults,
    peak_bytes,
    rss_bytes,
    step_peak,
)

MIB = 1 << 20

can_reset = pytest.mark.skipif(not memory.reset_peak(), reason="no peak that can be reset here")


def _take(size: int) -> None:
    block = bytearray(size)
    block[:: mmap.PAGESIZE] = b"\1" * len(block[:: mmap.PAGESIZE])


@can_reset
def test_a_step_that_takes_64_mib_for_a_moment_reads_64_mib() -> None:
    for _ in range(2):  # and again in the same process
        assert step_peak(lambda: _take(64 * MIB)) == pytest.approx(64 * MIB, rel=0.05)


@can_reset
def test_a_step_of_many_small_blocks_and_one_of_none() -> None:
    def small() -> None:
        blocks = [bytearray(b"\1" * (256 << 10)) for _ in range(128)]
        del blocks

    assert step_peak(small) == pytest.approx(32 * MIB, rel=0.1)
    nothing = step_peak(lambda: None)
    assert nothing is not None
    assert nothing < 2 * MIB


@can_reset
def test_the_peak_is_true_even_if_the_allocator_keeps_free_memory() -> None:
    if os.confstr("CS_GNU_LIBC_VERSION") is None:
        pytest.skip("not glibc")
    code = (
        "from torchstone.machine.memory import step_peak\n"
        "def step():\n"
        "    block = bytearray(b'\\1') * (64 << 20)\n"
        "print(*[step_peak(step) for _ in range(3)])"
    )
    peaks = run(code, clean_env(**allocator_environment("keep"))).split()
    for peak in peaks:
        assert int(peak) == pytest.approx(64 * MIB, rel=0.05)


def test_peak_is_not_below_what_is_resident() -> None:
    now, peak = rss_bytes(), peak_bytes()
    if now is None or peak is None:
        pytest.skip("the system does not say")
    assert now > MIB
    assert peak > 0.9 * now


def test_touched_pages_are_counted_as_faults() -> None:
    pages = 512
    before = minor_faults()
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as block:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            block.madvise(mmap.MADV_NOHUGEPAGE)
        block[:: mmap.PAGESIZE] = b"\1" * pages
        assert minor_faults() - before >= pages
        middle = minor_faults()
        block[:: mmap.PAGESIZE] = b"\2" * pages
        assert minor_faults() - middle < pages // 10
    assert major_faults() >= 0


def test_a_fault_has_a_price() -> None:
    cost = fault_cost_ns()
    # Wide on purpose: a trap into the kernel and a page of zeroes, on any machine.
    assert cost is not None
    assert 10 < cost < 1_000_000
