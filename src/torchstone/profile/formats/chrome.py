"""Chrome traces: what torch.profiler, viztracer, py-spy and others write, and Perfetto shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchstone import __version__
from torchstone.profile import trees
from torchstone.profile.formats.base import MAX_TRACE_BYTES, Input, bad, first_byte
from torchstone.profile.formats.chrome_events import (
    CATEGORIES,
    Memory,
    Settled,
    TraceReading,
    settle,
)
from torchstone.profile.formats.json_events import EventReader
from torchstone.records import MemoryUse, Profile, Spans, UsageError

ZERO_SHARE = 0.2
"""Of the spans. More of them with no duration at all means a clock that is too coarse, or lost."""

_WANTED = frozenset({"baseTimeNanoseconds", "viztracer_metadata", "exporter"})
_FACTS = ("schemaVersion", "displayTimeUnit", "trace_id", "with_stack", "record_shapes")
"""What is kept of what stands beside the events; a host's name is not."""
_MAX_FACT = 200
_EARLIEST_S, _LATEST_S = 1e9, 1e10
"""A wall clock outside of these (2001 to 2286) is none."""


class ChromeFormat:
    """See the module."""

    name = "chrome"
    endings = (".trace.json", ".pt.trace.json", ".json")

    def accepts(self, head: bytes, path: Path) -> bool:
        """An object with `traceEvents`, or a list of events."""
        first = first_byte(head)
        if first == b"{":
            return b'"traceEvents"' in head
        return first == b"[" and b'"ph"' in head

    def read(self, path: Path) -> Profile:
        """Spans, threads and the call tree that they make."""
        file = Input(path, MAX_TRACE_BYTES)
        reader = EventReader(file.chunks(), file.name, _WANTED.union(_FACTS))
        reading = TraceReading()
        cut = False
        for event in reader:
            if reading.full:
                cut = True
                break
            reading.add(event)
        reading.finish()
        if not len(reading.columns):
            raise bad(file.name, "there is no span in it", "Record something, or give another.")
        _say_what_is_lost(reading, reader, file, cut)
        return _assemble(reading, reader.header, file)

    def write(self, profile: Profile) -> bytes:
        """The spans as complete events, with the memory as a counter."""
        if profile.spans is None or not profile.spans.frames:
            raise UsageError(
                "The profile has no time axis, so it cannot be written as a Chrome trace.",
                "Write it as speedscope or folded.",
            )
        head = json.dumps({"displayTimeUnit": "ms", "exporter": f"torchstone {__version__}"})
        events = ",\n".join(json.dumps(event) for event in _events(profile, profile.spans))
        return f'{head[:-1]}, "traceEvents": [\n{events}\n]}}\n'.encode()

    def remarks(self, profile: Profile) -> tuple[str, ...]:
        """Only what has a time is in such a file."""
        return ("A Chrome trace holds spans, threads and memory; tables and notes are left out.",)


def _say_what_is_lost(reading: TraceReading, reader: EventReader, file: Input, cut: bool) -> None:
    say = reading.faults.say
    if cut:
        share = f"{file.bytes_read / file.size:.0%} of the file" if not file.compressed else "it"
        say(
            f"The trace is too long: only its first {reading.events:,} events are here "
            f"(at most {share}). Record fewer steps to see all."
        )
    elif not reader.ended:
        say("The end of the trace is missing: it may be cut off.")
    viztracer = reader.header.get("viztracer_metadata")
    if isinstance(viztracer, dict) and viztracer.get("overflow"):
        say("The tracer's buffer was full and the oldest events are lost: enlarge it.")
    spans = len(reading.columns)
    zeros = reading.columns.durations.count(0)
    if zeros > ZERO_SHARE * spans:
        say(f"{zeros:,} of {spans:,} spans have no duration.")


def _assemble(reading: TraceReading, header: dict[str, Any], file: Input) -> Profile:
    frames = reading.table.frames
    settled = settle(reading.columns, frames, reading.faults, None)
    tree = trees.from_spans(settled.spans)
    covered: dict[int, float] = {}
    for frame, thread, own in zip(tree.frames, tree.threads, tree.own, strict=True):
        if frames[frame].kind != "kernel":
            covered[thread] = covered.get(thread, 0.0) + own
    tool = _tool(reading, header)
    notes = reading.faults.sentences("spans", notes=True)
    if settled.cut_ns:
        notes += (f"In all {settled.cut_ns / 1e6:.3g} ms were cut where spans overlapped.",)
    if reading.others:
        notes += (f"{reading.others:,} flows, instants and other events are not shown.",)
    return Profile(
        id=file.id,
        created=_created(header, settled) or file.created,
        how="sample" if tool == "py-spy" else "trace",
        tool=tool,
        frames=frames,
        threads=reading.threads(_critical(reading, covered)),
        tree=tree,
        spans=settled.spans,
        memory=_memory(reading.memory, settled, tool),
        counters=reading.counters(),
        steps=max((len(steps) for steps in reading.steps.values()), default=0),
        wall_s=settled.wall_ns / 1e9,
        problems=reading.faults.sentences("events"),
        label=file.name,
        origin=ChromeFormat.name,
        facts=_facts(header),
        notes=notes,
        version=__version__,
    )


def _critical(reading: TraceReading, covered: dict[int, float]) -> int:
    """The thread of the steps, else the main thread, else the busiest."""
    if reading.steps:
        return max(reading.steps, key=lambda thread: len(reading.steps[thread]))
    threads = reading.threads(-1)
    mains = [t for t in covered if threads[t].id and threads[t].id == threads[t].process]
    return max(mains or covered, key=lambda thread: covered[thread], default=-1)


def _tool(reading: TraceReading, header: dict[str, Any]) -> str:
    if "viztracer_metadata" in header:
        return "viztracer"
    if "py-spy" in reading.categories:
        return "py-spy"
    if str(header.get("exporter", "")).startswith("torchstone"):
        return "torchstone"
    if "cpu_op" in reading.categories and "schemaVersion" in header:
        return "torch.profiler"
    return "chrome trace"


def _created(header: dict[str, Any], settled: Settled) -> str:
    base = header.get("baseTimeNanoseconds")
    seconds = (base + settled.base_ns) / 1e9 if type(base) is int and abs(base) < 2**63 else 0.0
    if not _EARLIEST_S < seconds < _LATEST_S:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _facts(header: dict[str, Any]) -> dict[str, str]:
    return {
        key: str(header[key])[:_MAX_FACT]
        for key in _FACTS
        if type(header.get(key)) in (int, str) and str(header[key]).isprintable()
    }


def _memory(memory: Memory, settled: Settled, tool: str) -> MemoryUse | None:
    points = sorted(zip(memory.times, memory.resident, memory.heap, strict=True))
    if not points:
        return None
    times, resident, heap = zip(*points, strict=True)
    column = heap if any(heap) else resident
    peak = max(range(len(column)), key=column.__getitem__)
    times = tuple(time - settled.base_ns for time in times)
    return MemoryUse(
        time_ns=times,
        resident=resident if any(resident) else (),
        heap=heap if any(heap) else (),
        peak_bytes=column[peak],
        peak_ns=times[peak],
        source=tool,
    )


def _events(profile: Profile, spans: Spans) -> Iterator[dict[str, Any]]:
    marks = _marks(profile)
    for index, thread in enumerate(profile.threads):
        pid, tid = marks[index]
        yield _meta("thread_name", pid, tid, thread.name)
    for frame, thread_index, start, duration in zip(
        spans.frames, spans.threads, spans.start_ns, spans.duration_ns, strict=True
    ):
        place = profile.frames[frame]
        pid, tid = marks[thread_index]
        event = {
            "ph": "X",
            "cat": CATEGORIES.get(place.kind, place.kind),
            "name": place.name,
            "pid": pid,
            "tid": tid,
            "ts": start / 1000,
            "dur": duration / 1000,
        }
        if place.file:
            event["args"] = {"file": place.file, "line": place.line}
        yield event
    memory = profile.memory
    for at, time in enumerate(memory.time_ns if memory else ()):
        columns = {"resident": memory.resident, "heap": memory.heap} if memory else {}
        args = {name: column[at] for name, column in columns.items() if column}
        yield {"ph": "C", "name": "memory", "pid": 0, "tid": 0, "ts": time / 1000, "args": args}


def _meta(what: str, pid: int | str, tid: int | str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _marks(profile: Profile) -> list[tuple[int, int | str]]:
    """A process and thread for each thread; those without a number of their own get a name."""
    marks: list[tuple[int, int | str]] = []
    for index, thread in enumerate(profile.threads):
        mark: tuple[int, int | str] = (thread.process, thread.id)
        if not thread.id or mark in marks:
            mark = (thread.process, f"{thread.name} #{index}")
        marks.append(mark)
    return marks


CHROME = ChromeFormat()
