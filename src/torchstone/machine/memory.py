"""This process's memory: resident, true peak, page faults and what one costs.

The peak is the kernel's high-water mark, which can be reset on Linux; elsewhere there is none.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import gc
import glob
import mmap
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from torchstone.machine.processes import field_in, read_field
from torchstone.machine.software import loaded_allocator
from torchstone.records import ALLOCATORS, UsageError

_KIB = 1024
_FAULT_BYTES = 4 << 20
_FAULT_ROUNDS = 12  # in a guest the first rounds also pay for memory the host had not yet given
_RESET_PEAK = b"5"  # what /proc/self/clear_refs takes to set VmHWM back to VmRSS


def rss_bytes() -> int | None:
    """Resident memory now."""
    return _status("VmRSS")


def peak_bytes() -> int | None:
    """The high-water mark since the start or the last `reset_peak`."""
    return _status("VmHWM")


def resident_and_peak(status: str) -> tuple[int | None, int | None]:
    """Both, of the text of /proc/self/status."""
    kib = field_in(status, "VmRSS"), field_in(status, "VmHWM")
    return tuple(None if one is None else one * _KIB for one in kib)  # type: ignore[return-value]


def _status(name: str) -> int | None:
    kib = read_field("/proc/self/status", name)
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


# The variables that choose how a worker's C library handles memory.
#
# By default glibc hands large blocks back to the kernel on each free and faults them in again on
# the next call. How much of that a process does is settled once, by where its first blocks happen
# to lie: processes of one and the same program differ by up to 9 % for their whole life. `keep`
# takes that away, so it is what measuring uses unless another one is asked for.


KEEP = {
    # No block gets a mapping of its own. A high MALLOC_MMAP_THRESHOLD_ would say the same, but
    # some versions of glibc silently refuse values above 32 MiB (half of their largest heap).
    "MALLOC_MMAP_MAX_": "0",
    # Never give the top of the heap back.
    "MALLOC_TRIM_THRESHOLD_": "-1",
    # Grow in large strides. Also the margin that the heaps of other arenas keep.
    "MALLOC_TOP_PAD_": str(64 << 20),
    # One arena, because the heaps of further arenas hold at most 64 MiB, and a larger block in
    # a thread is mapped and unmapped whatever the other settings say.
    "MALLOC_ARENA_MAX": "1",
}
"""With these a process that takes, touches and frees the same blocks again has no page faults.

Checked on glibc 2.36 with blocks of 1 to 200 MiB, in the main thread and in another.
"""

_LIBRARIES = {
    "jemalloc": (("libjemalloc.so",), "libjemalloc2"),
    "tcmalloc": (("libtcmalloc_minimal.so", "libtcmalloc.so"), "libtcmalloc-minimal4"),
}
_FOLDERS = ("/usr/lib/*-linux-*", "/usr/lib64", "/usr/lib", "/usr/local/lib*", "/lib64", "/lib")


def usual_allocator() -> str:
    """What a measurement uses where nobody chose: `keep` where it works, else the system's own."""
    return "default" if why_not_kept() else "keep"


def why_not_kept() -> str:
    """Why the system's own is the usual one here; empty where `keep` is."""
    loaded = loaded_allocator()
    if loaded not in ("", "system"):  # it knows nothing of glibc's settings
        return f"{loaded} is loaded in its place"
    return "" if _is_glibc() else "the C library is not glibc, whose settings would keep memory"


def allocator_environment(name: str) -> dict[str, str]:
    """What to add to a worker's environment so that it uses this allocator."""
    if name not in ALLOCATORS:
        raise UsageError(
            f"There is no allocator {name!r}.", f"Choose one of {', '.join(ALLOCATORS)}."
        )
    if name == "default":
        return {}
    if name == "keep":
        if not _is_glibc():
            raise UsageError(
                "The allocator setting 'keep' works with glibc only, and this system has another"
                " C library.",
                "Use --allocator default.",
            )
        return dict(KEEP)
    library = _find(name)
    # What the user preloads already stays, behind the allocator.
    present = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library}:{present}" if present else library}


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def _find(name: str) -> str:
    stems, package = _LIBRARIES[name]
    if sys.platform.startswith("linux"):
        for stem in stems:
            name_only = stem[len("lib") : -len(".so")]
            path = _in_folders(stem) or _in_loader_cache(stem)
            path = path or ctypes.util.find_library(name_only)
            if path:
                return path
    raise UsageError(
        f"The allocator {name} is not installed on this machine.",
        f"Install it (Debian, Ubuntu: apt install {package}) or use --allocator default.",
    )


def _in_folders(stem: str) -> str | None:
    """The library in the user's own folders first, then where systems keep theirs."""
    own = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    own += [os.path.join(os.environ.get("CONDA_PREFIX") or sys.prefix, "lib")]
    folders = [glob.escape(folder) for folder in own if folder] + list(_FOLDERS)
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, stem + "*"))):
            if _fits(path):
                return os.path.abspath(path)
    return None


def _fits(path: str) -> bool:
    """Whether it is a library of this process's word size and processor.

    The loader only warns about one that is not, and goes on with the wrong allocator.
    """
    try:
        with open(path, "rb") as file, open("/proc/self/exe", "rb") as me:
            theirs, ours = file.read(20), me.read(20)
    except OSError:
        return False
    return theirs[:6] == ours[:6] and theirs[18:20] == ours[18:20]


def _in_loader_cache(stem: str) -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), "/sbin", "/usr/sbin"))
    try:
        env = {"PATH": path, "LC_ALL": "C"}
        done = subprocess.run(
            ["ldconfig", "-p"], capture_output=True, text=True, timeout=10, check=False, env=env
        )
    except (OSError, subprocess.SubprocessError):
        return None
    for found in re.findall(rf"^\s*{re.escape(stem)}[.\d]* .*=> (\S+)$", done.stdout, re.M):
        if _fits(found):
            return str(found)
    return None
