"""Warm-up: call until the floor of two windows in a row agrees and nothing is compiled any more.

What the compiler did: graphs, breaks and recompiles, from Dynamo's own counters.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torchstone.machine.noise import waited_ns
from torchstone.measure.arm import RING_BYTES, Built, inputs_bytes
from torchstone.measure.loops import TimeBlock, thread_clock, wall_clock
from torchstone.records import Graphs, Integrity, WarmUp
from torchstone.workloads import Inputs

_REASON_LENGTH = 200


def _dynamo_utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def compile_count() -> int:
    """Frames compiled so far in this process; grows with each recompile."""
    utils = _dynamo_utils()
    return int(utils.counters["frames"]["ok"]) if utils is not None else 0


def describe_graphs(late: int = 0) -> Graphs | None:
    """Everything captured in this process, or None where Dynamo was never loaded."""
    utils = _dynamo_utils()
    if utils is None:
        return None
    breaks = utils.counters["graph_break"]
    return Graphs(
        graphs=int(utils.counters["stats"]["unique_graphs"]),
        breaks=int(sum(breaks.values())),
        break_reasons=tuple(str(r).split("\n")[0][:_REASON_LENGTH] for r in breaks),
        recompiles=_recompiles(utils),
        late_recompiles=late,
    )


def _recompiles(utils: Any) -> int:
    metrics: list[Any] = getattr(utils, "get_compilation_metrics", list)()
    return sum(1 for entry in metrics if getattr(entry, "recompile_reason", None))


# What watches this process: tracers, profilers, and modes that see each op of torch.
#
# Looked for after each turn, so that what was left on is seen. What a step turns on and off again
# by itself is the step's own work.


def active_profilers() -> tuple[str, ...]:
    """Names of what is on now, such as `sys.setprofile` or `dispatch mode FlopCounterMode`."""
    found = [*_of_python()]
    torch = sys.modules.get("torch")
    if torch is not None:
        found += _of_torch(torch)
    return tuple(found)


def _of_python() -> Iterator[str]:
    if sys.getprofile() is not None:
        yield "sys.setprofile"
    if sys.gettrace() is not None:
        yield "sys.settrace"
    monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.12 and newer
    for number in range(6 if monitoring is not None else 0):
        name = monitoring.get_tool(number)
        if name is not None and monitoring.get_events(number):
            yield f"sys.monitoring tool {name}"
    tracemalloc = sys.modules.get("tracemalloc")
    if tracemalloc is not None and tracemalloc.is_tracing():
        yield "tracemalloc"


def _of_torch(torch: Any) -> Iterator[str]:
    if _ask(torch, "autograd._profiler_enabled"):
        yield "torch.profiler"
    if _ask(torch, "is_anomaly_enabled"):
        yield "torch.autograd anomaly mode"
    for mode in _ask(torch, "utils._python_dispatch._get_current_dispatch_mode_stack") or ():
        yield f"dispatch mode {type(mode).__name__.lstrip('_')}"


_DEBUG_VARIABLES = (
    *("CUDA_LAUNCH_BLOCKING", "MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE", "TORCH_LOGS"),
    *("TORCH_COMPILE_DEBUG", "TORCHDYNAMO_VERBOSE", "TORCH_TRACE", "PYTHONASYNCIODEBUG"),
)
_DEBUG_CALLS = {
    "get_deterministic_debug_mode": "torch.set_deterministic_debug_mode",
    "are_deterministic_algorithms_enabled": "torch.use_deterministic_algorithms",
}


def debug_settings() -> tuple[str, ...]:
    """What is on that helps to find faults and costs time."""
    found = [name for name in _DEBUG_VARIABLES if os.environ.get(name, "0") not in ("", "0")]
    if sys.flags.dev_mode:
        found.append("Python's development mode")
    if os.environ.get("PYTHONMALLOC", "").endswith("debug"):
        found.append("PYTHONMALLOC")
    if gc.get_debug():
        found.append("gc.set_debug")
    torch = sys.modules.get("torch")
    if torch is not None:
        found += [name for place, name in _DEBUG_CALLS.items() if _ask(torch, place)]
    return tuple(sorted(set(found)))


def _ask(torch: Any, place: str) -> Any:
    """What the function at a dotted place says; None if this torch has no such function."""
    value = torch
    try:
        for part in place.split("."):
            value = getattr(value, part)
        return value()
    except Exception:  # a private name of torch may go; a measurement is worth more
        return None


WINDOW_CALLS = 10
WINDOW_NS = 20_000_000
"""A window is at least 10 calls (the method) and 20 ms, so that microsecond steps warm up too."""
AGREEMENT = 0.02
"""Two floors that differ by less count as the same (the method)."""
FEW_AGREEMENT = 0.05
"""The same for floors of fewer calls than a full window: three of 30 ms differ by 2 % by chance."""
SLOW_WINDOW_NS = 100_000_000
SLOW_WINDOW_CALLS = 3
"""A window of steps so slow that ten take longer ends after a tenth of a second and three calls:
steps of 20 to 200 ms would spend most of a short case in warm-up otherwise."""
LONG_WINDOW_NS = 150_000_000
LONG_WINDOW_CALLS = 2
"""The same for steps of 75 ms and more, of which two do."""
SLOW_STATEMENT_WINDOW_NS = 2_000_000_000
"""One execution of a statement this slow is a whole window."""
SLOW_STATEMENT_NS = 1_000_000_000
"""Statements from here on are executed no more often than needed: `timeit` would do it once."""
MOST_WINDOWS = 20
MOST_CALLS = 10_000
BEAT_NS = 1_000_000_000
WARMUP_LIMIT_NS = 10_000_000_000
"""Longer than this, and the record says `not steady` instead."""


def warm_up(
    time_block: TimeBlock,
    first_call_ns: int,
    beat: Callable[[], None],
    limit_ns: int = WARMUP_LIMIT_NS,
    statement: bool = False,
) -> WarmUp:
    """Run windows until steady or out of patience; every time is kept.

    Of a slow `statement` one execution is a window. `beat` is called between slow calls, so
    that the step's time-out counts for each of them.
    """
    times: list[int] = []
    floors: list[int] = []
    started = wall_clock()
    reason = ""
    while len(floors) < MOST_WINDOWS and (len(floors) < 2 or wall_clock() - started < limit_ns):
        compiled = compile_count()
        window = _window(time_block, beat, statement)
        times += window
        floors.append(min(window))
        if compile_count() != compiled:
            reason = "still compiling"
        elif len(floors) > 1:
            spread = abs(floors[-1] - floors[-2]) / max(min(floors[-2:]), 1)
            few = len(window) < WINDOW_CALLS
            if spread < (FEW_AGREEMENT if few else AGREEMENT):
                return WarmUp(first_call_ns, tuple(times), True)
            size = f"{spread:.1%}" if spread < 1 else "more than 100%"
            reason = f"the last two windows' floors differ by {size}"
    return WarmUp(first_call_ns, tuple(times), False, reason)


def with_heartbeat(time_block: TimeBlock, beat: Callable[[], None]) -> TimeBlock:
    """The same block, which reports back after a slow call, by the wall clock."""

    def timed() -> int:
        started = wall_clock()
        found = time_block()
        if wall_clock() - started > BEAT_NS:
            beat()
        return found

    return timed


def _window(time_block: TimeBlock, beat: Callable[[], None], statement: bool) -> list[int]:
    """By the wall clock, whatever clock the block has: its setup takes time too."""
    times: list[int] = []
    started = spoken = now = wall_clock()
    while not _is_full(len(times), now - started, statement):
        times.append(time_block())
        now = wall_clock()
        if now - spoken > BEAT_NS:
            beat()
            spoken = now
    return times


def _is_full(calls: int, total_ns: int, statement: bool) -> bool:
    if statement and total_ns >= SLOW_STATEMENT_WINDOW_NS:
        return calls >= 1
    if total_ns >= LONG_WINDOW_NS:
        return calls >= LONG_WINDOW_CALLS
    if total_ns >= SLOW_WINDOW_NS:
        return calls >= SLOW_WINDOW_CALLS
    return calls >= WINDOW_CALLS and (total_ns >= WINDOW_NS or calls >= MOST_CALLS)


# Does the arm remember inputs? Calls with new inputs, with the same ones again, and at once again.
#
# New inputs are made beforehand and all kept: making one in between would move the heap and cost
# page faults, and a cache by identity would take a new input for an old one that is gone. Walking
# the whole row a second time puts as much other memory between the two visits as before the first,
# so the processor's own caches treat both alike. Only a call repeated at once finds them warm.
#
# Time without a core is taken out: there are few calls, and on a crowded machine one that lost its
# core takes several times as long as one that did not. That is not seen where threads of a pool
# lose theirs, and a neighbour may slow a whole round. An arm that remembers does so in every round,
# so the round that speaks least against it is the one on record.

ROW, LEAST_ROW = 12, 2
ROUNDS = 4
DOUBT = 1.1
"""MLPerf's compliance test 04 allows 10 % between repeated and varied inputs."""
AGAIN_DOUBT = 10.0
"""Half of what the rule `fresh-inputs` takes for a memory of the last input alone."""
REPEATS_LIMIT_NS = 2_000_000_000
ROW_NS = 400_000_000
"""A row walked twice takes no longer than this, but for its least length: of steps of 40 ms five
are enough to see an answer that is looked up, which takes microseconds."""
FIRST_SEED = 5000


def look_for_memory(built: Built, beat: Callable[[], None], step_ns: int) -> Integrity:
    """Lower quartiles of the three kinds of call; a difference is looked at again (R11).

    `step_ns` is about what a call takes: of long ones a row has few.
    """
    rounds: list[_Round] = []
    spent = 0

    def call(inputs: Inputs) -> int:
        waited, ran = waited_ns(), thread_clock()
        started = wall_clock()
        built.call(inputs)
        took = wall_clock() - started
        ran, waited = thread_clock() - ran, waited_ns() - waited
        if took > BEAT_NS:
            beat()
        # The core may also be lost outside the call, between two readings.
        return took - min(waited, max(0, took - ran))

    kept = []  # ids of inputs that are gone would be given to new ones
    for number in range(ROUNDS):
        row = _row(built, number, step_ns)
        kept.append(row)
        fresh = [call(inputs) for inputs in row]
        same = [call(inputs) for inputs in row]
        again = [call(row[-1]) for _ in range(len(row) // 2)]
        rounds.append(_Round(*map(_lower_quartile, (fresh, same, again))))
        spent += sum(fresh) + sum(same)
        if rounds[-1].against <= 1.0 or spent > REPEATS_LIMIT_NS:
            break
    least = min(rounds, key=lambda one: one.against)
    return Integrity(same_input_ns=least.same, fresh_input_ns=least.fresh, again_ns=least.again)


class _Round(NamedTuple):
    """What a call took with a new input, with one seen before, and at once again."""

    fresh: int
    same: int
    again: int

    @property
    def against(self) -> float:
        """How much speaks for a memory; up to 1 nothing does."""
        of_row = self.fresh / (DOUBT * max(1, self.same))
        return max(of_row, self.fresh / (AGAIN_DOUBT * max(1, self.again)))


def _row(built: Built, number: int, step_ns: int) -> list[Inputs]:
    seed = built.arm.seed + FIRST_SEED + number * ROW
    first = built.inputs(seed)
    by_memory = RING_BYTES // ROUNDS // max(1, inputs_bytes(first))
    by_time = ROW_NS // (2 * max(1, step_ns))
    length = max(LEAST_ROW, min(ROW, by_memory, by_time))
    return [first, *(built.inputs(seed + i) for i in range(1, length))]


def _lower_quartile(times: list[int]) -> int:
    return sorted(times)[len(times) // 4]
