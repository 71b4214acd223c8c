"""Chrome traces: what torch.profiler, viztracer, py-spy and others write, and Perfetto shows."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchstone import __version__
from torchstone.profile import trees
from torchstone.profile.formats.base import MAX_TRACE_BYTES, Input, bad, first_byte
from torchstone.profile.formats.chrome_events import (
    CATEGORIES,
    Settled,
    TraceReading,
    settle,
)
from torchstone.records import MemoryUse, Profile, Spans, UsageError

# The events of a trace, one by one, so that a large file needs little memory.


MAX_VALUE = 8 * 2**20
"""Characters of one event, or of one wanted value beside the events."""
EVENTS = "traceEvents"

_SPACE = re.compile(r"[ \t\r\n]*")
_MARK = re.compile(r'["\[\]{},]')
_IN_TEXT = re.compile(r'["\\]')
_SLACK = 16
"""A fault so close to the end of what was read may only mean that more must be read."""
_UNTERMINATED = "Unterminated string"


class EventReader:
    """Reads `[event, …]` or `{"traceEvents": [event, …], …}`.

    `header` holds what is wanted of what stands beside the events; the rest is passed over, as
    some tools put whole source files there. A list may lack its last bracket, as the format
    allows, so that a program that dies leaves a trace; `ended` says whether it is there.
    """

    def __init__(self, chunks: Iterator[bytes], name: str, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self.header: dict[str, Any] = {}
        self.ended = False
        self._name = name
        self._chunks = chunks
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._all_read = False
        self._events = 0

    def __iter__(self) -> Iterator[Any]:
        first = self._peek()
        if first == "[":
            self._at += 1
            yield from self._list(may_lack_end=True)
        elif first == "{":
            self._at += 1
            yield from self._object()
        else:
            raise bad(self._name, "this is not a trace: it is neither a JSON list nor an object")
        if self._peek():
            raise bad(self._name, "there is more behind the end of the trace")

    def _object(self) -> Iterator[Any]:
        if self._peek() == "}":
            self._at += 1
            self.ended = True
            return
        while True:
            key = self._value() if self._peek() == '"' else None
            if not isinstance(key, str) or self._peek() != ":":
                raise self._broken("a name is missing beside the events")
            self._at += 1
            if self._peek() == "[" and key == EVENTS:
                self._at += 1
                yield from self._list()
            elif key in self._wanted:
                self.header[key] = self._value()
            else:
                self._pass_over()
            mark = self._peek()
            if mark not in (",", "}"):
                raise self._broken(f"a comma is missing behind {key!r:.40}")
            self._at += 1
            if mark == "}":
                self.ended = True
                return

    def _list(self, may_lack_end: bool = False) -> Iterator[Any]:
        """The events up to and with the bracket."""
        mark = self._peek()
        while mark != "]":
            if not mark and may_lack_end and self._events:
                return
            yield self._value()
            self._events += 1
            mark = self._peek()
            if mark == ",":
                self._at += 1
                mark = self._peek()
            elif mark and mark != "]":
                raise self._broken("a comma is missing")
        self._at += 1
        self.ended = True

    def _peek(self) -> str:
        """The next character that is not white space; nothing at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _pass_over(self) -> None:
        """Go behind a value without making it."""
        depth = 0
        while True:
            found = _MARK.search(self._text, self._at)
            if not found:
                self._go_on()
                continue
            mark = found[0]
            if depth == 0 and mark in ",]}":
                self._at = found.start()
                return
            self._at = found.end()
            if mark == '"':
                self._pass_text()
            elif mark in "[{":
                depth += 1
            elif mark in "]}":
                depth -= 1

    def _pass_text(self) -> None:
        """Go behind the quote that ends a text."""
        while True:
            found = _IN_TEXT.search(self._text, self._at)
            if not found:
                self._go_on()
                continue
            self._at = found.end()
            if found[0] == '"':
                return
            if self._at == len(self._text):
                self._go_on()
            self._at += 1

    def _go_on(self) -> None:
        self._at = len(self._text)
        if not self._more():
            raise self._broken("the file is cut off")

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError:
                raise self._broken("it is nested too deep") from None
            except json.JSONDecodeError as error:
                if self._all_read and self._is_cut(error):
                    raise self._broken("the file is cut off in the middle of it") from None
                if not self._is_cut(error):
                    raise self._broken(f"it is not JSON ({error.msg})") from None
            except ValueError:  # an integer of thousands of digits
                raise self._broken("a number in it is too long") from None
            else:
                # A number that ends where the text ends may go on in what is not yet read.
                if end < len(self._text) or self._all_read or isinstance(value, (dict, list, str)):
                    self._check_length(end - self._at)
                    self._at = end
                    return value
            self._check_length(len(self._text) - self._at)
            wanted = 2 * (len(self._text) - self._at)
            while len(self._text) - self._at < wanted and self._more():
                pass

    def _check_length(self, length: int) -> None:
        if length > MAX_VALUE:
            raise self._broken(f"it is longer than {MAX_VALUE // 2**20} MiB")

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the fault may be that the text ends too early."""
        return error.pos >= len(self._text) - _SLACK or error.msg.startswith(_UNTERMINATED)

    def _more(self) -> bool:
        """Read on; False where there is nothing more."""
        if self._all_read:
            return False
        try:
            chunk = next(self._chunks, b"")
            text = self._utf8.decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            raise self._broken("it is not UTF-8") from None
        self._all_read = not chunk
        self._text = self._text[self._at :] + text
        self._at = 0
        return not self._all_read

    def _broken(self, what: str) -> Exception:
        return bad(self._name, f"behind {self._events:,} events that could be read, {what}")


# From events to a profile, and back.


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
    notes = reading.faults.notes()
    if settled.cut_ns:
        notes += (f"In all {settled.cut_ns / 1e6:.3g} ms were cut where spans overlapped.",)
    if reading.others:
        notes += (f"{reading.others:,} flows, instants and other events are not shown.",)
    return file.profile(
        ChromeFormat.name,
        seconds=_seconds(header, settled),
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
        problems=reading.faults.problems("event"),
        facts=_facts(header),
        notes=notes,
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


def _seconds(header: dict[str, Any], settled: Settled) -> float:
    """When it was recorded, by the clock on the wall; 0 where the trace does not say."""
    base = header.get("baseTimeNanoseconds")
    seconds = (base + settled.base_ns) / 1e9 if type(base) is int and abs(base) < 2**63 else 0.0
    return seconds if _EARLIEST_S < seconds < _LATEST_S else 0.0


def _facts(header: dict[str, Any]) -> dict[str, str]:
    return {
        key: str(header[key])[:_MAX_FACT]
        for key in _FACTS
        if type(header.get(key)) in (int, str) and str(header[key]).isprintable()
    }


def _memory(points: list[tuple[int, int, int]], settled: Settled, tool: str) -> MemoryUse | None:
    if not points:
        return None
    times, resident, heap = zip(*sorted(points), strict=True)
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
    for thread, (pid, tid) in zip(profile.threads, marks, strict=True):
        args: dict[str, Any] = {"name": thread.name}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}
    for frame, thread_index, start, duration in trees.rows_of(spans):
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
    memory = profile.memory or MemoryUse()
    columns = {"resident": memory.resident, "heap": memory.heap}
    for at, time in enumerate(memory.time_ns):
        args = {name: column[at] for name, column in columns.items() if column}
        yield {"ph": "C", "name": "memory", "pid": 0, "tid": 0, "ts": time / 1000, "args": args}


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
