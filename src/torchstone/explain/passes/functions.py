"""Which Python functions a step spends its time in, by `cProfile`. For names, not for amounts:
profiling each call makes small functions look dearer than they are. By the thread's CPU clock: a
function that sleeps is not where the interpreter is busy."""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable
from typing import Any

from torchstone.explain.passes.report import Function
from torchstone.measure.built import Phase

MOST_FUNCTIONS = 8


def functions_pass(
    block: Callable[[], object], loops: int, count: int, phase: Phase
) -> tuple[Function, ...]:
    """Run the block `count` times; the functions with most time of their own first."""
    phase("passes")
    profile = cProfile.Profile(time.thread_time, builtins=False)
    try:
        profile.enable()
    except ValueError:  # another profiler is there already
        return ()
    try:
        for _ in range(count):
            block()
    finally:
        profile.disable()
    steps = count * loops
    found = [_function(entry, steps) for entry in profile.getstats()]
    known = [one for one in found if one is not None]
    return tuple(sorted(known, key=lambda one: -one.own)[:MOST_FUNCTIONS])


def _function(entry: Any, steps: int) -> Function | None:
    code = entry.code
    if isinstance(code, str) or "torchstone/explain" in code.co_filename.replace("\\", "/"):
        return None
    return Function(
        code.co_name,
        code.co_filename,
        code.co_firstlineno,
        entry.callcount / steps,
        entry.inlinetime * 1e9 / steps,
    )
