"""What is found in the steps: slow ones, drift, a leak, two modes; each with its cause.

**Drift** is tested on medians of blocks of steps, in log. Each new block gets the share of earlier
blocks that were slower; where blocks are exchangeable these shares are independent and uniform, so
that a product of bets against them is a martingale: the chance that it ever passes 1/alpha is at
most alpha, however long the run and however often one looks (Ville). Bets begin at every block,
with weights that add up to 1, so that a change after many quiet blocks is seen within a few. After
a warning the test begins again with a smaller part of alpha; all parts together are `DRIFT_ALPHA`.
Neighbours on a shared machine make blocks unlike, so a warning also takes a slow-down of
`LEAST_DRIFT`, and one that the scheduler or the probe explains is a note.

Whether what is trained is still the same: batches, the model's mode, the loss, the scaler.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchstone.monitor.clock import Leaf, StepRow, leaves
from torchstone.records.format import count
from torchstone.records.monitoring import FALSE_ALARMS, PHASE_NAMES, MonitorLevel, StepKind

Floats = NDArray[np.float64]

DRIFT_ALPHA = FALSE_ALARMS / 2
LEAK_ALPHA = FALSE_ALARMS / 4
"""The rest is for slow ranks (`journal`)."""
BETS = (0.1, 0.3, 0.5, 0.7)
"""Exponents of the bets; their mean is a martingale like each of them."""
BLOCK_STEPS = 32
BLOCK_NS = 100_000_000
MOST_BLOCKS = 512
"""When there are more, neighbours are joined and blocks get twice as long: memory stays flat."""
LEAST_BLOCKS = 12
LEAST_DRIFT = 0.05
"""Below this a shared machine's moods and a drift look alike (A/A floors of 1 to 3 %)."""
RECENT = 6
NAMED_SHARE = 0.6
"""A phase is named as the cause when it has this much of what was lost."""
SLOW_RATIO = 2.0
SLOW_DEVIATIONS = 8.0
"""A slow step takes twice the median, and lies this many deviations above it."""
CAUSE_SHARE = 0.5
RESERVOIR = 512


@dataclass(frozen=True)
class Block:
    """The median of some steps, and what goes with it, per step."""

    first_step: int
    log_median: float
    phases: Floats
    """Mean nanoseconds, in the order of the columns."""
    gc_ns: float
    delay_ns: float
    probe_ns: float
    size: float
    """Elements of a batch, in log; 0 where they are not known."""


@dataclass(frozen=True)
class DriftFound:
    """Steps have become slower."""

    since_step: int
    ratio: float
    before_s: float
    after_s: float
    cause: str
    detail: str
    ours: bool
    """False where another process or the machine is the cause."""
    gradual: bool


class DriftTest:
    """See the module. One for each kind of step."""

    def __init__(self, alpha: float = DRIFT_ALPHA, seed: int = 0) -> None:
        self._alpha = alpha
        self._random = random.Random(seed)
        self._found = 0
        self._begin()

    def _begin(self) -> None:
        self.blocks: list[Block] = []
        self._ordered: list[float] = []
        """Their medians, ascending."""
        self.join = 1
        """Blocks that make one, doubled when there are too many."""
        self._pending: list[Block] = []
        self._logs = np.full(len(BETS), -math.inf)
        """Of the weighted products of bets that have begun."""
        self._count = 0

    @property
    def _threshold(self) -> float:
        # 6/(pi k)^2 over k = 1, 2, … adds up to 1.
        share = 6.0 / (math.pi * (self._found + 1)) ** 2
        return -math.log(self._alpha * share)

    def add(self, block: Block) -> DriftFound | None:
        """Take a block; what was found, once the evidence is there."""
        self._pending.append(block)
        if len(self._pending) < self.join:
            return None
        block = _joined(self._pending)
        self._pending = []
        evidence = self._bet(block.log_median)
        self.blocks.append(block)
        found = self._explain() if evidence >= self._threshold else None
        if found is not None:
            self._found += 1
            self._begin()
        elif len(self.blocks) > MOST_BLOCKS:
            pairs = zip(self.blocks[::2], self.blocks[1::2], strict=False)
            self.blocks = [_joined(list(pair)) for pair in pairs]
            self._ordered = sorted(one.log_median for one in self.blocks)
            self.join *= 2
        return found

    def _bet(self, value: float) -> float:
        """The log of the martingale after this block."""
        not_slower = bisect_right(self._ordered, value)
        slower = len(self._ordered) - not_slower
        equal = not_slower - bisect_left(self._ordered, value) + 1
        p = (slower + self._random.random() * equal) / (len(self._ordered) + 1)
        insort(self._ordered, value)
        p = max(p, 1e-9)
        self._count += 1
        begins = -math.log(self._count * (self._count + 1.0))
        bets = np.log(BETS) + (np.array(BETS) - 1.0) * math.log(p)
        self._logs = np.logaddexp(self._logs, begins) + bets
        waiting = -math.log(self._count + 1.0)  # the weight of bets that have not begun
        together = float(np.logaddexp.reduce(self._logs)) - math.log(len(BETS))
        return float(np.logaddexp(together, waiting))

    def _explain(self) -> DriftFound | None:
        """Since when, by how much and why; None where it is too little to speak of."""
        if len(self.blocks) < LEAST_BLOCKS:
            return None
        logs = np.array([one.log_median for one in self.blocks])
        if logs[-RECENT:].min() < np.quantile(logs, 0.25) + LEAST_DRIFT / 2:
            return None  # the search below takes milliseconds
        split, gradual = change_point(logs)
        before = self.blocks[: max(2, split)]
        after = self.blocks[-RECENT:] if gradual else self.blocks[split:]
        if len(after) < RECENT:
            return None
        low = float(np.median([one.log_median for one in before]))
        high = float(np.median([one.log_median for one in after]))
        lately = [one.log_median for one in self.blocks[-RECENT:]]
        if math.expm1(high - low) < LEAST_DRIFT or min(lately) < low + LEAST_DRIFT / 2:
            return None
        cause, detail, ours = _cause_of(before, after)
        return DriftFound(
            self.blocks[split].first_step,
            math.exp(high - low),
            math.exp(low) / 1e9,
            math.exp(high) / 1e9,
            cause,
            detail,
            ours,
            gradual,
        )


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    return Block(
        blocks[0].first_step,
        mean([one.log_median for one in blocks]),
        np.mean([one.phases for one in blocks], axis=0),
        mean([one.gc_ns for one in blocks]),
        mean([one.delay_ns for one in blocks]),
        mean([one.probe_ns for one in blocks]),
        mean([one.size for one in blocks]),
    )


def change_point(values: Floats) -> tuple[int, bool]:
    """The first block after the change, and whether it grows from there instead of jumping.

    Least squares of a jump and of a slope that begins somewhere; the better of the two.
    """
    count = len(values)
    places = range(2, count - 1)
    jumps = {at: _residual(values, (np.arange(count) >= at).astype(np.float64)) for at in places}
    ramp = np.arange(count, dtype=np.float64)
    slopes = {at: _residual(values, np.clip(ramp - at + 1.0, 0.0, None)) for at in places}
    jump, slope = min(jumps, key=jumps.__getitem__), min(slopes, key=slopes.__getitem__)
    return (slope, True) if slopes[slope] < jumps[jump] else (jump, False)


def _residual(values: Floats, shape: Floats) -> float:
    """What is left of the values after the best a + b·shape."""
    centred, form = values - values.mean(), shape - shape.mean()
    size = float(form @ form)
    if not size:
        return float(centred @ centred)
    return float(centred @ centred) - float(form @ centred) ** 2 / size


COLUMNS = ("data", "forward", "backward", "collective", "optimizer", "other")


def _cause_of(before: Sequence[Block], after: Sequence[Block]) -> tuple[str, str, bool]:
    """What grew: the cause in a word, a sentence, and whether it lies in this program."""
    old = np.median([one.phases for one in before], axis=0)
    new = np.median([one.phases for one in after], axis=0)
    grown = new - old
    total = float(grown.sum())

    def rise(name: str) -> float:
        pair = [np.median([getattr(one, name) for one in side]) for side in (before, after)]
        return float(pair[1] - pair[0])

    if total <= 0:
        return "unknown", "no phase grew", True
    if rise("gc_ns") >= CAUSE_SHARE * total:
        return "gc", "garbage collection takes longer", True
    if rise("delay_ns") >= CAUSE_SHARE * total:
        return "contention", "the training thread waits for a core: another process runs", False
    lost = math.log1p(total / max(1.0, float(old.sum())))
    if rise("size") >= CAUSE_SHARE * lost:
        return "batch", "batches have become larger", True
    place = int(np.argmax(grown))
    name = PHASE_NAMES[COLUMNS[place]]
    if grown[place] >= NAMED_SHARE * total and len(np.flatnonzero(new)) > 1:
        shown = f"{name} grew from {_ms(old[place])} to {_ms(new[place])}"
        return COLUMNS[place], shown, True
    probe = np.median([one.probe_ns for one in before]), np.median([o.probe_ns for o in after])
    if probe[0] and math.log(probe[1] / probe[0]) >= CAUSE_SHARE * lost:
        return "machine", "the core itself runs slower: all phases grew, and the probe did", False
    return "all", "all phases grew alike", True


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"


# Slow steps, against what is usual.


class Usual:
    """The usual step: median and deviation of the latest steps of one kind."""

    def __init__(self) -> None:
        self._walls = np.empty(0)
        self._phases = np.empty((0, len(COLUMNS)))
        self.median = math.nan
        self.phases = np.zeros(len(COLUMNS))
        self._limit = math.inf

    def slow(self, walls: Floats) -> NDArray[np.intp]:
        """Which of these steps are slow; none before there is anything to compare with."""
        return np.flatnonzero(walls > self._limit)

    def learn(self, walls: Floats, phases: Floats) -> None:
        """Take the steps in."""
        self._walls = np.concatenate([self._walls, walls])[-RESERVOIR:]
        self._phases = np.concatenate([self._phases, phases])[-RESERVOIR:]
        if len(self._walls) < BLOCK_STEPS:
            return
        self.median = float(np.median(self._walls))
        self.phases = np.median(self._phases, axis=0)
        spread = 1.4826 * float(np.median(np.abs(np.log(self._walls / self.median))))
        self._limit = self.median * max(SLOW_RATIO, math.exp(SLOW_DEVIATIONS * spread))

    def modes(self) -> tuple[float, float, float] | None:
        """Two modes, in nanoseconds, and the share of the slower one; None where there is one."""
        if len(self._walls) < RESERVOIR:
            return None
        return two_modes(np.log(self._walls))


MODE_SHARE = 0.1
MODE_DISTANCE = 4.0
"""Ashman's D: two modes are apart from 2 on; noise alone does not come to 4."""
MODE_RATIO = 1.25
VALLEY = 0.02
"""Share of steps that may lie in the middle third between two modes."""


def two_modes(logs: Floats) -> tuple[float, float, float] | None:
    """The best split in two by least squares, if the parts are apart; of logs."""
    ordered = np.sort(logs)
    count = len(ordered)
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    left = np.arange(1, count)
    inner = squares[-1] - sums[:-1] ** 2 / left - (sums[-1] - sums[:-1]) ** 2 / (count - left)
    cut = int(np.argmin(inner)) + 1
    low, high = ordered[:cut], ordered[cut:]
    share = len(high) / count
    if not MODE_SHARE <= share <= 1.0 - MODE_SHARE:
        return None
    low_at, high_at = float(np.median(low)), float(np.median(high))
    spread = math.sqrt((float(low.var()) + float(high.var())) / 2.0)
    gap = high_at - low_at
    between = np.mean((ordered > low_at + gap / 3) & (ordered < high_at - gap / 3))
    apart = gap >= MODE_DISTANCE * spread and gap >= math.log(MODE_RATIO)
    return (math.exp(low_at), math.exp(high_at), share) if apart and between <= VALLEY else None


# A leak.


SEGMENTS = 8
"""Eight floors in ascending order happen by chance once in 8! = 40,320 looks."""
LEAST_LEAK_BYTES = 32 << 20
LEAST_LEAK_SHARE = 0.02
STEADY_SLOPE = 0.7
"""Of the slope at the look before: memory that fills up slows down."""


@dataclass(frozen=True)
class LeakFound:
    """Memory grows and does not come back."""

    since_step: int
    bytes_per_step: float
    grown_bytes: float


class LeakTest:
    """Looks at resident memory whenever there is twice as much to look at.

    Since the last look's half, time is cut in eight; the least memory in each is its floor, which
    an allocator that only breathes does not raise. A leak: every floor lies above the one before,
    at this look and at the one before it, and the slope has not fallen much: it is no warm-up.
    """

    def __init__(self, least: int = 2 * SEGMENTS, alpha: float = LEAK_ALPHA) -> None:
        self._samples: list[tuple[int, float]] = []
        self._look_at = least
        self._looks = 0
        self._slope = 0.0
        """At the last look; 0 where nothing grew."""
        self._alpha = alpha

    def add(self, step: int, rss: float) -> LeakFound | None:
        """Take the memory after a step."""
        self._samples.append((step, rss))
        if len(self._samples) < self._look_at:
            return None
        self._looks += 1
        found = self._look()
        self._look_at *= 2
        if self._look_at > 4096:  # every second sample is enough for so long a time
            self._samples = self._samples[::2]
            self._look_at //= 2
        return found

    def _look(self) -> LeakFound | None:
        if 2 * self._looks / math.factorial(SEGMENTS) > self._alpha:
            return None  # looked too often to be sure of anything
        half = self._samples[len(self._samples) // 2 :]
        parts = np.array_split(np.array(half), SEGMENTS)
        floors = [float(part[:, 1].min()) for part in parts]
        steps = half[-1][0] - half[0][0]
        before, self._slope = self._slope, 0.0
        if steps <= 0 or not (np.diff(floors) > 0).all():
            return None
        grown = half[-1][1] - half[0][1]
        self._slope = grown / steps
        enough = grown >= max(LEAST_LEAK_BYTES, LEAST_LEAK_SHARE * floors[0])
        if not enough or not before or self._slope < STEADY_SLOPE * before:
            return None
        return LeakFound(int(half[0][0]), self._slope, grown)


# Shares of the time that something takes.


class Shares:
    """Says when a share passes its limit, once, and again after it has fallen to half of it."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        self._above: set[str] = set()

    def passed(self, name: str, share: float) -> bool:
        """Whether this is news."""
        limit = self._limits[name]
        if share >= limit and name not in self._above:
            self._above.add(name)
            return True
        if share < limit / 2:
            self._above.discard(name)
        return False


MANY_SHAPES = 8
"""So many shapes are said one by one; then, once, that there are many."""
TOKENS = "input_ids"
"""A batch with this has tokens: the name that HuggingFace gives them."""
_ROW = {name: place for place, name in enumerate(StepRow._fields)}


class BatchSize(NamedTuple):
    """What a batch of one signature holds."""

    samples: int
    tokens: int
    log_elements: float


class ContractWatch:
    """Compares each step with those before it."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._known: dict[int, tuple[Leaf, ...]] = {}
        self._sizes: dict[int, BatchSize] = {}
        self._seen: dict[StepKind, list[int]] = {}
        self._eval_said = self._loss_said = False
        self.bad_losses = 0

    def take_signatures(self, signatures: Mapping[Any, int]) -> None:
        """Those that are new."""
        if len(signatures) == len(self._known):
            return
        for key, number in list(signatures.items())[len(self._known) :]:
            self._known[number] = found = leaves(key)
            self._sizes[number] = _size(found)

    def size_of(self, signature: int) -> BatchSize | None:
        """None where the batch has no tensors that are known."""
        found = self._sizes.get(signature)
        return found if found is not None and found.samples else None

    def leaves_of(self, signature: int) -> tuple[Leaf, ...]:
        """The tensors of such a batch."""
        return self._known.get(signature, ())

    def look(self, kind: StepKind, rows: Floats) -> None:
        """Steps of one kind, in order."""
        self._look_at_batches(kind, rows)
        read = rows[:, _ROW["lossless"]] == 0
        bad = np.flatnonzero(read & ~np.isfinite(rows[:, _ROW["loss"]]))
        self.bad_losses += len(bad)
        if len(bad) and not self._loss_said:
            self._loss_said = True
            step, loss = int(rows[bad[0], _ROW["step"]]), rows[bad[0], _ROW["loss"]]
            word = "NaN" if math.isnan(loss) else "infinite"
            self._say(
                step,
                "loss",
                f"The loss is {word} at step {step:,}.",
                MonitorLevel.WARN,
                cause="loss",
                remedy="Look at the learning rate, the data of this step, and mixed precision.",
            )
        asleep = np.flatnonzero(rows[:, _ROW["training"]] == 0)
        if len(asleep) and not self._eval_said:
            self._eval_said = True
            step = int(rows[asleep[0], _ROW["step"]])
            self._say(
                step,
                "eval-mode",
                f"The model is trained in eval mode since step {step:,}: "
                "dropout is off and batch norm does not learn.",
                MonitorLevel.WARN,
                cause="mode",
                remedy="Call model.train() before training goes on.",
            )

    def _look_at_batches(self, kind: StepKind, rows: Floats) -> None:
        numbers = rows[:, _ROW["signature"]].astype(int)
        # Accumulated and optimized batches come from one loader.
        group = StepKind.FORWARD if kind is StepKind.FORWARD else StepKind.TRAIN
        seen = self._seen.setdefault(group, [])
        for number in dict.fromkeys(numbers.tolist()):
            if number < 0 or number in seen:
                continue
            if seen:
                step = int(rows[int(np.argmax(numbers == number)), _ROW["step"]])
                self._changed(step, seen[-1], number, len(seen))
            seen.append(number)

    def _changed(self, step: int, old: int, new: int, known: int) -> None:
        before, after = self._known.get(old, ()), self._known.get(new, ())
        pairs = list(zip(before, after, strict=False))
        dtypes = [f"{a[0]}: {a[2]} to {b[2]}" for a, b in pairs if a[2] != b[2]]
        devices = [f"{a[0]}: {a[3]} to {b[3]}" for a, b in pairs if a[3] != b[3]]
        for what, changes in (("dtype", dtypes), ("device", devices)):
            if changes:
                text = f"The {what} of the batch changed at step {step:,} ({', '.join(changes)})."
                remedy = "Convert in one place, before the loop or in the collate function."
                self._say(step, what, text, MonitorLevel.WARN, cause=what, remedy=remedy)
        if dtypes or devices or known > MANY_SHAPES:
            return
        if known == MANY_SHAPES:
            text = (
                f"Batches have many shapes: more than {count(known, 'kind')} until step {step:,}."
            )
            self._say(step, "shapes", text, cause="shape")
            return
        shapes = [f"{list(a[1])} to {list(b[1])}" for a, b in pairs if a[1] != b[1]]
        if len(before) != len(after):
            shapes = [f"{count(len(before), 'tensor')} to {len(after)}"]
        only_first = all(a[1][1:] == b[1][1:] for a, b in pairs) and len(before) == len(after)
        name = "batch size" if only_first else "shape of the batch"
        self._say(
            step,
            "batch-size" if only_first else "shape",
            f"Another {name} at step {step:,} ({', '.join(shapes)}).",
            cause="shape",
        )


def _size(found: tuple[Leaf, ...]) -> BatchSize:
    shaped = [leaf for leaf in found if leaf[1]]
    if not shaped:
        return BatchSize(0, 0, 0.0)
    elements = sum(math.prod(leaf[1]) for leaf in shaped)
    tokens = sum(math.prod(leaf[1]) for leaf in shaped if leaf[0] == TOKENS)
    return BatchSize(shaped[0][1][0], tokens, math.log(max(1, elements)))
