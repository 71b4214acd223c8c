"""Steps with nobody looking: wall time, and where the kernel says the thread was.

The thread looked at from outside, by a process that needs no lock of ours.

`/proc/PID/task/TID/syscall` says whether a thread runs, and else in which system call it sleeps,
on which address. The interpreter's lock has an address: two threads that fight for it show it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import IO, Any

from torchstone.explain.passes.blocked import (
    CollectionClock,
    WaitClock,
    other_python_threads,
    run_by_thread,
)
from torchstone.explain.passes.report import Library, Plain, Watched
from torchstone.measure.arm import Phase
from torchstone.measure.loops import cpu_clock, thread_clock, wall_clock

KEPT = 0.25
"""Of the samples at least: those that waited least for a core. With no neighbour all are kept."""
MOST_TIMES = 50
"""That something is done between the samples of a stretch."""
SLACK_NS = 20_000
"""Waits shorter than this count as none: they are the scheduler's own."""


@dataclass(frozen=True)
class Sample:
    """One sample of one or more steps."""

    wall: int
    cpu: int
    wait: int
    collecting: int


def take_samples(
    block: Callable[[], object],
    count: int,
    wait: WaitClock,
    collecting: CollectionClock,
    between: Callable[[], object] | None = None,
) -> list[Sample]:
    """Run the block so many times; the system is asked outside the timed stretch, and what is to
    be done `between` samples is done there now and then."""
    found = []
    stride = max(1, -(-count // MOST_TIMES))
    for number in range(count):
        if between is not None and number % stride == 0:
            between()
        waited, collected = wait(), collecting.total
        cpu = thread_clock()
        wall = wall_clock()
        block()
        wall = wall_clock() - wall
        cpu = thread_clock() - cpu
        found.append(Sample(wall, cpu, wait() - waited, collecting.total - collected))
    if between is not None:
        between()
    return found


def quiet(samples: Sequence[Sample]) -> list[int]:
    """The samples to believe, by number: the ones that waited least for a core."""
    limit = sorted(sample.wait for sample in samples)[max(0, round(KEPT * len(samples)) - 1)]
    return [i for i, sample in enumerate(samples) if sample.wait <= max(limit, SLACK_NS)]


def summary(
    samples: Sequence[Sample], loops: int, everything: Sequence[Sample]
) -> dict[str, float]:
    """One step of the samples to believe. Sleeping and collecting come and go, and do not depend
    on the neighbours, so they are averaged over everything; what it computes is the same each
    time, so the middle half decides."""
    steps = loops * len(samples)
    collecting = sum(s.collecting for s in everything) / (loops * len(everything))
    wait = sum(s.wait for s in samples) / steps
    off = sum(max(0, s.wall - s.cpu - s.wait) for s in everything) / (loops * len(everything))
    return {
        "wall": sum(s.wall for s in samples) / steps,
        "cpu": _middle([(s.cpu - s.collecting) / loops for s in samples]) + collecting,
        "off": off,
        "wait": wait,
        "collecting": collecting,
    }


def _middle(values: Sequence[float]) -> float:
    """The mean of the middle half."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    kept = ordered[quarter : len(ordered) - quarter]
    return sum(kept) / len(kept)


def plain_round(block: Callable[[], object], loops: int, count: int, wait: WaitClock) -> Plain:
    """A stretch of `count` samples of `loops` steps each."""
    before, threads = run_by_thread(), other_python_threads()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    process, started = cpu_clock(), wall_clock()
    with CollectionClock().watching() as collecting:
        samples = take_samples(block, count, wait, collecting)
    process, stretch = cpu_clock() - process, wall_clock() - started
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    after = run_by_thread()
    threads |= other_python_threads()
    others = sum(max(0, after.get(t, 0) - before.get(t, 0)) for t in threads)
    kept = [samples[i] for i in quiet(samples)]
    everything = loops * len(samples)
    usual = summary(kept, loops, samples)
    return Plain(
        steps=loops * len(kept),
        **usual,
        process_cpu=process / everything,
        faults=faults / everything,
        python_threads=others / everything,
        busy=process / max(1, stretch),
    )


# oneDNN and MKL asked what they did: which kernels, on which instructions, how long.
#
# Both can be told to write a line for each call to the standard output. That goes to a file for one
# block of steps, in a pass of its own.


MOST_BYTES = 8 << 20
_MKL = re.compile(r"^MKL_VERBOSE (\w+)\(.*\) ([\d.]+)(ns|us|ms|s)\b")
_SCALES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def library_lines(block: Callable[[], object], loops: int) -> tuple[Library, ...]:
    """Of one block of `loops` steps; empty where the libraries do not speak."""
    try:
        with tempfile.TemporaryFile() as file, _stdout_to(file), _verbose():
            block()
            file.seek(0)
            text = file.read(MOST_BYTES).decode(errors="replace")
    except (OSError, RuntimeError, AttributeError, AssertionError):
        return ()
    return parse(text, loops)


@contextlib.contextmanager
def _verbose() -> Iterator[None]:
    import torch

    libraries: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.mkl)
    with contextlib.ExitStack() as stack:
        for library in libraries:
            if library.is_available():
                stack.enter_context(library.verbose(library.VERBOSE_ON))
        yield


@contextlib.contextmanager
def _stdout_to(file: IO[bytes]) -> Iterator[None]:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.fflush(None)
    kept = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def parse(text: str, loops: int) -> tuple[Library, ...]:
    """Lines of both libraries, summed by kind and implementation; the slowest first."""
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for line in text.splitlines():
        found = _onednn(line) or _mkl(line)
        if found is not None:
            library, kind, implementation, ns = found
            entry = sums[library, kind, implementation]
            entry[0] += 1
            entry[1] += ns
    made = [
        Library(library, kind, implementation, calls / loops, ns / loops)
        for (library, kind, implementation), (calls, ns) in sums.items()
    ]
    return tuple(sorted(made, key=lambda one: -one.ns))


def _onednn(line: str) -> tuple[str, str, str, float] | None:
    """`onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx2,…,0.12` (milliseconds)."""
    words = line.split(",")
    if not words[0].startswith(("onednn_verbose", "dnnl_verbose")) or "exec" not in words:
        return None
    place = words.index("exec")
    try:
        return "oneDNN", words[place + 2], words[place + 3], float(words[-1]) * 1e6
    except (IndexError, ValueError):
        return None


def _mkl(line: str) -> tuple[str, str, str, float] | None:
    """`MKL_VERBOSE SGEMM(N,N,…) 12.3us CNR:OFF …`."""
    found = _MKL.match(line)
    if found is None:
        return None
    name, value, unit = found.groups()
    kind = "gemm" if "GEMM" in name.upper() else name.lower()
    return "MKL", kind, name.lower(), float(value) * _SCALES[unit]


PAUSE_S = 0.0005
LOCK_SECONDS = 0.15
NEAR = 256
"""Bytes: the lock's condition variables and mutexes lie side by side."""
LEAST_SEEN = 3
_PR_SET_PTRACER = 0x59616D61
_NUMBERS = {
    "x86_64": {"futex": 202, "sleep": (35, 230), "read": (0, 17, 19, 45, 47, 7, 23, 232, 281)},
    "aarch64": {"futex": 98, "sleep": (101, 115), "read": (63, 67, 65, 207, 212, 73, 72, 22)},
}
"""From the kernel's tables of system calls."""
_POOLS = ("libgomp", "libiomp", "libomp")

WATCHER = """
import json, sys, time
pid, pause = int(sys.argv[1]), float(sys.argv[2])
files = []
for tid in sys.argv[3:]:
    try:
        files.append(open(f"/proc/{pid}/task/{tid}/syscall", "rb", buffering=0))
    except FileNotFoundError:  # a thread that has ended
        continue
print("ready", flush=True)
end = time.monotonic() + float(sys.stdin.readline())
found = [[0, {}] for _ in files]
while time.monotonic() < end:
    time.sleep(pause)
    for one, file in zip(found, files):
        try:
            file.seek(0)
            text = file.read(200).decode()
        except OSError:
            continue
        words = text.split()
        key = " ".join((words[0], words[1], words[-1])) if len(words) > 8 else "running"
        one[1][key] = one[1].get(key, 0) + 1
        one[0] += 1
print(json.dumps(found))
"""


def watched_pass(block: Callable[[], object], seconds: float, phase: Phase) -> Watched:
    """Run the block for so long while another process looks at this thread, and at the other
    Python threads of the process as far as the interpreter's lock is concerned."""
    phase("passes")
    numbers: Any = _NUMBERS.get(platform.machine())
    if numbers is None or not os.path.exists("/proc/self/task"):
        return Watched(reason="the system does not show what a thread waits for")
    try:
        lock = _lock_addresses(numbers["futex"])
        others = sorted(other_python_threads())
        watcher = _Watcher([threading.get_native_id(), *others])
    except (OSError, ValueError) as error:
        return Watched(reason=f"threads cannot be looked at here: {error}")
    watcher.go(seconds)
    end = wall_clock() + int(seconds * 1e9)
    while wall_clock() < end:
        block()
    (looks, seen), *rest = watcher.result()
    sleeps = Sleeps(numbers, lock, _pool_ranges())
    found = [classify(times, keys, sleeps) for times, keys in rest]
    return replace(
        classify(looks, seen, sleeps),
        others=len(others),
        others_looks=sum(one.looks for one in found),
        others_gil=sum(one.asleep.get("gil", 0) for one in found),
    )


@dataclass(frozen=True)
class Sleeps:
    """How to tell what a thread sleeps in."""

    numbers: Any
    """Of system calls."""
    lock: Set[int]
    """Addresses of the interpreter's lock."""
    pools: Sequence[tuple[int, int]]
    """Address ranges of OpenMP's code."""

    def kind(self, number: int, first: int, place: int) -> str:
        """By the system call, its first argument and where it was called."""
        if number in self.numbers["sleep"]:
            return "sleep"
        if number in self.numbers["read"]:
            return "network"
        if number != self.numbers["futex"]:
            return "other"
        if any(abs(first - address) <= NEAR for address in self.lock):
            return "gil"
        return "pool" if any(start <= place < end for start, end in self.pools) else "locks"


def classify(looks: int, seen: Mapping[str, int], sleeps: Sleeps) -> Watched:
    """Looks counted by what the thread slept in; a thread that runs shows no call."""
    asleep: Counter[str] = Counter()
    for key, times in seen.items():
        words = key.split()
        if len(words) == 3:
            number, first, place = int(words[0]), int(words[1], 16), int(words[2], 16)
            asleep[sleeps.kind(number, first, place)] += times
    return Watched(looks, dict(asleep))


class _Watcher:
    """The process that looks."""

    def __init__(self, threads: list[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCHER, str(os.getpid()), str(PAUSE_S)]
            + [str(thread) for thread in threads],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        _allow(self._process.pid)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self._process.kill()
            self._process.communicate()
            raise OSError("the system does not allow it")

    def go(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def result(self) -> list[tuple[int, dict[str, int]]]:
        """Looks, and what they saw, thread by thread."""
        text, _ = self._process.communicate(timeout=60)
        return [
            (int(looks), {str(key): int(value) for key, value in seen.items()})
            for looks, seen in json.loads(text or "[[0, {}]]")
        ]


def _allow(pid: int) -> None:
    """Some systems let only a parent look; a process may allow another one by name."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, pid, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _lock_addresses(futex: int) -> set[int]:
    """Where threads sleep that wait for the interpreter's lock; empty where there is none."""
    if getattr(sys, "_is_gil_enabled", lambda: True)() is False:
        return set()
    stop = False

    def spin() -> None:
        while not stop:
            pass

    threads = [threading.Thread(target=spin, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        watcher = _Watcher([thread.native_id for thread in threads if thread.native_id])
        watcher.go(LOCK_SECONDS)
        time.sleep(LOCK_SECONDS)
        both = watcher.result()
    finally:
        stop = True
        for thread in threads:
            thread.join()
    found: Counter[int] = Counter()
    for key, times in (item for _, seen in both for item in seen.items()):
        words = key.split()
        if len(words) == 3 and int(words[0]) == futex:
            found[int(words[1], 16)] += times
    return {address for address, times in found.items() if times >= LEAST_SEEN}


def _pool_ranges() -> list[tuple[int, int]]:
    """Addresses of the code of OpenMP runtimes."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if any(name in line for name in _POOLS) and " r-x" in line:
                start, _, end = line.split()[0].partition("-")
                found.append((int(start, 16), int(end, 16)))
    return found
