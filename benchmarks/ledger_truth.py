"""The step with nobody looking, in a process of its own; and its parts alone, in turns with it,
where they cannot have a clock in the step.

`python benchmarks/ledger_truth.py NAME` prints it as JSON, in nanoseconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from ledger_clock import VARIABLE, Collecting, Took, lines_of, waiting  # noqa: E402

from torchstone.explain.passes.run import SAMPLE_NS  # noqa: E402
from torchstone.measure.arm import build  # noqa: E402
from torchstone.records import ArmSpec  # noqa: E402

LEAST_ROUNDS = 60
LEAST_S = 2.0
"""Shorter, and it is a moment of a machine whose speed changes from second to second."""
STRETCH_S = 0.05
"""Of one thing after another. The ledger's steps follow each other; one that follows something else
finds what that left in the caches."""
WHOLE = "whole"


def arm_of(name: str) -> ArmSpec:
    """How the ledger and the truth run it."""
    from ledger_targets import WORKLOADS, target

    known = WORKLOADS[name]
    return ArmSpec("as it is", target(name), known.variant, known.mode, threads=known.threads)


def truth(name: str, rounds: int = LEAST_ROUNDS, seconds: float = LEAST_S) -> dict[str, Any]:
    """The unprofiled step, and the parts by line where they are timed alone; without the wait for
    a core."""
    os.environ.pop(VARIABLE, None)
    step, module = _step(name)
    calls: dict[str, Callable[[], Any]] = {WHOLE: step}
    if module.WORKLOADS[name].alone:
        calls.update(module.made(name))
    rows: dict[str, list[Took]] = {one: [] for one in calls}
    collecting, waited = Collecting(), waiting()
    loops = {one: loops_of(call) for one, call in calls.items()}  # they may be compiled now
    began = time.monotonic()
    while len(rows[WHOLE]) < rounds or time.monotonic() - began < seconds:
        for one, call in calls.items():
            end = time.monotonic() + STRETCH_S
            while True:
                rows[one].append(_time(call, loops[one], collecting, waited))
                if time.monotonic() >= end:
                    break
    found = {one: lines_of(one, row)[one] for one, row in rows.items()}
    names = [lines for lines, _ in module.made(name)]
    return {"wall": found.pop(WHOLE), "alone": found, "lines": names}


def parts_of(
    found: Mapping[str, float], whole: float, more: str = "", within: str = ""
) -> dict[str, float]:
    """With the lines that no part has by itself: what the step takes more than its parts, and what
    a part takes more than another that it holds."""
    made = dict(found)
    if within:
        others = [lines for lines in found if lines != within]
        for lines in others:
            made[lines] -= found[within]
        made[within] += len(others) * found[within]
    if more:
        made[more] = whole - sum(made.values())
    return {lines: max(0.0, ns) for lines, ns in made.items()}


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


def loops_of(call: Callable[[], Any]) -> int:
    """How many calls a sample has, as in the ledger's passes: between two samples the system is
    asked, and what follows finds colder caches."""
    took = []
    for _ in range(5):
        started = time.perf_counter_ns()
        call()
        took.append(max(1, time.perf_counter_ns() - started))
    return max(1, -(-SAMPLE_NS // min(took)))


def _time(
    part: Callable[[], Any], loops: int, collecting: Collecting, waited: Callable[[], int]
) -> Took:
    """One call, of so many in a row."""
    wait, collected = waited(), collecting.total
    wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(loops):
        part()
    wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
    off = max(0, wall - cpu - (waited() - wait))
    return Took(cpu // loops, off // loops, (collecting.total - collected) // loops)


if __name__ == "__main__":
    print(json.dumps(truth(sys.argv[1])))
