"""Steps with nobody looking: wall time, and where the kernel says the thread was."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from torchstone.explain.passes.blocked import (
    CollectionClock,
    WaitClock,
    other_python_threads,
    run_by_thread,
)
from torchstone.explain.passes.report import Library, Plain
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
