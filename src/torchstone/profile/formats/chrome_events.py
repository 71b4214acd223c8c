"""Events of a Chrome trace, sorted into spans, threads, memory and counters."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from torchstone.profile.formats.base import (
    MAX_NAME,
    Faults,
    FrameTable,
    brief,
    clean,
    guess_kind,
    line_of,
    split_place,
    without_address,
)
from torchstone.records import Counter, Frame, Spans, Thread, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.int64]


# Spans from anywhere, put in order and cut so that those of a thread nest and never overlap.


ROUNDING_NS = 1_000
"""Time stamps are written in microseconds, and some tools round them: an overlap of up to this is
taken for rounding."""
ZERO_GAP_NS = 1_000_000_000
ZERO_SPAN_GAP_NS = 3600 * ZERO_GAP_NS
"""A time stamp of zero, when all others are farther away than this, is none. Clocks begin with
the machine or in 1970; what begins with the recording has its next event soon. The second is for
spans that at least have a duration."""
_MAKING_MARKS = ({"annotation", "python"}, {"annotation", "native"})
"""A stretch that a program marks begins within the call that opens it and ends within the one that
closes it, so these two always overlap, and nothing is wrong with the clock. An op that reaches over
the end of a mark, or one call over another's, is a fault."""
SILENT_SHARE = 0.2
"""Of the whole. A stretch this long in which no thread does anything is worth a word."""


class Columns:
    """Spans in any order, in nanoseconds from anywhere."""

    def __init__(self) -> None:
        self._rows = array("q")

    def add(self, frame: int, thread: int, start: int, duration: int, depth: int = 0) -> None:
        """One more span. `depth` says which of two that begin and end together is within the other;
        those of one depth are nested as they were added."""
        self._rows.extend((frame, thread, start, duration, depth))

    def __len__(self) -> int:
        return len(self._rows) // 5

    @property
    def durations(self) -> array[int]:
        """Of all spans."""
        return self._rows[3::5]

    def numbers(self) -> Numbers:
        """Frames, threads, starts, durations and depths, a row each."""
        import numpy as np

        return np.array(self._rows, dtype=np.int64).reshape(-1, 5).T


@dataclass(frozen=True)
class Settled:
    """Spans in order, and the time that their zero stands for."""

    spans: Spans
    base_ns: int
    wall_ns: int
    cut_ns: int
    """What spans lost because they overlapped."""


def settle(
    columns: Columns, known: Sequence[Frame], faults: Faults, base_ns: int | None
) -> Settled:
    """Order the spans; where two overlap, cut the one that loses less. `known` are the frames.

    Time begins with the first span, or at `base_ns`.
    """
    import numpy as np

    if not len(columns):
        return Settled(Spans((), (), (), ()), base_ns or 0, 0, 0)
    rows = _without_zeros(columns.numbers(), known, faults)
    frames, threads, starts, durations, depths = rows
    base = int(starts.min()) if base_ns is None else base_ns
    _look_for_silence(starts, durations, faults)
    order = np.lexsort((depths, -durations, starts, threads))
    frame_list, thread_list = frames[order].tolist(), threads[order].tolist()
    start_list = (starts[order] - base).tolist()
    ends = (starts[order] - base + durations[order]).tolist()
    wall = max(ends)
    cut = _cut_overlaps(start_list, ends, thread_list, frame_list, known, faults)
    lengths = tuple(end - start for start, end in zip(start_list, ends, strict=True))
    spans = Spans(_shared(frame_list), _shared(thread_list), tuple(start_list), lengths)
    return Settled(spans, base, wall, cut)


def _shared(numbers: list[int]) -> tuple[int, ...]:
    """The same numbers, each an object only once."""
    known: dict[int, int] = {}
    return tuple([known.setdefault(number, number) for number in numbers])


def _without_zeros(rows: Numbers, known: Sequence[Frame], faults: Faults) -> Numbers:
    """The spans whose time stamp is not a zero that stands for no time at all."""
    import numpy as np

    starts, durations = rows[2], rows[3]
    zero = starts == 0
    if not zero.any() or zero.all():
        return rows
    nearest = int(np.abs(starts[~zero]).min())
    if nearest < ZERO_GAP_NS:
        return rows
    lost = zero & (durations < (1 if nearest < ZERO_SPAN_GAP_NS else nearest))
    if lost.any():
        example = known[int(rows[0][lost][0])].name
        faults.add("zero_time", brief(example), int(lost.sum()))
    kept: Numbers = rows[:, ~lost]
    return kept


def _look_for_silence(starts: Numbers, durations: Numbers, faults: Faults) -> None:
    """Say where nothing at all was recorded for long."""
    import numpy as np

    order = np.argsort(starts, kind="stable")
    begins, ends = starts[order], np.maximum.accumulate((starts + durations)[order])
    if len(begins) < 2:
        return
    gaps = begins[1:] - ends[:-1]
    where = int(gaps.argmax())
    whole = int(ends[-1]) - int(begins[0])
    if gaps[where] > SILENT_SHARE * whole:
        at = (int(ends[where]) - int(begins[0])) / 1e9
        faults.say(
            f"Nothing was recorded on any thread for {int(gaps[where]) / 1e9:.3g} s of "
            f"{whole / 1e9:.3g} s, from {at:.3g} s on: events may be missing."
        )


def _cut_overlaps(
    starts: list[int],
    ends: list[int],
    threads: list[int],
    frames: list[int],
    known: Sequence[Frame],
    faults: Faults,
) -> int:
    """Change `ends` so that spans nest; gives the nanoseconds that this took away."""
    open_spans: list[int] = []
    cut: dict[int, tuple[int, str]] = {}  # where a span that is open truly ends, and why it was cut
    current, lost = -1, 0
    for i, start in enumerate(starts):
        if threads[i] != current:
            current = threads[i]
            open_spans.clear()
            cut.clear()
        while open_spans and ends[open_spans[-1]] <= start:
            open_spans.pop()
        while open_spans and ends[i] > ends[open_spans[-1]]:
            outer = open_spans[-1]
            over, inside = ends[i] - ends[outer], ends[outer] - start
            longer = ends[i] - start > ends[outer] - starts[outer]
            one, other = known[frames[i]], known[frames[outer]]
            truly, why = cut.get(outer, (0, ""))
            if min(over, inside) <= ROUNDING_NS:
                kind = "rounding"
            elif {one.kind, other.kind} in _MAKING_MARKS:
                kind = "mark"
            elif ends[i] <= truly:
                kind = why  # it is within the other, and is only cut where that was
            else:
                kind = "longer" if longer else "overlap"
            faults.add(kind, f"{brief(one.name)} in {brief(other.name)}")
            lost += min(over, inside)
            if inside < over:
                ends[outer] = start
                open_spans.pop()
            else:
                cut[i] = (max(ends[i], cut.get(i, (0, ""))[0]), kind)
                ends[i] = ends[outer]
        open_spans.append(i)
    return lost


MAX_EVENTS = 6_000_000
"""Of every kind. Behind them nothing is read: the profile says so."""
MAX_SPANS = 2_000_000
"""A trace of 100 MB has about 350,000."""
MAX_COUNTERS = 1_000
MAX_THREADS = 100_000
MAX_POINTS = 1_000_000
"""Of memory over time."""
MAX_TIME_US = 3e15
"""Microseconds either side of zero: 95 years. Differences and sums stay within 63 bits as
nanoseconds."""
STEP = "ProfilerStep#"

KINDS = {
    "cpu_op": "op",
    "kernel": "kernel",
    "gpu_memcpy": "kernel",
    "gpu_memset": "kernel",
    "user_annotation": "annotation",
    "gpu_user_annotation": "annotation",
    "python_function": "python",
    "cuda_runtime": "native",
    "cuda_driver": "native",
    "overhead": "native",
    "native": "native",
    "gc": "gc",
    "wait": "wait",
    "root": "root",
}
"""Kinds of frames by an event's category; the last four are our own words."""
CATEGORIES = {"python": "python_function", "op": "cpu_op", "annotation": "user_annotation"}
"""The other way round, where the word is another."""
_WINDOW = "Trace"
"""Category of torch's span over its whole recording; it says no more than the others together."""
_MEMORY = "[memory]"
_CPU = 0
"""torch's number for the device of an allocation."""


def to_ns(microseconds: Any) -> int | None:
    """Nanoseconds; None for what is no time."""
    if type(microseconds) not in (int, float) or not -MAX_TIME_US < microseconds < MAX_TIME_US:
        return None
    time: int = round(microseconds * 1000)
    return time


class TraceReading:
    """Takes events one by one."""

    def __init__(self) -> None:
        self.table = FrameTable()
        self.columns = Columns()
        self.faults = Faults()
        self.memory: list[tuple[int, int, int]] = []
        """Over time: nanoseconds, resident bytes, bytes of the heap."""
        self.categories: set[str] = set()
        self.steps: dict[int, set[str]] = {}
        self.events = 0
        self.others = 0
        self._frames: dict[tuple[Any, ...], int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}
        self._names: dict[tuple[Any, Any], str] = {}
        self._processes: dict[Any, str] = {}
        self._open: dict[int, list[tuple[int, int, str]]] = {}
        """By thread, what has begun and has not ended: frame, start and name."""
        self._last: dict[int, int] = {}
        """By thread, the last time stamp since something was open."""
        self._counters: dict[tuple[Any, str], tuple[int, float, int]] = {}
        """Of each its latest time and value, and how many there were."""
        self._indexes = [0, -1, 0]  # lowest, highest, how many of torch's event numbers
        self._take: dict[Any, Callable[[dict[str, Any]], None]] = {
            "X": self._whole,
            "B": self._begin,
            "E": self._end,
            "M": self._metadata,
            "C": self._counter,
            "i": self._instant,
            "I": self._instant,
        }

    @property
    def full(self) -> bool:
        """Whether no more is to be read."""
        return self.events >= MAX_EVENTS or len(self.columns) >= MAX_SPANS

    def add(self, event: Any) -> None:
        """One event, whatever it is."""
        self.events += 1
        if type(event) is not dict:
            self.faults.add("no_event", f"event {self.events}")
            return
        phase = event.get("ph")
        take = self._take.get(phase) if type(phase) is str else None
        if take is None:
            self.others += 1
        else:
            take(event)

    def finish(self) -> None:
        """End what has begun and never ended; look for numbers that are missing."""
        for thread, stack in self._open.items():
            for depth, (frame, start, name) in enumerate(stack):
                self.faults.add("no_end", brief(name))
                length = max(0, self._last[thread] - start)
                self.columns.add(frame, thread, start, length, depth)
            stack.clear()
        low, high, count = self._indexes
        if count and high - low + 1 > count:
            missing = high - low + 1 - count
            self.faults.say(
                f"{missing:,} events are missing: the events' own numbers have gaps "
                f"({count:,} of {high - low + 1:,} are there)."
            )

    def threads(self, critical: int) -> tuple[Thread, ...]:
        """The threads, by index."""
        several = len({process for process, _ in self._threads}) > 1
        found = []
        for index, (process, thread) in enumerate(self._threads):
            name = self._names.get((process, thread))
            name = name or (thread if isinstance(thread, str) else f"thread {thread}")
            if several:
                name = f"{name} ({self._processes.get(process) or process})"
            found.append(Thread(clean(name), _number(thread), _number(process), index == critical))
        return tuple(found)

    def counters(self) -> tuple[Counter, ...]:
        """The last value of each, by process where there are several."""
        processes = {process for process, _ in self._counters}
        several = len(processes) > 1
        names = [self._processes[one] for one in processes if self._processes.get(one)]
        alike = len(set(names)) < len(names)
        found = []
        for (process, name), (_, value, times) in self._counters.items():
            known = self._processes.get(process)
            named = f"{known} {process}" if known and alike else known or process
            whose = f" ({named})" if several else ""
            note = f"the last of {times:,} values" if times > 1 else ""
            found.append(Counter(clean(name + whose), value, note=note))
        return tuple(found)

    def _thread(self, event: dict[str, Any]) -> int | None:
        key = (event.get("pid", 0), event.get("tid", 0))
        found = self._threads.get(key) if _is_mark(key[0]) and _is_mark(key[1]) else -1
        if found is None:
            found = self._threads[key] = len(self._threads)
            if found >= MAX_THREADS:
                raise UsageError(
                    f"The trace has more than {MAX_THREADS:,} threads.",
                    "Record less: fewer steps, or a shorter time.",
                )
        return found if found >= 0 else None

    def _place(self, event: dict[str, Any]) -> tuple[int, int] | None:
        """Frame and thread; None, and a word about it, where the event does not say them."""
        name, category, args = event.get("name"), event.get("cat", ""), event.get("args")
        thread = self._thread(event)
        if thread is None or type(name) is not str or type(category) is not str:
            self.faults.add("no_event", f"event {self.events}")
            return None
        name, file, line = name[: MAX_NAME + 1], "", 0
        if type(args) is dict:
            self._number_event(args.get("Ev Idx"))
            place = args.get("filename") or args.get("file")
            if type(place) is str:
                file, line = place[: MAX_NAME + 1], line_of(args.get("line"))
        if name.startswith(STEP) and category == "user_annotation":
            self.steps.setdefault(thread, set()).add(name)
            name = STEP[:-1]
        key = (category, name, file, line)
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = self._add_frame(category, name, file, line)
        return frame, thread

    def _add_frame(self, category: str, name: str, file: str, line: int) -> int:
        self.categories.add(category)
        if not file:
            name, file, line = split_place(without_address(clean(name)))
        kind = KINDS.get(category, "python")
        if kind == "python":
            kind = guess_kind(name, file)
        return self.table.add(name, file, line, kind)

    def _number_event(self, number: Any) -> None:
        if type(number) is int and 0 <= number < MAX_TIME_US:
            low, high, count = self._indexes
            self._indexes = [min(low, number) if count else number, max(high, number), count + 1]

    def _whole(self, event: dict[str, Any]) -> None:
        if event.get("cat") == _WINDOW:
            return
        place = self._place(event)
        if place is None:
            return
        start, duration = to_ns(event.get("ts")), to_ns(event.get("dur"))
        if start is None or duration is None:
            self.faults.add("no_time", brief(event["name"]))
        elif duration < 0:
            self.faults.add("negative", brief(event["name"]))
        else:
            self.columns.add(*place, start, duration)

    def _begin(self, event: dict[str, Any]) -> None:
        place, start = self._place(event), to_ns(event.get("ts"))
        if place is None or start is None:
            if place:
                self.faults.add("no_time", brief(event["name"]))
            return
        frame, thread = place
        stack = self._open.setdefault(thread, [])
        self._last[thread] = max(self._last[thread], start) if stack else start
        stack.append((frame, start, event["name"]))

    def _end(self, event: dict[str, Any]) -> None:
        thread, end = self._thread(event), to_ns(event.get("ts"))
        if thread is None or end is None:
            self.faults.add("no_time", f"event {self.events}")
            return
        stack = self._open.get(thread)
        if not stack:
            self.faults.add("end_alone", f"event {self.events}")
            return
        frame, start, name = stack.pop()
        self._last[thread] = max(self._last[thread], end)
        if event.get("name", name) != name:
            self.faults.add("unnamed_end", brief(name))
        if end < start:
            self.faults.add("negative", brief(name))
        else:
            self.columns.add(frame, thread, start, end - start, len(stack))

    def _metadata(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        name = args.get("name") if type(args) is dict else None
        process, thread = event.get("pid", 0), event.get("tid", 0)
        if type(name) is not str or not (_is_mark(process) and _is_mark(thread)):
            return
        if len(self._names) + len(self._processes) > MAX_THREADS:
            return
        name = name[: MAX_NAME + 1]
        if event.get("name") == "thread_name":
            self._names[process, thread] = name
        elif event.get("name") == "process_name":
            self._processes[process] = name

    def _counter(self, event: dict[str, Any]) -> None:
        name, args, time = event.get("name"), event.get("args"), to_ns(event.get("ts"))
        if type(name) is not str or type(args) is not dict or time is None:
            self.faults.add("no_event", f"event {self.events}")
            return
        if name == "memory" and set(args) & {"resident", "heap"}:
            self._memory_point(time, args.get("resident"), args.get("heap"))
            return
        process = event.get("pid", 0)
        process = process if _is_mark(process) else 0
        for part, value in args.items():
            if type(value) in (int, float) and -MAX_TIME_US < value < MAX_TIME_US:
                key = (process, clean(name if len(args) == 1 else f"{name}: {part}"))
                if key not in self._counters and len(self._counters) >= MAX_COUNTERS:
                    continue
                last, known, times = self._counters.get(key, (time, float(value), 0))
                newest = (time, float(value)) if time >= last else (last, known)
                self._counters[key] = (*newest, times + 1)

    def _instant(self, event: dict[str, Any]) -> None:
        args, time = event.get("args"), to_ns(event.get("ts"))
        if type(args) is dict:
            self._number_event(args.get("Ev Idx"))
            if (
                event.get("name") == _MEMORY
                and time is not None
                and args.get("Device Type") == _CPU
            ):
                self._memory_point(time, None, args.get("Total Allocated"))
                return
        self.others += 1

    def _memory_point(self, time: int, resident: Any, heap: Any) -> None:
        if len(self.memory) >= MAX_POINTS:
            self.others += 1
            return
        self.memory.append((time, _bytes(resident), _bytes(heap)))


def _is_mark(value: Any) -> bool:
    """Whether it can name a process or a thread: most tools give numbers, some give names."""
    return type(value) is int or (type(value) is str and len(value) <= MAX_NAME)


def _bytes(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _number(value: Any) -> int:
    """A thread's or process's number; 0 for a name."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else 0
    return value if -(2**63) <= value < 2**63 else 0
