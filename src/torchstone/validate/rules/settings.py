"""Did the arm run as it was set up: with its threads, without debug settings, in steady memory?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Measurement, Result
from torchstone.records.format import count, format_bytes
from torchstone.validate.base import arm_rule, name_of, note, ok, warn
from torchstone.validate.base import threads as threads_asked

LEAK_BYTES = 32 * 2**20
"""Ours: allocators and caches settle within a few megabytes after warm-up."""
LEAK_SHARE = 0.02
"""Of what the process holds, at least this much more: 32 MiB say little about 20 GiB."""
FEWEST_TURNS = 4
LATE_SHARE = 0.25
"""Of the growth, so much must fall into the later half of a process's turns: what fills a cache
once does not go on."""


@arm_rule("thread-change", "threads as seen in the arm")
def thread_change(arm: Measurement, _: Result) -> Iterator[Check]:
    """A thread count that the arm itself has changed."""
    asked, seen = threads_asked(arm), arm.integrity.threads_seen if arm.integrity else ()
    if asked is None or not seen:
        return
    others = [number for number in seen if number != asked]
    if not others:
        yield ok(f"{name_of(arm)} ran with {count(asked, 'thread')}.", asked=asked, seen=asked)
        return
    yield warn(
        f"{name_of(arm)} was to run with {count(asked, 'thread')} and ran with {others[-1]}: its "
        "code calls torch.set_num_threads. Remove that, or ask for as many with --threads.",
        asked=asked,
        seen=others[-1],
    )


@arm_rule("debug", "debug settings off")
def debug(arm: Measurement, _: Result) -> Iterator[Check]:
    """Settings that help to find faults and cost time."""
    if arm.integrity is None or not arm.turns:
        return
    found = arm.integrity.debug_settings
    figures = {"settings": len(found)}
    if not found:
        yield ok(f"No debug setting was on in {name_of(arm)}.", **figures)
    elif set(found) <= {"torch.use_deterministic_algorithms"}:
        yield note(
            f"{name_of(arm)} uses deterministic algorithms only (torch.use_deterministic_algorithms"
            "), of which some are slower.",
            **figures,
        )
    else:
        yield warn(
            f"{name_of(arm)} was timed with {', '.join(found)}, which costs time by itself. "
            "Remove it, and measure again.",
            **figures,
        )


@arm_rule("leak", "memory steady from call to call")
def leak(arm: Measurement, _: Result) -> Iterator[Check]:
    """Memory that grows from call to call, in every process."""
    growths = [found for index in _replicates(arm) if (found := _growth(arm, index))]
    if not growths:
        return
    grown, calls, held = min(growths, key=lambda one: one[0])
    figures = {"grown_bytes": grown, "calls": calls, "processes": len(growths)}
    if grown < max(LEAK_BYTES, LEAK_SHARE * held):
        yield ok(f"The memory of {name_of(arm)} stayed as it was.", **figures)
        return
    yield warn(
        f"The memory of {name_of(arm)} grows from call to call: by {format_bytes(grown)} in "
        f"{count(calls, 'call')} ({format_bytes(grown / calls)} a call), in every process. Look "
        "for outputs, graphs or tensors that are kept; page faults for them are in its time.",
        **figures,
    )


def _replicates(arm: Measurement) -> list[int]:
    return sorted({turn.replicate for turn in arm.turns})


def _growth(arm: Measurement, replicate: int) -> tuple[int, int, int] | None:
    """Bytes more at a process's end than after its first turn, the calls between, and bytes then;
    0 where the growth came to an end. None with too few turns."""
    turns = [turn for turn in arm.turns if turn.replicate == replicate]
    sizes = [turn.resident_bytes for turn in turns if turn.resident_bytes is not None]
    if len(sizes) < max(FEWEST_TURNS, len(turns)):
        return None
    calls = sum((len(turn.wall_ns) + 1) * arm.loops for turn in turns[1:])
    grown = sizes[-1] - sizes[0]
    late = sizes[-1] - sizes[len(sizes) // 2]
    return (grown if late >= LATE_SHARE * grown else 0), max(1, calls), sizes[0]
