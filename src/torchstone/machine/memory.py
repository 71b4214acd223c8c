"""This process's memory: resident, true peak, page faults and what one costs.

The peak is the kernel's high-water mark, which can be reset on Linux; elsewhere there is none.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import resource
import sys
import time
from collections.abc import Callable

from torchstone.machine.files import read_field

_KIB = 1024
_FAULT_BYTES = 4 << 20
_FAULT_ROUNDS = 12  # in a guest the first rounds also pay for memory the host had not yet given
_RESET_PEAK = b"5"  # what /proc/self/clear_refs takes to set VmHWM back to VmRSS


def rss_bytes() -> int | None:
    """Resident memory now."""
    kib = read_field("/proc/self/status", "VmRSS")
    return None if kib is None else kib * _KIB


def peak_bytes() -> int | None:
    """The high-water mark since the start or the last `reset_peak`."""
    kib = read_field("/proc/self/status", "VmHWM")
    return None if kib is None else kib * _KIB


def reset_peak() -> bool:
    """Set the high-water mark back to what is resident now; False where that is not possible."""
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(_RESET_PEAK)
    except OSError:
        return False
    return True


def trim() -> bool:
    """Have the C library give back free memory; False where it has no such call.

    Another allocator in LD_PRELOAD keeps its own free memory whatever this does.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (OSError, AttributeError):
        return False
    return True


def minor_faults() -> int:
    """Page faults served without reading from a disk, all threads, since the start."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def major_faults() -> int:
    """Page faults that had to read from a disk, all threads, since the start."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def fault_cost_ns() -> float | None:
    """What one minor fault on fresh anonymous memory costs on this machine (the floor of a few)."""
    costs = [cost for cost in (_one_fault_cost() for _ in range(_FAULT_ROUNDS)) if cost]
    return min(costs) if costs else None


def _one_fault_cost() -> float | None:
    """First touch of every page against a second touch, by the number of faults there were."""
    try:
        block = mmap.mmap(-1, _FAULT_BYTES)
    except OSError:
        return None
    with block:
        no_huge = getattr(mmap, "MADV_NOHUGEPAGE", None)
        if no_huge is not None:
            with contextlib.suppress(OSError):
                block.madvise(no_huge)  # one fault a page, as for a block taken bit by bit
        ones = b"\1" * (_FAULT_BYTES // mmap.PAGESIZE)
        before = minor_faults()
        start = time.perf_counter_ns()
        block[:: mmap.PAGESIZE] = ones
        middle = time.perf_counter_ns()
        faults = minor_faults() - before
        again = time.perf_counter_ns()
        block[:: mmap.PAGESIZE] = ones
        end = time.perf_counter_ns()
    if faults < len(ones) // 2:
        return None
    return max(0.0, ((middle - start) - (end - again)) / faults)


def step_peak(step: Callable[[], object]) -> int | None:
    """How much memory a step needs at its fullest moment above what was resident before it.

    Free memory is handed back first, so that the step cannot take it unseen. None where the
    system keeps no peak that can be reset.
    """
    gc.collect()
    trim()
    if not reset_peak():
        step()
        return None
    before = rss_bytes()
    step()
    peak = peak_bytes()
    return None if before is None or peak is None else max(0, peak - before)
