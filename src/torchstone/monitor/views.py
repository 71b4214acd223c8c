"""What monitors have written, added up: for `top`, the dashboard and comparisons.

What changed between two trainings, phase by phase.

The unit is a second of either run (a chunk): its mean step. Seconds of one run are alike and steps
are not independent, so the interval is over blocks of seconds, and the verdict is the careful one
where there are few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torchstone.monitor.journal import (
    MonitorRecord,
    RankRecord,
    SlowRank,
    find_record,
    listed,
    open_record,
    running_records,
    slow_rank,
)
from torchstone.records import UsageError
from torchstone.records.format import format_percent
from torchstone.records.monitoring import (
    PHASE_NAMES,
    PHASES,
    Histogram,
    MonitorEvent,
    Process,
    RequestChunk,
    StepChunk,
    merged,
)

N = TypeVar("N", int, float)
RECENT_S = 10.0
"""What `now` means in `top`."""


@dataclass(frozen=True)
class Totals:
    """Chunks added up: of steps or of requests."""

    seconds: float = 0.0
    steps: int = 0
    wall_ns: int = 0
    phases_ns: dict[str, int | None] = field(default_factory=dict)
    times: Histogram = field(default_factory=Histogram)
    samples: int | None = None
    tokens: int | None = None
    loss: float | None = None
    flops: float | None = None
    """Counted in chunks that know them; `flops_seconds` is their length."""
    flops_seconds: float = 0.0
    device_steps: int = 0
    device_ns: dict[str, int] = field(default_factory=dict)
    gap_ns: int = 0
    gc_ns: int = 0
    cpu_ns: int | None = None
    delay_ns: int | None = None
    errors: int | None = None
    queue: Histogram | None = None
    batches: dict[str, int] = field(default_factory=dict)
    process: Process = field(default_factory=Process)
    """The newest."""

    @property
    def per_second(self) -> float | None:
        """Steps or requests a second."""
        return self.steps / self.seconds if self.seconds > 0 else None

    @property
    def flops_per_second(self) -> float | None:
        """Achieved, by the wall clock; None where FLOPs are not known."""
        known = self.flops is not None and self.flops_seconds > 0
        return self.flops / self.flops_seconds if known and self.flops else None

    def share(self, phase: str) -> float | None:
        """Of the wall time; None where the phase is not known."""
        found = self.phases_ns.get(phase)
        return None if found is None or not self.wall_ns else found / self.wall_ns

    def device_s(self, phase: str) -> float | None:
        """Per step, on the accelerator; None without one."""
        return self.device_ns.get(phase, 0) / self.device_steps / 1e9 if self.device_steps else None

    def phase_s(self, phase: str) -> float | None:
        """Per step."""
        found = self.phases_ns.get(phase)
        return None if found is None or not self.steps else found / self.steps / 1e9


@dataclass(frozen=True)
class RankView:
    """One rank as `top` shows it: all of it, and the last seconds."""

    rank: int
    pid: int
    running: bool
    last_step: int
    whole: Totals
    recent: Totals
    dropped: dict[str, int]


@dataclass(frozen=True)
class MonitorView:
    """One monitor."""

    id: str
    name: str
    kind: str
    state: str
    """`running`, `ended`, `failed`, or `lost` (killed, or the machine went down)."""
    started_s: float
    last_s: float
    device: str
    torch: str
    command: str
    ranks: tuple[RankView, ...]
    events: tuple[tuple[int, MonitorEvent], ...]
    """With the rank of each, in order of time."""
    unseen: tuple[str, ...]
    flops_per_step: float | None = None
    flops_how: str = ""
    dtype: str = ""
    threads: int = 0
    slow_rank: SlowRank | None = None
    reason: str = ""
    damaged: int = 0


def view_of(record: MonitorRecord) -> MonitorView:
    """What a monitor has written so far."""
    head = record.header
    events = [(one.rank, event) for one in record.ranks for event in one.events]
    slow = slow_rank(record)
    ends = [one.end for one in record.ranks if one.end]
    reason = next((end.reason for end in ends if end.reason), "")
    state = "running" if record.running else "failed" if reason else "ended" if ends else "lost"
    return MonitorView(
        record.id,
        head.name if head else record.id,
        head.kind if head else "training",
        state,
        head.started_s if head else 0.0,
        record.last_s,
        head.device if head else "",
        head.torch if head else "",
        head.command if head else "",
        tuple(_rank_view(one) for one in record.ranks),
        tuple(sorted(events, key=lambda one: one[1].time_s)),
        head.unseen if head else (),
        head.flops_per_step if head else None,
        head.flops_how if head else "",
        head.dtype if head else "",
        head.threads if head else 0,
        slow,
        reason,
        sum(one.damaged for one in record.ranks),
    )


def _rank_view(rank: RankRecord) -> RankView:
    head = rank.header
    chunks: Sequence[StepChunk | RequestChunk] = rank.chunks or rank.requests
    last = chunks[-1].time_s if chunks else 0.0
    recent = [one for one in chunks if one.time_s > last - RECENT_S]
    return RankView(
        rank.rank,
        head.pid if head else 0,
        rank.running,
        rank.chunks[-1].last_step if rank.chunks else -1,
        totals(chunks),
        totals(recent),
        dict(chunks[-1].dropped) if chunks else {},
    )


def totals(chunks: Iterable[StepChunk | RequestChunk]) -> Totals:
    """Chunks added up."""
    chunks = list(chunks)
    if not chunks:
        return Totals()
    seconds = sum(one.seconds for one in chunks)
    process, gc_ns = chunks[-1].process, sum(one.process.gc_ns for one in chunks)
    cpu, delay = (
        _known([getattr(one.process, name) for one in chunks]) for name in ("cpu_ns", "delay_ns")
    )
    steps = [one for one in chunks if isinstance(one, StepChunk)]
    if not steps:
        return _of_requests([one for one in chunks if isinstance(one, RequestChunk)])
    kinds = [sums for one in steps for sums in one.kinds.values()]
    return Totals(
        seconds,
        sum(one.steps for one in steps),
        sum(one.wall_ns for one in kinds),
        {name: _known([one.phases_ns.get(name) for one in kinds]) for name in PHASES},
        merged(one.times for one in kinds),
        _known([one.samples for one in steps]),
        _known([one.tokens for one in steps]),
        next((one.loss for one in reversed(steps) if one.loss is not None), None),
        flops=_known([one.flops for one in steps]),
        flops_seconds=sum(one.seconds for one in steps if one.flops is not None),
        device_steps=sum(one.device_steps for one in steps),
        device_ns=_added([one.device_ns for one in steps]),
        gap_ns=sum(one.gap_ns for one in steps),
        gc_ns=gc_ns,
        cpu_ns=cpu,
        delay_ns=delay,
        process=process,
    )


def _of_requests(chunks: Sequence[RequestChunk]) -> Totals:
    queues = [one.queue for one in chunks if one.queue is not None]
    return Totals(
        sum(one.seconds for one in chunks),
        sum(one.requests for one in chunks),
        times=merged(one.latency for one in chunks),
        errors=sum(one.errors for one in chunks),
        queue=merged(queues) if queues else None,
        batches=_added([one.batches for one in chunks]),
        gc_ns=sum(one.process.gc_ns for one in chunks),
        process=chunks[-1].process,
    )


def _added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for one in parts:
        sums.update(one)
    return dict(sums)


def _known(values: Iterable[N | None]) -> N | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


_ENDED: dict[str, tuple[tuple[int, int], MonitorView]] = {}
"""Views of monitors that run no longer, by folder, with the stamp of their files."""


def views(everything: bool = False) -> list[MonitorView]:
    """Monitors of this machine, the newest first: those that run, or all."""
    running = running_records()
    if not everything:
        return [view_of(one) for one in running]
    live = {one.folder: one for one in running}
    return [view_of(live[one.folder]) if one.folder in live else _ended(one) for one in listed()]


def _ended(record: MonitorRecord) -> MonitorView:
    """Read once: nobody writes to it any more."""
    key, stamp = str(record.folder), record.stamp
    known = _ENDED.get(key)
    if known is None or known[0] != stamp:
        known = _ENDED[key] = (stamp, view_of(open_record(record.folder)))
    return known[1]


def find_view(name: str) -> MonitorView:
    """One by its id, its name, or `last`."""
    return view_of(find_record(name))


WARM_UP_CHUNKS = 2
LEAST_CHUNKS = 8
MOST_BLOCKS = 16
"""Seconds in a row are put together into so many, which are then nearly independent."""
LEVEL = 0.95
LEAST_CHANGE = 0.02
"""Within this two trainings take the same time."""


@dataclass(frozen=True)
class PhaseChange:
    """One phase in both, per step."""

    phase: str
    base_s: float | None
    new_s: float | None
    share: float | None
    """Of what the whole step gained or lost."""
    matters: bool


@dataclass(frozen=True)
class Compared:
    """Two trainings."""

    base_id: str
    new_id: str
    ratio: float | None
    """New step over base step."""
    interval: tuple[float, float] | None
    verdict: str
    phases: tuple[PhaseChange, ...]
    blocks: tuple[int, int]
    notes: tuple[str, ...]


def compare(base: MonitorRecord, new: MonitorRecord) -> Compared:
    """B against A."""
    sides = [_steady(one) for one in (base, new)]
    for record, chunks in zip((base, new), sides, strict=True):
        if not chunks:
            raise UsageError(
                f"{record.id} has no second of training after its warm-up.",
                "Compare monitors of trainings that ran for longer.",
            )
    sums = [totals(chunks) for chunks in sides]
    logs = [_blocks(chunks) for chunks in sides]
    ratio, interval = _ratio(logs[0], logs[1])
    phases = _phases(sums[0], sums[1])
    few = min(len(chunks) for chunks in sides) < LEAST_CHUNKS
    return Compared(
        base.id,
        new.id,
        ratio,
        interval,
        _verdict(ratio, interval, phases, few),
        phases,
        (len(sides[0]), len(sides[1])),
        tuple(_notes(sums[0], sums[1], base, new)),
    )


def _steady(record: MonitorRecord) -> list[StepChunk]:
    """Of the first rank, without the warm-up."""
    chunks = record.ranks[0].chunks if record.ranks else []
    return [one for one in chunks[WARM_UP_CHUNKS:] if "train" in one.kinds] or [
        one for one in chunks[WARM_UP_CHUNKS:] if one.steps
    ]


def _blocks(chunks: Sequence[StepChunk]) -> list[float]:
    """The log of the mean step of each block."""
    size = max(1, math.ceil(len(chunks) / MOST_BLOCKS))
    found = []
    for start in range(0, len(chunks), size):
        one = totals(chunks[start : start + size])
        if one.steps:
            found.append(math.log(one.wall_ns / one.steps))
    return found


def _ratio(
    base: Sequence[float], new: Sequence[float]
) -> tuple[float | None, tuple[float, float] | None]:
    """Of the means of blocks, by Welch."""
    if not base or not new:
        return None, None
    change = _mean(new) - _mean(base)
    if min(len(base), len(new)) < 2:
        return math.exp(change), None
    from torchstone.stats.estimators import student_t_quantile

    parts = [_variance(one) / len(one) for one in (base, new)]
    error = sum(parts)
    if not error:
        return math.exp(change), (math.exp(change), math.exp(change))
    freedom = error**2 / sum(
        part**2 / (len(one) - 1) for part, one in zip(parts, (base, new), strict=True)
    )
    half = student_t_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(error)
    return math.exp(change), (math.exp(change - half), math.exp(change + half))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    centre = _mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def _phases(base: Totals, new: Totals) -> tuple[PhaseChange, ...]:
    pairs = {name: (base.phase_s(name), new.phase_s(name)) for name in PHASES}
    known = {n: b - a for n, (a, b) in pairs.items() if a is not None and b is not None}
    total = sum(known.values())
    whole = base.wall_ns / max(1, base.steps) / 1e9
    found = []
    for name, (before, after) in pairs.items():
        share = known[name] / total if name in known and abs(total) > 0.005 * whole else None
        matters = abs(known.get(name, 0.0)) >= LEAST_CHANGE * whole
        found.append(PhaseChange(name, before, after, share, matters))
    return tuple(found)


def _verdict(
    ratio: float | None,
    interval: tuple[float, float] | None,
    phases: Sequence[PhaseChange],
    few: bool,
) -> str:
    if ratio is None:
        return "Cannot tell: one of them has no steps."
    if interval is None or few:
        return f"Cannot tell: fewer than {LEAST_CHUNKS} seconds of one of them were recorded."
    low, high = interval
    if low > 1 - LEAST_CHANGE and high < 1 + LEAST_CHANGE:
        return "B takes the same time as A."
    if low <= 1 <= high:
        return (
            f"Cannot tell: B's step differs from A's by {format_percent(low - 1, signed=True)} "
            f"to {format_percent(high - 1, signed=True)}."
        )
    word = "slower" if ratio > 1 else "faster"
    change = ratio - 1 if ratio > 1 else 1 - ratio
    grown = [one for one in phases if one.share is not None and one.matters and one.share > 0]
    grown.sort(key=lambda one: -(one.share or 0.0))
    why = f"; most of it in {PHASE_NAMES[grown[0].phase]}" if grown else ""
    return f"B is {format_percent(change)} {word} than A{why}."


def _notes(base: Totals, new: Totals, a: MonitorRecord, b: MonitorRecord) -> list[str]:
    notes = []
    heads = a.header, b.header
    if heads[0] and heads[1]:
        for name in ("torch", "device", "host"):
            pair = [getattr(head, name) for head in heads]
            if pair[0] != pair[1]:
                notes.append(f"Another {name}: {pair[0]} and {pair[1]}.")
    delays = [one.delay_ns / one.wall_ns for one in (base, new) if one.delay_ns and one.wall_ns]
    if len(delays) == 2 and abs(delays[1] - delays[0]) >= LEAST_CHANGE:
        notes.append(
            f"The training thread waited for a core {format_percent(delays[0])} of the time in A "
            f"and {format_percent(delays[1])} in B: another process, not the training."
        )
    sizes = [one.samples / one.steps for one in (base, new) if one.samples and one.steps]
    if len(sizes) == 2 and abs(sizes[1] / sizes[0] - 1) >= LEAST_CHANGE:
        notes.append(f"Another batch size: {sizes[0]:.4g} and {sizes[1]:.4g} samples a step.")
    return notes
