"""Real models by the usual ways, in one process, for comparison.

`usual`: base and new by turns, 30 times each, as suite runners do it; the ratio of the medians with
a bootstrap interval. `usual-filled`: the same for as long as one of our trials takes.
`torch-one`: two `torch.utils.benchmark` timers, one after the other, for as long as one of our
trials takes; Mann-Whitney at 0.05 on the times of the blocks, because the tool has no test.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from aa_journal import Row
from aa_models import environment, ready
from aa_peers import LEAST_RUN_S, SIGNIFICANCE, as_verdict, mann_whitney, run_tool

REPEATS, WARM_UPS = 30, 5
"""As `suite_usual` has them."""
RESAMPLES = 2000
LEVEL = 0.95
WAYS = ("usual", "usual-filled", "torch-one")
LEAST_SHARE = 0.1
"""Of its wall time that a way spends on measuring at least, however long the start took."""

Step = Callable[[], Any]


def run_way(way: str, model: str, effect: int, threads: int, wall: float, seed: int) -> Row:
    """One trial of one way, in a process of its own."""
    started = time.monotonic()
    command = [sys.executable, __file__, way, repr(wall), repr(started)]
    env = {**environment(model, effect, threads), "OMP_NUM_THREADS": str(threads)}
    found = json.loads(run_tool(command, env).splitlines()[-1])
    base, new = found["times"]
    evaluated = torch_verdict(base, new) if way == "torch-one" else bootstrap(base, new, seed)
    return {
        **evaluated,
        "wall_s": time.monotonic() - started,
        "wall_target_s": None if way == "usual" else wall,
        "calls": [len(base), len(new)],
    }


def bootstrap(base: Sequence[float], new: Sequence[float], seed: int) -> Row:
    """The ratio of medians; different where the percentile interval leaves out 1."""
    chance = np.random.default_rng(seed)
    drawn = [
        np.median(chance.choice(np.asarray(times), (RESAMPLES, len(times))), axis=1)
        for times in (base, new)
    ]
    tail = 0.5 * (1.0 - LEVEL)
    low, high = (float(x) for x in np.quantile(drawn[1] / drawn[0], (tail, 1.0 - tail)))
    ratio = median(new) / median(base)
    return {
        "verdict": as_verdict(not low <= 1.0 <= high, ratio),
        "ratio": ratio,
        "interval": [low, high],
    }


def torch_verdict(base: Sequence[float], new: Sequence[float]) -> Row:
    """By Mann and Whitney's test."""
    ratio, p = median(new) / median(base), mann_whitney(base, new)
    return {"verdict": as_verdict(p < SIGNIFICANCE, ratio), "ratio": ratio, "p": p}


def alternating(steps: Sequence[Step], repeats: int | None, until: float) -> list[list[float]]:
    """The times of both steps by turns, so many of each, or until that moment."""
    for step in steps:
        for _ in range(WARM_UPS):
            step()
    times: list[list[float]] = [[] for _ in steps]
    least = REPEATS if repeats is None else repeats
    while len(times[0]) < least or (repeats is None and time.monotonic() < until):
        for step, kept in zip(steps, times, strict=True):
            started = time.perf_counter()
            step()
            kept.append(time.perf_counter() - started)
    return times


def blocks(steps: Sequence[Step], until: float, threads: int) -> list[list[float]]:
    """The blocks of `torch.utils.benchmark`, one step after the other."""
    from torch.utils.benchmark import Timer

    each = max(LEAST_RUN_S, (until - time.monotonic()) / len(steps))
    times = []
    for step in steps:
        timer = Timer("step()", globals={"step": step}, num_threads=threads)
        times.append(list(timer.blocked_autorange(min_run_time=each).times))
    return times


def child(way: str, wall: float, started: float) -> Row:
    """In the fresh process: both steps, then the way's own loop for what is left of its time."""
    import torch

    steps = ready()
    now = time.monotonic()
    until = max(started + wall, now + LEAST_SHARE * wall)
    if way == "torch-one":
        return {"times": blocks(steps, until, torch.get_num_threads())}
    return {"times": alternating(steps, REPEATS if way == "usual" else None, until)}


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))))
