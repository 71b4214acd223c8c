"""One process of `profiling_cost.py`: a workload, a profiler, and turns with and without it.

    python benchmarks/profiling_work.py python cProfile '{"pairs": 6, "block_s": 0.15}'

The last line that it prints is JSON: seconds and CPU seconds of every block, or why there are none.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE), str(HERE.parent / "examples")]

from profiling_tools import ENTRIES, CannotStart, Tool  # noqa: E402

from torchstone.machine.memory import peak_bytes, reset_peak, trim  # noqa: E402
from torchstone.profile.child import SETTLE  # noqa: E402
from torchstone.profile.context import take_turns  # noqa: E402
from torchstone.profile.probes.base import ProbeFailed  # noqa: E402

WARM_S = 0.5
SHORT = {"trace": 0.2}
"""Of the block's length, by way: a trace of every Python call is large."""


@dataclass(frozen=True)
class Work:
    """What is done again and again, and the function of it whose lines may be looked at."""

    step: Callable[[], object]
    chosen: Callable[..., object]


def two_layer() -> Work:
    """A training step of the two-layer network, as one writes it."""
    import torch
    from two_layer import make

    torch.set_num_threads(1)
    torch.manual_seed(0)
    work = make()
    assert work.loss is not None
    assert work.optimizer is not None
    loss_of, optimizer = work.loss, work.optimizer(work.call.parameters())  # type: ignore[attr-defined]

    def train() -> None:
        optimizer.zero_grad()
        output = work.call(*work.inputs)
        loss = loss_of(output)
        loss.backward()
        optimizer.step()

    return Work(train, train)


def python_loop() -> Work:
    """Small functions, dictionaries and numbers: nothing but the interpreter."""

    def mix(number: int) -> int:
        return (number * 31 + 7) % 1009

    def tally(count: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for number in range(count):
            key = mix(number)
            counts[key] = counts.get(key, 0) + 1
        return counts

    def count_once() -> int:
        counts = tally(2000)
        most = max(counts.values())
        return most * len(counts)

    return Work(count_once, count_once)


WORKS = {"two-layer": two_layer, "python": python_loop}


class Timed(float):
    """Seconds on the wall, with those of the processor beside."""

    cpu: float


@dataclass
class Seen:
    """What one process brought."""

    pairs: list[list[float]] = field(default_factory=list)
    """Seconds of neighbouring blocks: without, with."""
    controls: list[list[float]] = field(default_factory=list)
    cpu_pairs: list[list[float]] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    steps: int = 0
    written_bytes: int = 0
    finish_s: float = 0.0
    """To end it and write the file, after one block."""
    memory_bytes: int | None = None
    """That one block needed more at its peak, ending and writing included."""
    reason: str = ""
    for_good: bool = False
    """It would be the same in every process: not installed, or not allowed."""


def block(step: Callable[[], object], steps: int) -> Timed:
    """So many steps."""
    gc.collect()
    cpu, started = time.process_time(), time.perf_counter()
    for _ in range(steps):
        step()
    took = Timed(time.perf_counter() - started)
    took.cpu = time.process_time() - cpu
    return took


def steps_of(step: Callable[[], object], seconds: float) -> int:
    """As many steps as fill a block, when the machine is at its best."""
    end, best = time.perf_counter() + WARM_S, math.inf
    while time.perf_counter() < end:
        started = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - started)
    return max(1, math.ceil(seconds / best))


def measure(work: Work, tool: Tool, pairs: int, seconds: float) -> Seen:
    """Turns of blocks with and without the tool, beside turns of nothing but blocks without."""
    found = Seen(steps=steps_of(work.step, seconds))

    def plain() -> float:
        return block(work.step, found.steps)

    def profiled() -> float:
        step = tool.wrap(work.step)
        began = time.perf_counter()
        tool.start()
        found.start_s.append(time.perf_counter() - began)
        took = block(step, found.steps)
        began = time.perf_counter()
        tool.end(None)
        found.end_s.append(time.perf_counter() - began)
        block(work.step, math.ceil(found.steps * SETTLE))
        return took

    profiled()  # the first has to load what it needs
    found.start_s.clear()
    found.end_s.clear()
    turns = take_turns(plain, profiled, least=pairs, most=pairs)
    found.pairs = [list(map(float, pair)) for pair in turns.pairs]
    found.controls = [list(map(float, pair)) for pair in turns.controls]
    found.cpu_pairs = [[one.cpu for one in pair] for pair in turns.pairs]  # type: ignore[attr-defined]
    _footprint(work, tool, found)
    return found


def _footprint(work: Work, tool: Tool, found: Seen) -> None:
    """What is written and what memory it takes, apart from the turns."""
    with tempfile.TemporaryDirectory() as folder:
        keep = Path(folder) / "kept"
        peaks = []
        for profiled in (False, True):
            gc.collect()
            trim()
            known = reset_peak()
            if profiled:
                step = tool.wrap(work.step)
                tool.start()
                block(step, found.steps)
                began = time.perf_counter()
                tool.end(keep)
                found.finish_s = time.perf_counter() - began
            else:
                block(work.step, found.steps)
            peaks.append(peak_bytes() if known else None)
        found.written_bytes = keep.stat().st_size
        if peaks[0] is not None and peaks[1] is not None:
            found.memory_bytes = max(0, peaks[1] - peaks[0])


def main(words: list[str]) -> int:
    work, name = words[0], words[1]
    options: dict[str, Any] = json.loads(words[2])
    entry = next(one for one in ENTRIES if one.name == name)
    made = WORKS[work]()
    tool = entry.make(made.chosen)
    reason = tool.unavailable()
    found = Seen(reason=reason, for_good=bool(reason))
    if not reason:
        seconds = options["block_s"] * SHORT.get(entry.way, 1.0)
        try:
            found = measure(made, tool, options["pairs"], seconds)
        except (CannotStart, ProbeFailed) as error:
            found = Seen(reason=error.message, for_good=isinstance(error, CannotStart))
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
