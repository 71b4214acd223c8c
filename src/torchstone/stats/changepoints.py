"""Where the level of a series changed: steps told from spikes, drift and correlated noise.

**One interval.** The values are replaced by the normal scores of their ranks (ties share one), so
outliers, skewed and two-peaked noise weigh no more than they should. Over all places to split, the
largest standardised difference of the two means is taken. Its variance is the long-run one: what is
left after the split gives the correlation of neighbours (corrected for the bias of a short series)
and the variance of means of blocks, and the larger of the two counts. Against drift, a straight
line is fitted in place of the step: the step must explain the values better, by a fixed amount.
That is done on the values themselves, outliers pulled in, because ranks tell no large step of few
values from a slope.

**A series.** Intervals of many lengths, a third of their length apart, are looked at. Those over
the threshold are taken from the shortest on, which therefore hold one change each; then every
change is tested and placed again in the interval from the change before it to the one after it. A
change needs `LEAST_SIDE` values on either side, so a spike of one or two is none.

Thresholds were chosen by simulation (`benchmarks/changepoints.py`): of series without a change at
most 2 % may be flagged, for every kind of noise there. `calibrate` repeats that on the caller's own
series: what is left of them after their changes were removed is shuffled in blocks, which keeps the
noise and how neighbours resemble each other, and no change.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

from torchstone.stats.drift import share_interval
from torchstone.stats.estimators import Floats, Ints, exp_or_inf, np, student_t_quantile

LEAST_SIDE = 3
"""Values on either side of a change: the fewest that are not called a spike."""
LEAST_VALUES = 10
"""Values of a series that is looked at."""
LENGTHS = (20, 32, 50, 80, 128, 200, 320, 512, 800, 1280)
"""Of intervals, each 1.6 times as long as the one before; and the whole series."""
OVERLAP = 3
"""Intervals of one length begin a third of it apart, so that every change lies well inside one."""
FARTHEST = 400
"""Values on either side of a change that it is tested against."""
NEAREST = 100
"""Values on either side from which the size of a change is made: what was later may be drift."""

STRENGTH, SHORT = 4.0, 12.0
"""A change of an interval of n values must be stronger than `STRENGTH` + `SHORT` / n standard
errors: in short ones the correlation of neighbours is known badly (the module's simulations)."""
BETTER_THAN_LINE = 12.0
"""How much more of the scores' sum of squares a step must explain than a straight line does, in
variances: below it 4 to 10 % of drifting series were flagged, at it at most 2 %."""
LARGE, LARGE_SIDE = ((400.0, 0.4), (80.0, 0.75)), 6
"""A step that explains so much more than a line needs less strength, this share of the usual one:
the strength of ranks has a ceiling, which in short intervals lies near the threshold. It needs so
many values on either side, because a few spikes in a row look like one."""
BIAS = 3.0
"""Times (1 + 3 ρ) / n: what the correlation of neighbours is underestimated by, found by
simulation. Without a split it is 1 (Kendall); two means and the best of all splits take more."""
MOST_CORRELATION = 0.95
BLOCK, BLOCK_SHARE = 8, 0.7
"""Values of a block, and the share of the blocks' variance that counts: it is made from few."""
_NOTHING = 1e-9
"""Variance left by a step that explains everything, in squared scores."""
_BATCH = 1_000_000
"""Values looked at together: 8 MB an array."""
_PLACE_DROP = 3.84
"""Places whose squared strength is this much below the best are as likely: chi-squared, 95 %."""
_WINSOR = 3.0
"""Residuals beyond so many robust standard deviations are pulled in before a standard error."""
_TO_SIGMA = 1.4826


class Found(NamedTuple):
    """The best split of intervals of one length: where, how strong, and the long-run variance of
    what is left, over the plain one."""

    at: Ints
    strength: Floats
    inflation: Floats


def _needed(n: int) -> float:
    """The strength of a change in an interval of so many values."""
    return STRENGTH + SHORT / n


class Level(NamedTuple):
    """The change of a level: new over old with its interval, and where it may have happened.

    `at` is the first value of the new level; it may as well be any from `first` to `last`.
    """

    at: int
    first: int
    last: int
    strength: float
    ratio: float
    interval: tuple[float, float]
    before: float
    after: float


class Candidate(NamedTuple):
    """The best split of one interval, where it passes: shortest and strongest come first."""

    length: int
    weakness: float
    """The strength with a minus sign."""
    margin: float
    start: int
    place: int

    def passes(self, factor: float) -> bool:
        """Whether it is a change by thresholds that are multiplied by the factor."""
        side = min(self.place - self.start, self.start + self.length - self.place)
        shares = (share for above, share in LARGE if self.margin > factor * above)
        least = next(shares, 1.0) if side >= LARGE_SIDE else 1.0
        strong = -self.weakness > factor * least * _needed(self.length)
        return strong and self.margin > factor * BETTER_THAN_LINE


@dataclass(frozen=True, eq=False)
class Scan:
    """Series, and of each the intervals that pass; thresholds can be raised without a new look."""

    many: Sequence[Floats]
    candidates: Mapping[int, Sequence[Candidate]]

    def changes(self, factor: float = 1.0) -> list[tuple[int, ...]]:
        """Of each series, the places of the first values after its changes.

        `factor`, at least 1, multiplies the thresholds (`calibrate`).
        """
        return [self.changes_of(row, factor) for row in range(len(self.many))]

    def changes_of(self, row: int, factor: float = 1.0) -> tuple[int, ...]:
        """The same of one series."""
        known = [one for one in self.candidates.get(row, ()) if one.passes(factor)]
        if not known:
            return ()
        values = self.many[row]
        return tuple(_settled(values, _grown(values, _chosen(known), factor), factor))


def find_changes(many: Sequence[Floats]) -> list[tuple[int, ...]]:
    """Of each series, the places of the first values after its changes. Values must be finite."""
    return scan(many).changes()


def scan(many: Sequence[Floats]) -> Scan:
    """Look at all intervals of all series; their values must be finite."""
    candidates: dict[int, list[Candidate]] = defaultdict(list)
    for n, rows, starts, windows in _intervals(many):
        found = _split(windows)
        weak = (found.strength > LARGE[0][1] * _needed(n)) & (
            _steepness(windows, found.at) > LARGE[1][0]
        )
        for place in np.nonzero((found.strength > _needed(n)) | weak)[0]:
            start, at = int(starts[place]), int(found.at[place])
            margin = _better_than_line(windows[place], at, float(found.inflation[place]))
            one = Candidate(n, -float(found.strength[place]), margin, start, start + at)
            if one.passes(1.0):
                candidates[int(rows[place])].append(one)
    return Scan(many, {row: sorted(several) for row, several in candidates.items()})


def _intervals(many: Sequence[Floats]) -> Iterator[tuple[int, Ints, Ints, Floats]]:
    """Length, series, beginning and values of intervals, those of one length together."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for row, values in enumerate(many):
        if values.size >= LEAST_VALUES:
            by_size[values.size].append(row)
    for size, rows in by_size.items():
        every = np.stack([many[row] for row in rows])
        for length in (*(one for one in LENGTHS if one < size), size):
            starts = np.arange(0, size - length + 1, max(1, length // OVERLAP))
            if starts[-1] != size - length:
                starts = np.append(starts, size - length)
            places = starts[:, None] + np.arange(length)
            step = max(1, _BATCH // places.size)
            for first in range(0, len(rows), step):
                part = np.array(rows[first : first + step])
                windows = every[first : first + step][:, places].reshape(-1, length)
                yield length, part.repeat(starts.size), np.tile(starts, part.size), windows


def _chosen(candidates: Sequence[Candidate]) -> list[int]:
    """From the shortest interval on, the strongest first; none with a change in it already."""
    places: list[int] = []
    for one in candidates:
        if not any(one.start < known < one.start + one.length for known in places):
            places.append(one.place)
    return sorted(places)


def _grown(values: Floats, places: list[int], factor: float) -> list[int]:
    """With the changes between those that were chosen: their intervals may have held one of these,
    and been passed over. A level that comes and goes has two, of which neither stands alone."""
    while True:
        ends = (0, *places, values.size)
        new = [
            one.place
            for start, end in pairwise(ends)
            if (one := _best(values, start, end, factor)) is not None
        ]
        if not new:
            return places
        places = sorted((*places, *new))


def _best(values: Floats, start: int, end: int, factor: float) -> Candidate | None:
    """The best split of one interval, if it passes."""
    if end - start < LEAST_VALUES:
        return None
    found = _split(values[None, start:end])
    at, strength = int(found.at[0]), float(found.strength[0])
    if not strength > factor * LARGE[0][1] * _needed(end - start):  # whatever a line explains
        return None
    margin = _better_than_line(values[start:end], at, float(found.inflation[0]))
    best = Candidate(end - start, -strength, margin, start, start + at)
    return best if best.passes(factor) else None


def _settled(values: Floats, places: list[int], factor: float) -> list[int]:
    """Each place tested and put right between its neighbours, twice: one that goes moves others."""
    for _ in range(2):
        kept: list[int] = []
        for number, place in enumerate(places):
            after = places[number + 1] if number + 1 < len(places) else values.size
            start = max(kept[-1] if kept else 0, place - FARTHEST)
            end = min(after, place + FARTHEST)
            best = _best(values, start, end, factor)
            if best is not None:
                kept.append(best.place)
        if kept == places:
            break
        places = kept
    return places


@lru_cache(maxsize=4096)
def _quantiles(n: int) -> Floats:
    """Normal scores of the ranks of n values."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((rank + 0.5) / n) for rank in range(n)])


def _scores(windows: Floats) -> Floats:
    """Of each row; equal values share the mean of theirs."""
    rows, n = windows.shape
    order = np.argsort(windows, axis=1, kind="stable")
    ordered = np.take_along_axis(windows, order, 1)
    new = np.ones((rows, n), dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    scores = np.empty((rows, n))
    if new.all():
        values = np.broadcast_to(_quantiles(n), (rows, n))
    else:
        group = np.cumsum(new.ravel()) - 1
        sums = np.bincount(group, weights=np.tile(_quantiles(n), rows))
        values = (sums / np.bincount(group))[group].reshape(rows, n)
    np.put_along_axis(scores, order, values, 1)
    return scores


def _split(windows: Floats) -> Found:
    """The best place to split each row in two, and how strong the change is."""
    scores = _scores(windows)
    rows, n = scores.shape
    every, sums = np.arange(rows), np.cumsum(scores, axis=1)
    total, gain = sums[:, -1], _gain(sums)
    best = gain.argmax(axis=1)
    at = best + LEAST_SIDE
    left = sums[every, at - 1]
    old, new = left / at, (total - left) / (n - at)
    rest = scores - np.where(np.arange(n) < at[:, None], old[:, None], new[:, None])
    squares = np.maximum(np.einsum("ij,ij->i", rest, rest), _NOTHING * n)
    inflation = _inflation(rest, squares)
    variance = squares / (n - 2) * inflation
    return Found(at, gain[every, best] / np.sqrt(variance), inflation)


def _steepness(windows: Floats, at: Ints) -> Floats:
    """The plain square of t of each row's split: quick, and never large without a large step."""
    n = windows.shape[1]
    middle = windows - windows.mean(axis=1, keepdims=True)
    left = np.cumsum(middle, axis=1)[np.arange(at.size), at - 1]
    step = left * left * n / (at * (n - at))
    rest = np.maximum(np.einsum("ij,ij->i", middle, middle) - step, 1e-300)
    steepness: Floats = step / rest * (n - 2)
    return steepness


def _better_than_line(values: Floats, at: int, inflation: float) -> float:
    """How much less of the values' squares a step leaves than a straight line, in variances."""
    n = values.size
    level = np.empty(n)
    level[:at], level[at:] = _median(values[:at]), _median(values[at:])
    rest = values - level
    sigma = _TO_SIGMA * _median(np.abs(rest))
    if sigma > 0.0:
        rest = np.minimum(np.maximum(rest, -_WINSOR * sigma), _WINSOR * sigma)
    pulled = level + rest
    pulled = pulled - _mean(pulled)
    line, length = _line(n)
    whole, slope = float(pulled @ pulled), float(pulled @ line) ** 2 / length
    step = _mean(pulled[:at]) ** 2 * at + _mean(pulled[at:]) ** 2 * (n - at)
    variance = max((whole - step) / (n - 2), _NOTHING * whole / n, 1e-300) * inflation
    return (step - slope) / variance


# numpy's own median and mean spend most of their time on what a short row of finite values does
# not need, and are asked for hundreds of thousands of times; these give the same to the last bit.


def _median(values: Floats) -> float:
    half, odd = divmod(values.size, 2)
    if odd:
        return float(np.partition(values, half)[half])
    middle = np.partition(values, (half - 1, half))
    return float((middle[half - 1] + middle[half]) / 2.0)


def _mean(values: Floats) -> float:
    return float(np.add.reduce(values)) / values.size


@lru_cache(maxsize=4096)
def _line(n: int) -> tuple[Floats, float]:
    """A straight line over n places with the mean 0, and the sum of its squares."""
    line: Floats = np.arange(n, dtype=np.float64) - 0.5 * (n - 1)
    return line, float(line @ line)


def _gain(sums: Floats) -> Floats:
    """The difference of the means at every place, in standard errors of unit noise."""
    n = sums.shape[1]
    place = np.arange(LEAST_SIDE, n - LEAST_SIDE + 1)
    beside = sums[:, LEAST_SIDE - 1 : n - LEAST_SIDE] - sums[:, -1:] * (place / n)
    gain: Floats = np.abs(beside) / np.sqrt(place * (n - place) / n)
    return gain


def _inflation(rest: Floats, squares: Floats) -> Floats:
    """The long-run variance over the plain one, of what a split leaves."""
    rows, n = rest.shape
    correlation = np.einsum("ij,ij->i", rest[:, 1:], rest[:, :-1]) / squares
    correlation = correlation + BIAS * (1.0 + 3.0 * correlation) / n
    correlation = np.clip(correlation, 0.0, MOST_CORRELATION)
    inflation: Floats = (1.0 + correlation) / (1.0 - correlation)
    blocks = n // BLOCK
    if blocks >= 5:
        means = rest[:, : blocks * BLOCK].reshape(rows, blocks, BLOCK).mean(axis=2)
        by_blocks = np.einsum("ij,ij->i", means, means) / (blocks - 2) * BLOCK * (n - 2) / squares
        inflation = np.maximum(inflation, BLOCK_SHARE * by_blocks)
    return inflation


# How large a change is.


def level_of(values: Floats, start: int, at: int, end: int, level: float = 0.95) -> Level:
    """The change at `at` in the values from `start` to `end`, the changes before and after it.

    The ratio is that of Hodges and Lehmann (the middle of all pairs, on the log scale), with an
    interval from the residuals' winsorised spread and their correlation.
    """
    start, end = max(start, at - NEAREST), min(end, at + NEAREST)
    old, new = values[start:at], values[at:end]
    logs = bool(old.min() > 0.0 and new.min() > 0.0)
    a, b = (np.log(old), np.log(new)) if logs else (old, new)
    shift = float(np.median(b[None, :] - a[:, None]))
    rest = np.concatenate([a - np.median(a), b - np.median(b)])
    sigma = _TO_SIGMA * float(np.median(np.abs(rest)))
    if sigma > 0.0:
        rest = np.clip(rest, -_WINSOR * sigma, _WINSOR * sigma)
    squares = np.maximum(np.array([rest @ rest]), 1e-300)
    inflation = float(_inflation(rest[None, :], squares)[0])
    freedom = max(1.0, (rest.size - 2) / inflation)
    variance = float(squares[0]) / max(1, rest.size - 2) * inflation
    error = math.sqrt(variance * (1 / a.size + 1 / b.size))
    half = student_t_quantile(0.5 + 0.5 * level, freedom) * error
    before, after = float(np.median(old)), float(np.median(new))
    first, last, strength = _places(values[start:end], at - start)
    ratio, ends = _as_ratio(shift, half, before, logs)
    return Level(at, start + first, start + last, strength, ratio, ends, before, after)


def _as_ratio(
    shift: float, half: float, before: float, logs: bool
) -> tuple[float, tuple[float, float]]:
    if logs:
        return exp_or_inf(shift), (exp_or_inf(shift - half), exp_or_inf(shift + half))
    if before == 0.0:
        # Nothing can be a share of nothing: as good as without bounds, in its direction.
        return (math.inf if shift > 0 else -math.inf), (-math.inf, math.inf)
    ends = sorted(1.0 + one / abs(before) for one in (shift - half, shift + half))
    return 1.0 + shift / abs(before), (ends[0], ends[1])


def _places(values: Floats, at: int) -> tuple[int, int, float]:
    """The first and last place that explain the values about as well, and the strength at best."""
    n = values.size
    scores = _scores(values[None, :])
    gain = _gain(np.cumsum(scores, axis=1))[0]
    place = min(max(at - LEAST_SIDE, 0), gain.size - 1)
    rest = scores[0].copy()
    rest[:at] -= rest[:at].mean()
    rest[at:] -= rest[at:].mean()
    squares = np.maximum(np.array([rest @ rest]), _NOTHING * n)
    variance = float(squares[0]) / (n - 2) * float(_inflation(rest[None, :], squares)[0])
    near = np.nonzero(gain * gain >= gain[place] ** 2 - _PLACE_DROP * variance)[0]
    # What lies beside the place and is joined to it: another peak farther off is no doubt of it.
    low = high = place
    known = set(near.tolist())
    while low - 1 in known:
        low -= 1
    while high + 1 in known:
        high += 1
    return low + LEAST_SIDE, high + LEAST_SIDE, float(gain[place]) / math.sqrt(variance)


# The rate of false alarms on the caller's own data.

TARGET = 0.01
"""Of series without a change that may be flagged."""
FACTORS = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5)
"""Of the thresholds, from which the least is taken that keeps to the target."""
MOST_TESTED = 800
"""Series that are shuffled: enough to tell 1 % from 2 %, and a few seconds' work."""
AGAIN = 20
"""Times that one series is shuffled, where there are few."""
SHUFFLED = 10
"""Values of a block that stay together."""
LEAST_TO_SHUFFLE = 3 * SHUFFLED


@dataclass(frozen=True)
class AlarmCalibration:
    """What share of series without a change is flagged, tried on the caller's own noise.

    `factor` was chosen on one half of the `tested` series; `rate` is that of the other half.
    """

    factor: float = 1.0
    rate: float | None = None
    interval: tuple[float, float] = (0.0, 1.0)
    flagged: int = 0
    tested: int = 0


Alarms = Callable[[Scan, float], Sequence[bool]]
"""Whether each series is flagged by thresholds multiplied by the factor."""


def calibrate(
    many: Sequence[Floats],
    changes: Callable[[int], Sequence[int]],
    alarms: Alarms,
    seed: int = 0,
) -> AlarmCalibration:
    """Shuffle what is left of the series after their changes; count how many are flagged then.

    `changes` is asked for those of a series that is shuffled, by its place; `alarms` is the
    caller's whole rule, its least effect included.
    """
    random = np.random.default_rng(seed)
    usable = [row for row, values in enumerate(many) if values.size >= LEAST_TO_SHUFFLE]
    if len(usable) > MOST_TESTED:
        usable = sorted(random.choice(usable, MOST_TESTED, replace=False).tolist())
    known = {row: changes(row) for row in usable}
    flat = [_shuffled(many[row], known[row], random) for row in usable]
    again = min(MOST_TESTED, AGAIN * len(usable)) - len(flat)  # few series are shuffled more often
    flat += [
        _shuffled(many[row], known[row], random)
        for row in (usable[place % len(usable)] for place in range(again))
    ]
    if not flat:
        return AlarmCalibration()
    order = random.permutation(len(flat)).tolist()
    chosen, held_out = (scan([flat[place] for place in order[half::2]]) for half in (0, 1))
    most = TARGET * len(chosen.many)
    factor = next((one for one in FACTORS if sum(alarms(chosen, one)) <= most), FACTORS[-1])
    flagged, tested = sum(alarms(held_out, factor)), len(held_out.many)
    rate = flagged / tested
    return AlarmCalibration(factor, rate, share_interval(flagged, tested), flagged, tested)


def _shuffled(values: Floats, places: Sequence[int], random: np.random.Generator) -> Floats:
    """The values without their changes, in blocks whose order is drawn by lot."""
    flat, ends = values.copy(), (0, *places, values.size)
    middle = float(np.median(values))
    for start, end in pairwise(ends):
        own = float(np.median(values[start:end]))
        if own > 0.0 < middle:
            flat[start:end] *= middle / own
        else:
            flat[start:end] += middle - own
    flat = np.roll(flat, int(random.integers(flat.size)))
    blocks = [flat[start : start + SHUFFLED] for start in range(0, flat.size, SHUFFLED)]
    random.shuffle(blocks)
    return np.concatenate(blocks)
