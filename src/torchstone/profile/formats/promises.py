"""What whoever is given a `Profile` may rely on, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torchstone.records import UNITS, WAYS, CallTree, FunctionCalls, MemoryUse, Profile, Spans

KINDS = frozenset({"python", "native", "op", "kernel", "annotation", "gc", "wait", "root"})


class BrokenPromise(ValueError):
    """A profile that is not what the record says it is; the message names the part."""


def check_profile(profile: Profile) -> None:
    """Raise `BrokenPromise` if columns differ in length, an index leads nowhere, a parent comes
    after its child, a figure is not finite, or spans overlap."""
    frames, threads = len(profile.frames), len(profile.threads)
    _want(profile.how in WAYS, "how")
    _want(all(frame.kind in KINDS for frame in profile.frames), "frames")
    _want(math.isfinite(profile.wall_s) and profile.wall_s >= 0, "wall_s")
    if profile.tree is not None:
        _check_tree(profile.tree, frames, threads, "tree")
    if profile.spans is not None:
        _check_spans(profile.spans, frames, threads)
    for one in profile.functions:
        _check_calls(one, frames)
    for table in profile.lines:
        columns = (table.hits, table.seconds, table.bytes, table.increment)
        _want(all(len(c) in (0, len(table.lines)) for c in columns), "lines")
        _check_numbers(table.seconds, "lines")
    for code in profile.bytecode:
        _check_indexes((code.frame,), frames, "bytecode")
    if profile.memory is not None:
        _check_memory(profile.memory, frames, threads)


def _want(holds: bool, where: str) -> None:
    if not holds:
        raise BrokenPromise(f"{where} is not as it should be")


def _check_indexes(indexes: Sequence[int], most: int, where: str) -> None:
    _want(not indexes or (min(indexes) >= 0 and max(indexes) < most), where)


def _check_numbers(numbers: Iterable[float], where: str) -> None:
    _want(all(math.isfinite(number) for number in numbers), where)


def _check_tree(tree: CallTree, frames: int, threads: int, where: str) -> None:
    size = len(tree.parents)
    columns = (tree.frames, tree.own, tree.threads)
    _want(all(len(c) == size for c in columns) and len(tree.calls) in (0, size), where)
    _want(tree.unit in UNITS, f"{where}.unit")
    _check_indexes(tree.frames, frames, f"{where}.frames")
    _check_indexes(tree.threads, threads, f"{where}.threads")
    _check_numbers(tree.own, f"{where}.own")
    _want(all(-1 <= parent < node for node, parent in enumerate(tree.parents)), f"{where}.parents")
    _want(min(tree.calls, default=0) >= 0, f"{where}.calls")


def _check_spans(spans: Spans, frames: int, threads: int) -> None:
    size = len(spans.frames)
    columns = (spans.threads, spans.start_ns, spans.duration_ns)
    _want(all(len(column) == size for column in columns), "spans")
    _check_indexes(spans.frames, frames, "spans.frames")
    _check_indexes(spans.threads, threads, "spans.threads")
    _want(min(spans.duration_ns, default=0) >= 0, "spans.duration_ns")
    ends: list[int] = []
    before = (-1, 0, 0)
    for thread, start, duration in zip(
        spans.threads, spans.start_ns, spans.duration_ns, strict=True
    ):
        if thread != before[0]:
            ends.clear()
        key = (thread, start, -duration)
        _want(before[0] < 0 or before <= key, "the order of spans")
        before = key
        while ends and ends[-1] <= start:
            ends.pop()
        _want(not ends or start + duration <= ends[-1], "the nesting of spans")
        ends.append(start + duration)


def _check_calls(one: FunctionCalls, frames: int) -> None:
    rows = (one.of, *one.callers)
    _check_indexes([row.frame for row in rows], frames, "functions")
    _check_numbers([value for row in rows for value in (row.own_s, row.total_s)], "functions")
    _want(all(row.calls >= 0 and row.primitive >= 0 for row in rows), "functions")


def _check_memory(memory: MemoryUse, frames: int, threads: int) -> None:
    size = len(memory.time_ns)
    _want(all(len(c) in (0, size) for c in (memory.resident, memory.heap)), "memory")
    if memory.at_peak is not None:
        _check_tree(memory.at_peak, frames, threads, "memory.at_peak")
    for alive in memory.alive:
        _check_indexes(alive.stack, frames, "memory.alive")
