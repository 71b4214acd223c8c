"""Spans from anywhere, put in order and cut so that those of a thread nest and never overlap."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from torchstone.profile.formats.faults import Faults, brief
from torchstone.records import Frame, Spans

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.int64]

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


def _column() -> array[int]:
    return array("q")


@dataclass
class Columns:
    """Spans in any order, in nanoseconds from anywhere."""

    frames: array[int] = field(default_factory=_column)
    threads: array[int] = field(default_factory=_column)
    starts: array[int] = field(default_factory=_column)
    durations: array[int] = field(default_factory=_column)
    depths: array[int] = field(default_factory=lambda: array("i"))

    def add(self, frame: int, thread: int, start: int, duration: int, depth: int = 0) -> None:
        """One more span. `depth` says which of two that begin and end together is within the other;
        those of one depth are nested as they were added."""
        self.frames.append(frame)
        self.threads.append(thread)
        self.starts.append(start)
        self.durations.append(duration)
        self.depths.append(depth)

    def __len__(self) -> int:
        return len(self.frames)


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

    names = [frame.name for frame in known]
    if not len(columns):
        return Settled(Spans((), (), (), ()), base_ns or 0, 0, 0)
    starts, durations, threads, frames = (
        np.array(column, dtype=np.int64)
        for column in (columns.starts, columns.durations, columns.threads, columns.frames)
    )
    keep = _without_zeros(starts, durations, frames, names, faults)
    depths = np.array(columns.depths, dtype=np.int32)
    order = np.lexsort((depths[keep], -durations[keep], starts[keep], threads[keep]))
    order = keep[order]
    base = int(starts[keep].min()) if base_ns is None else base_ns
    _look_for_silence(starts[keep], durations[keep], faults)
    start_list = (starts[order] - base).tolist()
    thread_list, frame_list = threads[order].tolist(), frames[order].tolist()
    ends = (starts[order] - base + durations[order]).tolist()
    wall = max(ends)
    cut = _cut_overlaps(start_list, ends, thread_list, frame_list, known, faults)
    spans = Spans(
        frames=_shared(frame_list),
        threads=_shared(thread_list),
        start_ns=tuple(start_list),
        duration_ns=tuple(end - start for start, end in zip(start_list, ends, strict=True)),
    )
    return Settled(spans, base, wall, cut)


def _shared(numbers: list[int]) -> tuple[int, ...]:
    """The same numbers, each an object only once."""
    known: dict[int, int] = {}
    return tuple([known.setdefault(number, number) for number in numbers])


def _without_zeros(
    starts: Numbers, durations: Numbers, frames: Numbers, names: list[str], faults: Faults
) -> Numbers:
    """Places of the spans whose time stamp is not a zero that stands for no time at all."""
    import numpy as np

    zero = starts == 0
    others = starts[~zero]
    if not zero.any() or not len(others):
        return np.arange(len(starts))
    nearest = int(np.abs(others).min())
    lost = zero & (durations < (1 if nearest < ZERO_SPAN_GAP_NS else nearest))
    if nearest < ZERO_GAP_NS:
        return np.arange(len(starts))
    if lost.any():
        example = names[int(frames[np.flatnonzero(lost)[0]])]
        faults.add("zero_time", brief(example), int(lost.sum()))
    return np.flatnonzero(~lost)


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
