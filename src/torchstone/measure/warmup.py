"""Warm-up: call until the floor of two windows in a row agrees and nothing is compiled any more."""

from __future__ import annotations

from collections.abc import Callable

from torchstone.measure.clock import wall_clock
from torchstone.measure.graphs import compile_count
from torchstone.measure.loops import TimeBlock
from torchstone.records import WarmUp

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
SLOW_STATEMENT_WINDOW_NS = 2_000_000_000
"""Statements have shorter samples, and one execution of a slow one may be a whole window."""
SLOW_STATEMENT_NS = 1_000_000_000
"""Statements from here on are executed no more often than needed: `timeit` would do it once."""
MOST_WINDOWS = 20
MOST_CALLS = 10_000
BEAT_NS = 1_000_000_000
LIMIT_NS = 10_000_000_000
"""Longer than this, and the record says `not steady` instead."""


def warm_up(
    time_block: TimeBlock,
    first_call_ns: int,
    beat: Callable[[], None],
    limit_ns: int = LIMIT_NS,
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


def with_beat(time_block: TimeBlock, beat: Callable[[], None]) -> TimeBlock:
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
    if total_ns >= (SLOW_STATEMENT_WINDOW_NS if statement else SLOW_WINDOW_NS):
        return calls >= (1 if statement else SLOW_WINDOW_CALLS)
    return calls >= WINDOW_CALLS and (total_ns >= WINDOW_NS or calls >= MOST_CALLS)
