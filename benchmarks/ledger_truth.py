"""The truth of a workload: each part alone and the very step that the ledger divides, in turns.

`python benchmarks/ledger_truth.py NAME` prints it as JSON, in nanoseconds.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from torchstone.measure.built import build  # noqa: E402
from torchstone.records import ArmSpec  # noqa: E402

TRUTH_ROUNDS = 60
WARM_UP = 5
_BLOCKING = frozenset(("sleep", "locks", "gil", "loading", "files"))
Took = tuple[int, int]
"""Wall time without the wait for a core, and CPU time of this thread; nanoseconds."""


def arm_of(name: str) -> ArmSpec:
    """How the ledger and the truth run it."""
    from ledger_targets import WORKLOADS, target

    known = WORKLOADS[name]
    return ArmSpec("as it is", target(name), known.variant, known.mode, threads=known.threads)


def truth(name: str, rounds: int = TRUTH_ROUNDS) -> dict[str, Any]:
    """Parts by line, and the unprofiled step, neither with the wait for a core."""
    step, module = _step(name)
    known = module.WORKLOADS[name]
    parts = [(lines, _alone(part, lines, module)) for lines, part in module.made(name)]
    for _ in range(WARM_UP):
        step()
        for _, part in parts:
            part()
    rows: list[list[Took]] = [[] for _ in parts]
    whole: list[Took] = []
    for _ in range(rounds):
        for row, (_, part) in zip(rows, parts, strict=True):
            row.append(_time(part))
        whole.append(_time(step))
    waits = any(_blocks(lines, known.threads) for lines, _ in parts)
    found: dict[str, float] = {}
    for (lines, _), row in zip(parts, rows, strict=True):
        found[lines] = found.get(lines, 0.0) + took(row, _blocks(lines, known.threads))
    if name == "gil":
        cpu = took(rows[0], False)
        found = {"interpreter": cpu, "gil": sum(found.values()) - cpu}
    if "interpreter+collector" in found:
        found = _collector_apart(found, parts[0], rounds)
    unprofiled = took(whole, waits)
    return {"parts": by_difference(found, unprofiled, known.more, known.within), "wall": unprofiled}


def _step(name: str) -> tuple[Callable[[], Any], Any]:
    """The step as its variant runs it, and the module that it came from: its parts share its
    threads and locks."""
    arm = arm_of(name)
    sys.modules.pop("ledger_targets", None)  # so that the one built is the one that is found
    built = build(arm, lambda _: None)
    assert built.prepared is not None
    call, ring = built.prepared.step, cycle(built.ring(arm.seed, 16))

    def step() -> Any:
        inputs = next(ring)
        return call(*inputs.args, **inputs.kwargs)

    return step, sys.modules["ledger_targets"]


def _alone(part: Callable[[], Any], lines: str, module: Any) -> Callable[[], Any]:
    """A compiled part's time alone is that of its compiled code, too."""
    import torch

    compiled: Callable[[], Any] = torch.compile(part) if lines == module.COMPILED else part
    return compiled


def by_difference(
    found: dict[str, float], whole: float, more: str, within: str
) -> dict[str, float]:
    """Lines that no part has alone: what the step takes more than its parts, or a part that holds
    the others more than they."""
    found = dict(found)
    if within:
        found[within] -= sum(ns for lines, ns in found.items() if lines != within)
    if more:
        found[more] = whole - sum(found.values())
    return {lines: max(0.0, ns) for lines, ns in found.items()}


def took(rows: list[Took], blocks: bool) -> float:
    """Time on the core in the lower quartile, because a neighbour only ever adds; and the time
    asleep on average, where the part is one that sleeps."""
    cpu = statistics.quantiles([cpu for _, cpu in rows], n=4)[0]
    return cpu + (statistics.fmean(max(0, wall - cpu) for wall, cpu in rows) if blocks else 0.0)


def _blocks(lines: str, threads: int) -> bool:
    words = set(lines.split("+"))
    return bool(words & _BLOCKING) or (threads > 1 and "pool" in words)


def _collector_apart(
    found: dict[str, float], part: tuple[str, Callable[[], Any]], rounds: int
) -> dict[str, float]:
    """What the collector takes, by its own word. Without it the same garbage takes longer to make:
    memory that nobody frees is always fresh."""
    lines, make = part
    started, collected = [0], [0]

    def watch(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            started[0] = time.thread_time_ns()
        else:
            collected[0] += time.thread_time_ns() - started[0]

    gc.callbacks.append(watch)
    total = statistics.fmean(_time(make)[1] for _ in range(2 * rounds))
    gc.callbacks.remove(watch)
    collector = collected[0] / (2 * rounds)
    rest = {name: ns for name, ns in found.items() if name != lines}
    return {**rest, "interpreter": total - collector, "collector": collector}


def _time(part: Callable[[], Any]) -> Took:
    waited = _waited()
    wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
    part()
    wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
    return wall - (_waited() - waited), cpu


def _waited() -> int:
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])


if __name__ == "__main__":
    print(json.dumps(truth(sys.argv[1])))
