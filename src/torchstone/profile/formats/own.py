"""Our own format: the record itself, whole, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchstone.profile.formats.base import MAX_DOCUMENT_BYTES, Input, bad, clean, first_byte
from torchstone.records import (
    PROFILE_SCHEMA,
    UNITS,
    WAYS,
    CallTree,
    FunctionCalls,
    MemoryUse,
    Profile,
    RecordError,
    Sampling,
    Spans,
    from_data,
    to_data,
)

# What whoever is given a `Profile` may rely on, checked.


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


MARK = "torchstone-profile"


class OwnFormat:
    """See the module. Nothing is left out."""

    name = "torchstone"
    endings = (".profile.json",)

    def accepts(self, head: bytes, path: Path) -> bool:
        """An object that begins with our mark."""
        return first_byte(head) == b"{" and MARK.encode() in head[:200]

    def read(self, path: Path) -> Profile:
        """The record, if it is one and keeps its promises."""
        file = Input(path, MAX_DOCUMENT_BYTES)
        data = file.json()
        record = data.get("profile") if isinstance(data, dict) else None
        if not isinstance(record, dict) or data.get("format") != MARK:
            raise bad(file.name, "this is not a profile that Torchstone wrote")
        schema = record.get("schema")
        if type(schema) is int and schema > PROFILE_SCHEMA:
            raise bad(file.name, "a newer Torchstone wrote it", "Install that version, or newer.")
        try:
            profile = from_data(Profile, record)
            check_profile(profile)
        except (RecordError, BrokenPromise) as error:
            raise bad(file.name, f"this profile is damaged ({error})") from None
        except (OverflowError, RecursionError):
            raise bad(file.name, "this profile is damaged (a number or its depth)") from None
        return _printable(profile)

    def write(self, profile: Profile) -> bytes:
        """The record."""
        data: dict[str, Any] = {"format": MARK, "profile": to_data(profile)}
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()

    def remarks(self, profile: Profile) -> tuple[str, ...]:
        """Nothing is left out."""
        return ()


def _printable(profile: Profile) -> Profile:
    """The same with names and sentences that can be printed; source text stays as it is."""
    return replace(
        profile,
        frames=tuple(replace(f, name=clean(f.name), file=clean(f.file)) for f in profile.frames),
        threads=tuple(replace(one, name=clean(one.name)) for one in profile.threads),
        tool=clean(profile.tool),
        label=clean(profile.label),
        problems=tuple(clean(one) for one in profile.problems),
        notes=tuple(clean(one) for one in profile.notes),
    )


OWN = OwnFormat()


# What our own files say beyond what their format can, so that they read back as what they were.
#
# Other tools' formats hold weights, and cannot say whether these are samples, exact times or
# guessed paths. Without that, nobody may put an interval on a share.


KEY = "torchstone"
UNKNOWN_CLOCK = "unknown"
MAX_COUNT = 2**53
"""Of samples or steps: whole numbers up to here are exact in every reader of JSON."""
MAX_SCALE = 1e9
"""Seconds are written as nanoseconds; nothing is written in finer parts."""


@dataclass(frozen=True)
class Remembered:
    """Of the profile that a file was written from. Weights in the file are `scale` times those of
    the profile, which are in `unit`."""

    how: str
    tool: str
    unit: str
    scale: float = 1.0
    estimated: bool = False
    steps: int = 0
    sampling: Sampling | None = None


def remember(profile: Profile, scale: float = 1.0) -> dict[str, Any]:
    """To be put into a file."""
    unit = profile.tree.unit if profile.tree is not None else "seconds"
    data: dict[str, Any] = to_data(
        Remembered(
            profile.how,
            profile.tool,
            unit,
            scale,
            profile.estimated,
            profile.steps,
            profile.sampling,
        )
    )
    return data


def remembered(data: Any) -> Remembered | None:
    """What a file says; None where it says nothing, or what cannot be: anybody may have written
    it."""
    try:
        found = from_data(Remembered, data)
    except RecordError:
        return None
    if not _holds(found):
        return None
    sampling = found.sampling
    if sampling is not None:
        sampling = replace(sampling, clock=clean(sampling.clock))
    return replace(found, tool=clean(found.tool), sampling=sampling)


def _holds(found: Remembered) -> bool:
    counts, sampling = [found.steps], found.sampling
    if sampling is not None:
        counts += [sampling.samples, sampling.lost]
        if not 0 <= sampling.interval_s < math.inf:
            return False
    return (
        found.how in WAYS
        and found.unit in UNITS
        and 1.0 <= found.scale <= MAX_SCALE
        and all(0 <= count <= MAX_COUNT for count in counts)
    )
