"""Adds steps up into chunks, and turns what the detectors find into events. No thread, no clock: it
is handed everything, so that a day of training can be played to it in a second."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from torchstone.monitor.clock import Span, StepRow
from torchstone.monitor.detect import (
    BLOCK_NS,
    BLOCK_STEPS,
    CAUSE_SHARE,
    COLUMNS,
    Block,
    ContractWatch,
    DriftTest,
    Floats,
    LeakTest,
    Shares,
    Usual,
)
from torchstone.records.format import count, format_bytes, format_percent, format_seconds
from torchstone.records.monitoring import (
    LOG_GAMMA,
    PHASE_NAMES,
    Histogram,
    KindSums,
    MonitorEvent,
    MonitorLevel,
    Process,
    StepChunk,
    StepKind,
)

WARM_UP_STEPS = 20
"""The first steps start workers, fill allocators and compile; nothing is inferred from them."""
WINDOW_STEPS = 100
WINDOW_NS, WINDOW_LEAST = 30_000_000_000, 20
"""Shares are looked at over so many steps; where steps are long, over so much time and at least so
many of them."""
LIMITS = {"data": 0.2, "gc": 0.05, "contention": 0.1, "compile": 0.1, "checkpoint": 0.2}
"""Shares of the wall time from which they are worth a sentence."""
BY_STEP = ("data", "gc", "compile", "checkpoint")
"""Those that are known of each step."""
MOST_EVENTS = 1000
MOST_READINGS = 4096
MOST_OF_A_KIND = 20
"""Events of one kind that are written; the others are counted."""
ROW = {name: place for place, name in enumerate(StepRow._fields)}
PHASE_ROWS = [ROW[name] for name in COLUMNS]
CAUSES = {
    "gc": (
        "garbage collection",
        "Collect less often: gc.freeze() after the set-up, gc.set_threshold().",
    ),
    "compile": ("recompilation", "Mark what varies as dynamic, or pad batches to a few shapes."),
    "checkpoint": ("saving a checkpoint", "Save less often, or in a thread of its own."),
    "contention": (
        "waiting for a core that another process holds",
        "Not this program: stop the other process, or run fewer threads.",
    ),
    "data": (
        "waiting for data",
        "More workers (num_workers), prefetch_factor, or a quicker dataset.",
    ),
}


@dataclass
class _Window:
    """What shares are computed over."""

    steps: int = 0
    wall: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)
    longest_wait: float = 0.0
    """For data: a new epoch starts its workers again, which is one long wait and no starvation."""
    first_step: int = 0
    compiles: int = 0
    rows: list[Floats] = field(default_factory=list)
    """Columns: step, wall, and what was lost to each of `BY_STEP`."""

    def since(self, name: str) -> int:
        """The step from which on it is above its limit: the window may have begun before."""
        if name not in BY_STEP:
            return self.first_step
        rows = np.concatenate(self.rows)
        excess = rows[:, 2 + BY_STEP.index(name)] - LIMITS[name] * rows[:, 1]
        latest_first = np.cumsum(excess[::-1])
        return int(rows[len(rows) - 1 - int(np.argmax(latest_first)), 0])


@dataclass
class _Kind:
    """What is known of one kind of step."""

    usual: Usual = field(default_factory=Usual)
    drift: DriftTest = field(default_factory=DriftTest)
    rows: list[Floats] = field(default_factory=list)
    """Of the block that is being filled."""
    steps: int = 0
    bimodal: bool = False


@dataclass
class _Sums:
    steps: int = 0
    wall: int = 0
    phases: Floats = field(default_factory=lambda: np.zeros(len(COLUMNS)))
    unknown: set[str] = field(default_factory=set)
    counts: Counter[int] = field(default_factory=Counter)


class Collector:
    """See the module. `say` is told of each event."""

    def __init__(self, say: Callable[[MonitorEvent], None], leak_samples: int = 16) -> None:
        self._say = say
        self._kinds = {kind: _Kind() for kind in StepKind}
        self._shares = Shares(LIMITS)
        self._leak = LeakTest(leak_samples)
        self.contract = ContractWatch(self.event)
        self._window = _Window()
        self._said: Counter[str] = Counter()
        self.events_dropped = 0
        self.flops: tuple[float, float | None] | None = None
        """Of a step, and the log of the elements in the batch that it was counted for: a larger
        batch is taken to need more in proportion. None: every step needs as many."""
        self.loss_scale = 1.0
        """What a gradient scaler has multiplied the loss with."""
        self._slow: Counter[str] = Counter()
        self._scheduler: list[tuple[int, int, int]] = []
        self._probe = 0.0
        self.last_step = -1
        self.lost_steps = 0
        self.seen_optimizer = self.seen_backward = False
        self._now_s = 0.0
        self._new_chunk()

    def _new_chunk(self) -> None:
        self._sums: dict[StepKind, _Sums] = {}
        self._gap = 0
        self._samples = self._tokens = 0
        self._flops: float | None = None
        self._device_steps, self._device = 0, Counter[str]()
        self._sized = False
        self._first: int | None = None
        self._loss: float | None = None
        self._gc = (0, 0)

    def event(
        self,
        step: int,
        what: str,
        text: str,
        level: MonitorLevel = MonitorLevel.NOTE,
        cause: str = "",
        remedy: str = "",
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Say it, unless it was said often enough."""
        self._said[what] += 1
        if self._said[what] > MOST_OF_A_KIND or self._said.total() > MOST_EVENTS:
            self.events_dropped += 1
            return
        self._say(MonitorEvent(self._now_s, step, what, level, text, cause, remedy, figures or {}))

    # What happened since the last time.

    def add(
        self,
        rows: Sequence[Sequence[float]],
        now_s: float,
        spans: Iterable[Span] = (),
        scheduler: Iterable[tuple[int, bytes]] = (),
        signatures: Mapping[Any, int] | None = None,
        process: Process | None = None,
    ) -> None:
        """Take steps in, with what happened beside them."""
        self._now_s = now_s
        spans = list(spans)
        self._scheduler = [*self._scheduler[-MOST_READINGS:], *_counters(scheduler)]
        if process is not None and process.probe_ns:
            self._probe = float(process.probe_ns)
        if rows:
            width = len(ROW)
            table = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width)
            self._add_table(table.reshape(-1, width), spans, signatures or {})
        if process is not None and process.rss_bytes and self.last_step >= WARM_UP_STEPS:
            self._look_for_leak(float(process.rss_bytes))

    def add_device(self, steps: int, phases: Mapping[str, int]) -> None:
        """What an accelerator has finished since the last time, in nanoseconds by phase."""
        self._device_steps += steps
        self._device.update(phases)

    def _add_table(self, table: Floats, spans: list[Span], signatures: Mapping[Any, int]) -> None:
        steps = table[:, ROW["step"]]
        if self.last_step >= 0:
            self.lost_steps += max(0, int(steps[0]) - self.last_step - 1)
        self._first = int(steps[0]) if self._first is None else self._first
        self.last_step = int(steps[-1])
        self._gap += int(table[:, ROW["gap"]].sum())
        losses = table[np.isfinite(table[:, ROW["loss"]]), ROW["loss"]]
        self._loss = float(losses[-1]) / self.loss_scale if len(losses) else self._loss
        backwards, optimizers = table[:, ROW["backwards"]] > 0, table[:, ROW["optimizers"]] > 0
        self.seen_backward |= bool(backwards.any())
        self.seen_optimizer |= bool(optimizers.any())
        self.contract.take_signatures(signatures)
        sizes = self._count_samples(table)
        self._count_flops(sizes[backwards])
        masks = {
            StepKind.TRAIN: backwards & optimizers,
            StepKind.ACCUMULATE: backwards & ~optimizers,
            StepKind.FORWARD: ~backwards,
        }
        for kind, mask in masks.items():
            if mask.any():
                part = table[mask]
                self.contract.look(kind, part)
                self._add_kind(kind, part, spans, sizes[mask])
        self._look_at_shares(table, spans)
        began = table[0, ROW["end"]] - np.maximum(table[0, PHASE_ROWS], 0.0).sum()
        pauses = [span for span in spans if span.kind == "gc" and span.end > began]
        self._gc = (
            self._gc[0] + len(pauses),
            self._gc[1] + sum(span.end - span.begin for span in pauses),
        )

    def _count_samples(self, table: Floats) -> Floats:
        """Samples and tokens by the batches' shapes; the log of each batch's elements."""
        sizes = np.zeros(len(table))
        signatures = table[:, ROW["signature"]]
        for signature in set(signatures.tolist()):
            found = self.contract.size_of(int(signature))
            if found is None:
                continue
            these = signatures == signature
            steps = int(these.sum())
            self._sized = True
            self._samples += found.samples * steps
            self._tokens += found.tokens * steps
            sizes[these] = found.log_elements
        return sizes

    def _count_flops(self, sizes: Floats) -> None:
        if self.flops is None or not len(sizes):
            return
        per_step, counted_for = self.flops
        ratios = np.ones(len(sizes))
        if counted_for is not None:
            ratios = np.where(sizes > 0, np.exp(sizes - counted_for), 1.0)
        self._flops = (self._flops or 0.0) + per_step * float(ratios.sum())

    def _add_kind(self, kind: StepKind, part: Floats, spans: list[Span], sizes: Floats) -> None:
        phases = np.maximum(part[:, PHASE_ROWS], 0.0)
        walls = phases.sum(axis=1)
        sums = self._sums.setdefault(kind, _Sums())
        sums.steps += len(part)
        sums.wall += int(walls.sum())
        sums.phases += phases.sum(axis=0)
        for name in ("data", "collective"):
            if (part[:, ROW[name]] < 0).any():
                sums.unknown.add(name)
        buckets = np.ceil(np.log(np.maximum(walls, 1.0) / 1e9) / LOG_GAMMA).astype(int)
        sums.counts.update(buckets.tolist())
        self._detect(self._kinds[kind], part, walls, phases, spans, sizes)

    def _detect(
        self,
        known: _Kind,
        part: Floats,
        walls: Floats,
        phases: Floats,
        spans: list[Span],
        sizes: Floats,
    ) -> None:
        known.steps += len(part)
        skip = max(0, WARM_UP_STEPS - (known.steps - len(part)))
        usable = part[skip:, ROW["profiled"]] == 0
        part, walls, phases, sizes = (one[skip:][usable] for one in (part, walls, phases, sizes))
        if not len(part):
            return
        for place in known.usual.slow(walls):
            self._explain_slow(known.usual, part[place], walls[place], phases[place], spans)
        known.usual.learn(walls, phases)
        gc_ns = _paused(spans, part[:, ROW["end"]], walls)
        extra = np.column_stack(
            [part[:, ROW["step"]], part[:, ROW["end"]], walls, phases, gc_ns, sizes]
        )
        known.rows.append(extra)
        self._fill_blocks(known)
        modes = None if known.bimodal else known.usual.modes()
        if modes is not None:
            known.bimodal = True
            self._two_modes(int(part[-1, ROW["step"]]), modes)

    def _fill_blocks(self, known: _Kind) -> None:
        rows = np.concatenate(known.rows)
        while len(rows) >= BLOCK_STEPS:
            total = np.cumsum(rows[:, 2])
            size = max(BLOCK_STEPS, int(np.searchsorted(total, BLOCK_NS)) + 1)
            if len(rows) < size:
                break
            block, rows = rows[:size], rows[size:]
            found = known.drift.add(self._block(block))
            if found is not None:
                self._drifted(int(block[-1, 0]), found)
        known.rows = [rows] if len(rows) else []

    def _block(self, rows: Floats) -> Block:
        phases = rows[:, 3 : 3 + len(COLUMNS)]
        began = rows[0, 1] - rows[0, 2]
        return Block(
            int(rows[0, 0]),
            float(np.median(np.log(np.maximum(rows[:, 2], 1.0)))),
            phases.mean(axis=0),
            float(rows[:, 3 + len(COLUMNS)].mean()),
            self._delay(began, rows[-1, 1]) / len(rows),
            self._probe,
            float(rows[:, 4 + len(COLUMNS)].mean()),
        )

    def _delay(self, begin: float, end: float) -> float:
        """How long the training thread waited for a core between these, by the scheduler."""
        first = bisect_left(self._scheduler, begin, key=itemgetter(0))
        last = bisect_right(self._scheduler, end, key=itemgetter(0)) - 1
        return float(self._scheduler[last][2] - self._scheduler[first][2]) if last > first else 0.0

    def _delay_around(self, begin: float, end: float) -> float:
        """The same of one step: from the last reading before it to the first after it."""
        before = bisect_right(self._scheduler, begin, key=itemgetter(0)) - 1
        after = bisect_left(self._scheduler, end, key=itemgetter(0))
        known = before >= 0 and after < len(self._scheduler)
        return float(self._scheduler[after][2] - self._scheduler[before][2]) if known else 0.0

    @staticmethod
    def _overlap(spans: Iterable[Span], kind: str, row: Floats, wall: float) -> float:
        end = row[ROW["end"]]
        begin = end - wall
        return float(
            sum(
                max(0.0, min(end, span.end) - max(begin, span.begin))
                for span in spans
                if span.kind == kind
            )
        )

    # Events.

    def _explain_slow(
        self, usual: Usual, row: Floats, wall: float, phases: Floats, spans: list[Span]
    ) -> None:
        excess = wall - usual.median
        cause = ""
        for kind in ("compile", "gc", "checkpoint"):
            if self._overlap(spans, kind, row, wall) >= CAUSE_SHARE * excess:
                cause = kind
                break
        end = row[ROW["end"]]
        if not cause and self._delay_around(end - wall, end) >= CAUSE_SHARE * excess:
            cause = "contention"
        if not cause:
            cause = COLUMNS[int(np.argmax(phases - usual.phases))]
        self._slow[cause] += 1
        self._window.lost["slow:" + cause] += int(excess)
        if self._slow[cause] == 1:
            words, remedy = CAUSES.get(cause, (PHASE_NAMES.get(cause, cause), ""))
            step = int(row[ROW["step"]])
            text = (
                f"Step {step} took {format_seconds(wall / 1e9, 3)}, "
                f"{wall / usual.median:.1f} times the usual: {words}."
            )
            figures = {"wall_s": wall / 1e9, "usual_s": usual.median / 1e9}
            self.event(step, "slow-step", text, cause=cause, remedy=remedy, figures=figures)

    def _two_modes(self, step: int, modes: tuple[float, float, float]) -> None:
        low, high, share = modes
        text = (
            f"Steps take either {format_seconds(low / 1e9, 3)} or {format_seconds(high / 1e9, 3)} "
            f"({format_percent(share)} of them)."
        )
        figures = {"low_s": low / 1e9, "high_s": high / 1e9, "share": share}
        self.event(step, "two-modes", text, figures=figures)

    def _drifted(self, step: int, found: Any) -> None:
        kind = "growing" if found.gradual else "slower"
        text = (
            f"{format_percent(found.ratio - 1)} slower since step {found.since_step:,}"
            f"{', and growing' if kind == 'growing' else ''}: {found.detail}."
        )
        level = MonitorLevel.WARN if found.ours else MonitorLevel.NOTE
        figures = {
            "since_step": float(found.since_step),
            "ratio": found.ratio,
            "before_s": found.before_s,
            "after_s": found.after_s,
        }
        self.event(step, "drift", text, level, found.cause, "", figures)

    def _look_for_leak(self, rss: float) -> None:
        found = self._leak.add(self.last_step, rss)
        if found is None:
            return
        text = (
            f"Memory grows by {format_bytes(found.bytes_per_step)} a step since step "
            f"{found.since_step:,}, by {format_bytes(found.grown_bytes)} so far."
        )
        remedy = "Look for tensors that are kept with their graph (use .item() or .detach())."
        figures = {
            "bytes_per_step": found.bytes_per_step,
            "since_step": float(found.since_step),
            "grown_bytes": found.grown_bytes,
        }
        self.event(self.last_step, "leak", text, MonitorLevel.WARN, "memory", remedy, figures)

    def _look_at_shares(self, table: Floats, spans: list[Span]) -> None:
        window = self._window
        late = table[table[:, ROW["step"]] >= WARM_UP_STEPS]
        late = late[late[:, ROW["profiled"]] == 0]
        if not len(late):
            return
        window.first_step = window.first_step or int(late[0, ROW["step"]])
        window.steps += len(late)
        phases = np.maximum(late[:, PHASE_ROWS], 0.0)
        window.wall += float(phases.sum())
        window.lost["data"] += int(phases[:, 0].sum())
        rows = np.zeros((len(late), 2 + len(BY_STEP)))
        rows[:, 0], rows[:, 1], rows[:, 2] = late[:, ROW["step"]], phases.sum(axis=1), phases[:, 0]
        window.rows.append(rows)
        window.longest_wait = max(window.longest_wait, float(phases[:, 0].max()))
        ends = late[:, ROW["end"]]
        begin, end = ends[0] - phases[0].sum(), ends[-1]
        for span in spans:
            inside = min(span.end, end) - max(span.begin, begin)
            if inside > 0:
                window.lost[span.kind] += int(inside)
                window.compiles += span.kind == "compile"
                place = min(int(np.searchsorted(ends, span.begin, side="right")), len(late) - 1)
                if span.kind in BY_STEP:
                    rows[place, 2 + BY_STEP.index(span.kind)] += inside
        window.lost["contention"] += int(self._delay(begin, end))
        long = window.wall >= WINDOW_NS and window.steps >= WINDOW_LEAST
        if window.steps < WINDOW_STEPS and not long:
            return
        window.lost["data"] -= int(window.longest_wait)
        for name in LIMITS:
            share = window.lost[name] / max(1.0, window.wall)
            enough = name != "compile" or window.compiles >= 3
            if enough and self._shares.passed(name, share):
                self._share_passed(name, share, window)
        self._window = _Window()

    def _share_passed(self, name: str, share: float, window: _Window) -> None:
        words, remedy = CAUSES[name]
        since = window.since(name)
        text = (
            f"{words[0].upper()}{words[1:]} takes {format_percent(share)} of the time of "
            f"{count(window.steps, 'step')} from step {window.first_step:,}"
            f"{'' if since == window.first_step else f', since step {since:,}'}."
        )
        ours = name not in ("contention", "checkpoint")
        held = window.lost["contention"] / max(1.0, window.wall)
        if name == "data" and held and share - held < LIMITS["data"]:
            ours = False  # a loader that gets no core is late too
            remedy = f"The training thread had no core for {format_percent(held)} of that time."
        level = MonitorLevel.WARN if ours else MonitorLevel.NOTE
        what = {"data": "starved", "contention": "contention"}.get(name, f"{name}-share")
        figures = {"share": share, "from_step": float(window.first_step)}
        self.event(since, what, text, level, name, remedy, figures)

    # Chunks.

    def chunk(
        self, now_s: float, seconds: float, process: Process, dropped: Mapping[str, int]
    ) -> StepChunk | None:
        """What was added since the last one; None where nothing was."""
        if not self._sums:
            return None
        made = StepChunk(
            now_s,
            seconds,
            self._first or 0,
            self.last_step,
            {kind.value: self._kind_sums(sums) for kind, sums in self._sums.items()},
            self._gap,
            self._samples if self._sized else None,
            self._tokens or None,
            self._loss,
            replace(process, gc_count=self._gc[0], gc_ns=self._gc[1]),
            dict(dropped),
            self._flops,
            self._device_steps,
            dict(self._device),
        )
        self._new_chunk()
        return made

    def _kind_sums(self, sums: _Sums) -> KindSums:
        phases: dict[str, int | None] = {"transfer": None}
        for name, value in zip(COLUMNS, sums.phases, strict=True):
            phases[name] = None if name in sums.unknown and not value else round(value)
        if not self.seen_backward:
            phases["backward"] = None
        if not self.seen_optimizer:
            phases["optimizer"] = None
        counts = {str(bucket): n for bucket, n in sorted(sums.counts.items())}
        return KindSums(sums.steps, sums.wall, phases, Histogram(counts))


def _paused(spans: Iterable[Span], ends: Floats, walls: Floats) -> Floats:
    """How long each of these steps was held up by garbage collection."""
    found = np.zeros(len(ends))
    begins = ends - walls
    for span in spans:
        if span.kind == "gc":
            first, last = np.searchsorted(ends, span.begin), np.searchsorted(begins, span.end)
            inside = slice(int(first), int(last))
            overlap = np.minimum(ends[inside], span.end) - np.maximum(begins[inside], span.begin)
            found[inside] += np.maximum(overlap, 0.0)
    return found


def _counters(readings: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, int, int]]:
    for at, text in readings:
        words = text.split()
        if len(words) == 3 and words[0].isdigit() and words[1].isdigit():
            yield at, int(words[0]), int(words[1])
