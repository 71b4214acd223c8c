"""Our own format: the record itself, whole, as JSON; and what other formats keep of it for us."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchstone.profile.formats.base import MAX_DOCUMENT_BYTES, Input, bad, clean, first_byte
from torchstone.records import (
    PROFILE_SCHEMA,
    UNITS,
    WAYS,
    CallTree,
    Profile,
    RecordError,
    Sampling,
    Spans,
    from_data,
    to_data,
)

# What whoever is given a `Profile` may rely on, checked.


KINDS = frozenset({"python", "native", "op", "kernel", "annotation", "gc", "wait", "root"})


MAX_FIGURE = 2.0**53
"""Seconds, bytes or samples of one row: whole numbers above it are not exact in a float."""


class Inconsistent(ValueError):
    """A profile that is not what the record says it is; the message names the part."""


def check_profile(profile: Profile) -> None:
    """Raise `Inconsistent` if columns differ in length, an index leads nowhere, a parent comes
    after its child, a figure is not finite or beyond all bounds, or spans overlap."""
    for part, holds in _checks(profile):
        if not holds:
            raise Inconsistent(f"{part} is not as it should be")


def _checks(profile: Profile) -> Iterator[tuple[str, bool]]:
    """Parts, and whether each is sound; what comes later may rely on what came before."""
    frames, threads = len(profile.frames), len(profile.threads)
    yield "how", profile.how in WAYS
    yield "frames", all(frame.kind in KINDS for frame in profile.frames)
    yield "wall_s", 0 <= profile.wall_s <= MAX_FIGURE
    if profile.tree is not None:
        yield from _check_tree(profile.tree, frames, threads, "tree")
    if profile.spans is not None:
        yield from _check_spans(profile.spans, frames, threads)
    for one in profile.functions:
        rows = (one.of, *one.callers)
        yield "functions", _are_indexes([row.frame for row in rows], frames)
        yield "functions", _are_bounded(time for row in rows for time in (row.own_s, row.total_s))
        yield "functions", all(row.calls >= 0 and row.primitive >= 0 for row in rows)
    for table in profile.lines:
        columns = (table.hits, table.seconds, table.bytes, table.increment)
        yield "lines", all(len(c) in (0, len(table.lines)) for c in columns)
        yield "lines", _are_bounded(table.seconds)
    yield "bytecode", _are_indexes([code.frame for code in profile.bytecode], frames)
    memory = profile.memory
    if memory is not None:
        sizes = (0, len(memory.time_ns))
        yield "memory", len(memory.resident) in sizes and len(memory.heap) in sizes
        if memory.at_peak is not None:
            yield from _check_tree(memory.at_peak, frames, threads, "memory.at_peak")
        yield "memory.alive", all(_are_indexes(one.stack, frames) for one in memory.alive)


def _are_indexes(indexes: Sequence[int], most: int) -> bool:
    return not indexes or (min(indexes) >= 0 and max(indexes) < most)


def _are_bounded(numbers: Iterable[float]) -> bool:
    """Finite, and small enough that sums and changes of unit stay so."""
    return all(-MAX_FIGURE <= number <= MAX_FIGURE for number in numbers)


def _check_tree(
    tree: CallTree, frames: int, threads: int, where: str
) -> Iterator[tuple[str, bool]]:
    size = len(tree.parents)
    columns = (tree.frames, tree.own, tree.threads)
    yield where, all(len(c) == size for c in columns) and len(tree.calls) in (0, size)
    yield f"{where}.unit", tree.unit in UNITS
    yield f"{where}.frames", _are_indexes(tree.frames, frames)
    yield f"{where}.threads", _are_indexes(tree.threads, threads)
    yield f"{where}.own", _are_bounded(tree.own)
    yield f"{where}.parents", all(-1 <= above < node for node, above in enumerate(tree.parents))
    yield f"{where}.calls", min(tree.calls, default=0) >= 0


def _check_spans(spans: Spans, frames: int, threads: int) -> Iterator[tuple[str, bool]]:
    size = len(spans.frames)
    columns = (spans.threads, spans.start_ns, spans.duration_ns)
    yield "spans", all(len(column) == size for column in columns)
    yield "spans.frames", _are_indexes(spans.frames, frames)
    yield "spans.threads", _are_indexes(spans.threads, threads)
    yield "spans.duration_ns", min(spans.duration_ns, default=0) >= 0
    wrong = _wrong_place(zip(*columns, strict=True))
    yield wrong, not wrong


def _wrong_place(rows: Iterable[tuple[int, int, int]]) -> str:
    """What is wrong with spans, given as thread, start and duration; empty if nothing is."""
    ends: list[int] = []
    before = (-1, 0, 0)
    for thread, start, duration in rows:
        if thread != before[0]:
            ends.clear()
        key = (thread, start, -duration)
        if key < before:
            return "the order of spans"
        before = key
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and start + duration > ends[-1]:
            return "the nesting of spans"
        ends.append(start + duration)
    return ""


MARK = "torchstone-profile"


class OwnFormat:
    """See the module. Nothing is left out."""

    name = "torchstone"
    endings = (".profile.json",)

    def accepts(self, head: bytes, path: Path) -> bool:
        """An object that begins with our mark."""
        return first_byte(head) == b"{" and MARK.encode() in head[:200]

    def read(self, path: Path) -> Profile:
        """The record, if it is one and is sound."""
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
        except (RecordError, Inconsistent) as error:
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
class Metadata:
    """Of the profile that a file was written from. Weights in the file are `scale` times those of
    the profile, which are in `unit`."""

    how: str
    tool: str
    unit: str
    scale: float = 1.0
    estimated: bool = False
    steps: int = 0
    sampling: Sampling | None = None

    def parts(self) -> dict[str, Any]:
        """What it says of the profile itself."""
        names = ("how", "tool", "estimated", "steps", "sampling")
        return {name: getattr(self, name) for name in names}


def metadata_of(profile: Profile, scale: float = 1.0) -> dict[str, Any]:
    """To be put into a file."""
    unit = profile.tree.unit if profile.tree is not None else "seconds"
    how, tool, sampling = profile.how, profile.tool, profile.sampling
    found = Metadata(how, tool, unit, scale, profile.estimated, profile.steps, sampling)
    data: dict[str, Any] = to_data(found)
    return data


def read_metadata(data: Any) -> Metadata | None:
    """What a file says; None where it says nothing, or what cannot be: anybody may have written
    it."""
    try:
        found = from_data(Metadata, data)
    except RecordError:
        return None
    sampling = found.sampling
    counts = [found.steps] + ([sampling.samples, sampling.lost] if sampling else [])
    known = found.how in WAYS and found.unit in UNITS and 1.0 <= found.scale <= MAX_SCALE
    if not known or not all(0 <= count <= MAX_COUNT for count in counts):
        return None
    if sampling is not None:
        if not 0 <= sampling.interval_s < math.inf:
            return None
        sampling = replace(sampling, clock=clean(sampling.clock))
    return replace(found, tool=clean(found.tool), sampling=sampling)
