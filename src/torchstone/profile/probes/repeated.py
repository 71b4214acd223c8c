"""Counts that take a pass of their own: ops by kind, allocations."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace

from torchstone.profile.probes.base import Step
from torchstone.records import Counter, Profile

MOST_OPS = 20
"""Kinds of ops that are named; the rest is counted together."""
_COMPILED = "not seen: the ops of compiled code run inside its kernels; --how trace shows those"

_ONCE = "not measured: it takes a pass of its own, and only the step of a target can be repeated"


def repeated_counts(step: Step, eager: bool) -> tuple[Counter, ...]:
    """Counts of one step, which is run a few times more."""
    counters = list(_python_memory(step))
    if "torch" not in sys.modules:
        return tuple(counters)
    counters += _tensor_memory(step)
    counters += _ops(step) if eager else [Counter("ops", None, "", _COMPILED)]
    return tuple(counters)


def not_repeated(profile: Profile) -> Profile:
    """The same with a word on each count that takes a pass of its own: work that runs only once
    leaves none."""
    names: tuple[str, ...] = ()
    if profile.how == "count":
        names = ("Python memory",)
        names += ("tensor allocations", "ops by kind") if "torch" in sys.modules else ()
    elif profile.how == "memory" and "torch" in sys.modules:
        names = ("tensors alive at the peak",)
    missing = tuple(Counter(name, None, "", _ONCE) for name in names)
    return replace(profile, counters=(*profile.counters, *missing))


def _python_memory(step: Step) -> list[Counter]:
    """What one step adds to Python's own memory at the most; torch's tensors are not in it."""
    if tracemalloc.is_tracing():
        return [Counter("Python memory of a step", None, "bytes", "tracemalloc is in use already")]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return [Counter("Python memory of a step", float(peak - before), "bytes", "at its peak")]


def _tensor_memory(step: Step) -> list[Counter]:
    from torchstone.measure.allocations import allocations

    events, reason = allocations(step)
    made = [event for event in events if event.bytes > 0]
    if reason:
        return [Counter("tensor allocations of a step", None, "", reason)]
    return [
        Counter("tensor allocations of a step", float(len(made))),
        Counter("tensor bytes of a step", float(sum(event.bytes for event in made)), "bytes"),
    ]


def _ops(step: Step) -> list[Counter]:
    from torchstone.measure.counting import tally_ops
    from torchstone.measure.tally import Tally

    tally = Tally({})
    try:
        tally_ops(step, tally)
    except Exception as error:  # a step that refuses to be watched must not cost the profile
        kind = type(error).__name__
        return [Counter("ops of a step", None, "", f"not counted: the step raised {kind}")]
    named = tally.calls.most_common(MOST_OPS)
    rest = sum(tally.calls.values()) - sum(count for _, count in named)
    counters = [Counter("ops of a step", float(sum(tally.calls.values())))]
    counters += [Counter(f"op {name}", float(count)) for name, count in named]
    return counters + ([Counter("other ops", float(rest))] if rest else [])
