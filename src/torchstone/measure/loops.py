"""The timed loops. Nothing is allocated inside them that need not be.

Steps: each sample is one call (or a block of calls for very short steps) with inputs from a ring
that was filled beforehand. Statements: the block that `timeit` would time.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from torchstone.workloads import Inputs

# Clocks, bound before any user code is imported, and the check that they are still themselves.

wall_clock = time.perf_counter_ns
cpu_clock = time.process_time_ns
thread_clock = time.thread_time_ns

_WATCHED = (
    *("perf_counter", "perf_counter_ns", "process_time", "process_time_ns"),
    *("time", "time_ns", "monotonic", "monotonic_ns", "sleep"),
)
_ORIGINALS = {name: getattr(time, name) for name in _WATCHED}


def patched_timers() -> tuple[str, ...]:
    """Functions of `time` that user code has replaced. Ours were bound before, so still true."""
    return tuple(n for n, original in _ORIGINALS.items() if getattr(time, n, None) is not original)


def python_threads() -> int:
    """Python threads alive now."""
    return threading.active_count()


Step = Callable[..., Any]
Probe = Callable[[], int]
Mark = Callable[[], None]
"""Called at the begin and the end of what is timed, for a clock that user code cannot reach."""
TimeBlock = Callable[[], int]


class Samples:
    """Buffers for one turn, made before the clock starts."""

    def __init__(self, count: int, probe_every: int) -> None:
        self.wall = array("q", bytes(8 * count))
        self.cpu = array("q", bytes(8 * count))
        self.probe = array("q", bytes(8 * (1 + count // probe_every)))
        self.probe_every = probe_every
        self.marked: int | None = None
        """The sample that the kernel times as well."""


def step_block(
    step: Step, ring: Sequence[Inputs], loops: int, synchronize: Callable[[], None] | None = None
) -> TimeBlock:
    """A function that times the next `loops` calls, walking round the ring."""
    plain = not any(inputs.kwargs for inputs in ring)
    if synchronize is not None:
        return _synchronised_block(step, ring, loops, synchronize)
    if loops == 1:
        return _single(step, ring, plain)
    blocks = _blocks(ring, loops)
    if plain:
        arguments_of = itertools.cycle([[inputs.args for inputs in calls] for calls in blocks])

        def time_plain() -> int:
            arguments = next(arguments_of)
            started = wall_clock()
            for args in arguments:
                step(*args)
            return wall_clock() - started

        return time_plain
    pairs_of = itertools.cycle([[(i.args, dict(i.kwargs)) for i in calls] for calls in blocks])

    def time_keywords() -> int:
        pairs = next(pairs_of)
        started = wall_clock()
        for args, kwargs in pairs:
            step(*args, **kwargs)
        return wall_clock() - started

    return time_keywords


def _blocks(ring: Sequence[Inputs], loops: int) -> list[list[Inputs]]:
    """The calls of each sample, made beforehand; together they go round the whole ring."""
    turn_of = itertools.cycle(ring)
    return [list(itertools.islice(turn_of, loops)) for _ in range(-(-len(ring) // loops))]


def _single(step: Step, ring: Sequence[Inputs], plain: bool) -> TimeBlock:
    turn_of = itertools.cycle([(inputs.args, dict(inputs.kwargs)) for inputs in ring])

    def time_plain() -> int:
        args, _ = next(turn_of)
        started = wall_clock()
        step(*args)
        return wall_clock() - started

    def time_keywords() -> int:
        args, kwargs = next(turn_of)
        started = wall_clock()
        step(*args, **kwargs)
        return wall_clock() - started

    return time_plain if plain else time_keywords


def _synchronised_block(
    step: Step, ring: Sequence[Inputs], loops: int, synchronize: Callable[[], None]
) -> TimeBlock:
    turn_of = itertools.cycle([(inputs.args, dict(inputs.kwargs)) for inputs in ring])

    def time_synchronised() -> int:
        calls = [next(turn_of) for _ in range(loops)]
        synchronize()  # nothing of the last sample may be left in the queue
        started = wall_clock()
        for args, kwargs in calls:
            step(*args, **kwargs)
        synchronize()
        return wall_clock() - started

    return time_synchronised


def timed_call(
    step: Step, inputs: Inputs, synchronize: Callable[[], None] | None = None
) -> tuple[int, Any]:
    """One call: its time, and its output, which nobody has looked at yet."""
    args, kwargs = inputs.args, dict(inputs.kwargs)
    if synchronize is not None:
        synchronize()
    started = wall_clock()
    output = step(*args, **kwargs)
    if synchronize is not None:
        synchronize()
    return wall_clock() - started, output


def statement_block(inner: Callable[[Any, Any], int], loops: int, clock: str) -> TimeBlock:
    """A function that runs setup untimed, then times `loops` executions, as `timeit` does."""
    repeat = itertools.repeat
    timer = cpu_clock if clock == "cpu" else wall_clock

    def time_statement() -> int:
        return inner(repeat(None, loops), timer)

    return time_statement


def fill(samples: Samples, time_block: TimeBlock, probe: Probe, mark: Mark) -> None:
    """Fill the buffers: a probe, then samples with a probe after every `probe_every` of them."""
    wall, cpu, probes = samples.wall, samples.cpu, samples.probe
    every, marked = samples.probe_every, samples.marked
    probes[0] = probe()
    for i in range(len(wall)):
        if i == marked:
            mark()
        before = cpu_clock()
        wall[i] = time_block()
        cpu[i] = cpu_clock() - before
        if i == marked:
            mark()
        if (i + 1) % every == 0:
            probes[(i + 1) // every] = probe()


def fill_without_gc(samples: Samples, time_block: TimeBlock, probe: Probe, mark: Mark) -> None:
    """As `fill`, with the cyclic collector off, as `timeit` has it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        fill(samples, time_block, probe, mark)
    finally:
        if enabled:
            gc.enable()
