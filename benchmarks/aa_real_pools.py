"""Which estimator on real models: trials played by drawing whole recorded replicates.

As in `aa_pools`, a pool is shuffled and dealt into disjoint groups of whole replicates, again and
again, and the interval of a rate counts one deal's groups. A replicate is cut to a run of
neighbouring pairs, as many as a trial of that budget would have given it.

A pool of one effect is small. So by default the replicates of all effects of a setup make one pool
of *errors* (log ratio less its true value), and a trial at some effect is a group of errors with
that effect's true value added. `own` pools draw each effect from its own replicates alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from aa_journal import Row
from aa_models import CALLS, log_truth
from aa_ours import decode
from aa_pairs import ESTIMATORS, Floats, Ints, jackknife_variance
from aa_pools import Rate, Rules, deal, side
from aa_real_record import Setup
from aa_report import percent, table

from torchstone.conductor.turn_scheduler import HANDOVER_S
from torchstone.records import Measurement
from torchstone.stats import LogFit
from torchstone.stats.ratio import combine

NANOSECONDS = 1e9
ENOUGH = 0.8
"""A design that wants more of a process than this share of processes' pairs give is left out."""


@dataclass(frozen=True, eq=False)
class Replicate:
    """The pairs of one replicate in their order in time, in seconds."""

    base: Floats
    new: Floats
    turn: Ints
    truth: float
    """The true log ratio."""

    @property
    def seconds(self) -> Floats:
        """What each pair took of a trial's time."""
        cost: Floats = self.base + self.new + 2 * HANDOVER_S
        return cost


@dataclass(frozen=True)
class Design:
    """A trial's layout: so many processes, so many seconds of pairs in each."""

    processes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.processes} x {self.seconds:g} s"


@dataclass(frozen=True)
class Score:
    """One estimator in one setup under one design."""

    setup: Setup
    design: Design
    estimator: str
    floored: bool
    """Whether the variance over turns was a floor under that over processes."""
    replicates: int
    pairs: float
    found: Mapping[int, Rate]
    """Called slower, by effect; at 0 called different."""
    wrong_way: float
    covered: Rate
    half_width: float
    error: float


Pool = dict[int, list[Replicate]]
"""Replicates by effect."""


def load_pools(rows: Iterable[Row]) -> dict[Setup, Pool]:
    """From recorded batches and from whole trials of ours."""
    pools: dict[Setup, Pool] = {}
    for row in rows:
        if row["kind"] not in ("replicates", "trial") or not row.get("raw"):
            continue
        setup = Setup(**{name: row[name] for name in Setup.__dataclass_fields__})
        base, new = (decode(raw) for raw in row["raw"])
        truth = log_truth(setup.model, row["effect"])
        found = pools.setdefault(setup, {}).setdefault(row["effect"], [])
        found += aligned(base, new, truth)
    return pools


def aligned(base: Measurement, new: Measurement, truth: float) -> Iterator[Replicate]:
    """Replicates as pairs: samples of turns with the same index, the first with the first.

    Where a turn is one call, a pair are the two calls of a round.
    """
    walls: list[dict[tuple[int, int], tuple[int, ...]]] = [
        {(t.replicate, t.index): t.wall_ns for t in arm.turns} for arm in (base, new)
    ]
    common = sorted(set(walls[0]) & set(walls[1]))
    for replicate in sorted({place[0] for place in common}):
        pairs = [
            (*pair, index)
            for number, index in common
            if number == replicate
            for pair in zip(walls[0][number, index], walls[1][number, index], strict=False)
        ]
        if pairs:
            times = np.asarray([pair[:2] for pair in pairs], dtype=np.float64) / NANOSECONDS
            turn = np.asarray([pair[2] for pair in pairs], dtype=np.int64)
            loops = np.asarray([base.loops, new.loops], dtype=np.float64)
            yield Replicate(times[:, 0] / loops[0], times[:, 1] / loops[1], turn, truth)


def cut(one: Replicate, seconds: float, chance: random.Random) -> Replicate:
    """A run of neighbouring pairs that takes about so long, from anywhere; at least one pair."""
    ends = np.cumsum(one.seconds)
    if ends[-1] <= seconds:
        return one
    last_start = int(np.searchsorted(ends, ends[-1] - seconds, side="right"))
    first = chance.randint(0, min(last_start, ends.size - 1))
    before = ends[first - 1] if first else 0.0
    stop = max(first + 1, int(np.searchsorted(ends, before + seconds, side="right")))
    kept = slice(first, stop)
    return replace(one, base=one.base[kept], new=one.new[kept], turn=one.turn[kept])


def evaluate(
    setup: Setup,
    pool: Pool,
    designs: Sequence[Design],
    estimators: Sequence[str],
    rules: Rules,
    resamples: int,
    own: bool = False,
    seed: int = 0,
) -> Iterator[Score]:
    """Every estimator under every design that the pool can fill, with and without the floor."""
    for design in designs:
        chance = random.Random(f"{seed} {design}")
        lengths = [float(one.seconds.sum()) for of_effect in pool.values() for one in of_effect]
        if np.median(lengths) < ENOUGH * design.seconds:
            continue
        short = {e: [cut(one, design.seconds, chance) for one in pool[e]] for e in sorted(pool)}
        groups = _dealt(short, design, resamples, own, chance)
        if not groups:
            continue
        for name in estimators:
            errors = {e: [error_of(one, name) for one in short[e]] for e in short}
            for floored in (True, False):
                yield _score(setup, design, name, floored, short, groups, errors, rules)


Groups = dict[int, list[list[tuple[int, int]]]]
"""By effect played: groups of replicates, each by the effect it was recorded at and its number."""


def _dealt(short: Pool, design: Design, resamples: int, own: bool, chance: random.Random) -> Groups:
    every = [(e, i) for e in short for i in range(len(short[e]))]
    dealt: Groups = {}
    shared = [
        [every[i] for i in hand] for hand in deal(len(every), design.processes, resamples, chance)
    ]
    whole = short.keys() == {0}
    for effect in sorted(short) if own or whole else sorted(CALLS):
        hands = shared
        if own:
            count = len(short[effect])
            hands = [
                [(effect, i) for i in hand]
                for hand in deal(count, design.processes, resamples, chance)
            ]
        if hands:
            dealt[effect] = hands
    return dealt


def error_of(one: Replicate, estimator: str) -> tuple[float, float]:
    """How far the replicate's log ratio is from the truth, and its variance over turns."""
    function = ESTIMATORS[estimator]
    variance = jackknife_variance(function, one.base, one.new, one.turn)
    return function(one.base, one.new) - one.truth, variance


def _score(
    setup: Setup,
    design: Design,
    name: str,
    floored: bool,
    short: Pool,
    groups: Groups,
    errors: Mapping[int, Sequence[tuple[float, float]]],
    rules: Rules,
) -> Score:
    found, wrong, covered, halves, off = {}, 0.0, [], [], []
    drawn: set[tuple[int, int]] = set()
    for effect, hands in groups.items():
        truth = log_truth(setup.model, effect)
        fits = [fit([errors[e][i] for e, i in hand], truth, floored) for hand in hands]
        sides = [side(one, rules) for one in fits]
        places = {place for hand in hands for place in hand}
        drawn |= places
        count = len(places) // design.processes
        wanted = (1,) if effect else (1, -1)
        found[effect] = Rate(float(np.mean([one in wanted for one in sides])), count)
        wrong = max(wrong, sides.count(-1) / len(sides)) if effect else wrong
        intervals = [one.interval(1.0 - rules.alpha) for one in fits]
        covered += [low <= math.exp(truth) <= high for low, high in intervals]
        halves += [0.5 * (high - low) / math.exp(truth) for low, high in intervals]
        off += [abs(one.centre - truth) for one in fits]
    sizes = [one.base.size for of_effect in short.values() for one in of_effect]
    return Score(
        setup=setup,
        design=design,
        estimator=name,
        floored=floored,
        replicates=sum(map(len, short.values())),
        pairs=float(np.median(sizes)),
        found=found,
        wrong_way=wrong,
        covered=Rate(float(np.mean(covered)), len(drawn) // design.processes),
        half_width=float(np.median(halves)),
        error=float(np.median(off)),
    )


def fit(values: Sequence[tuple[float, float]], truth: float, floored: bool) -> LogFit:
    """Student's t over processes as `stats` has it; without the floor no variance is known."""
    given = values if floored else [(value, math.nan) for value, _ in values]
    made = combine(given)
    return replace(made, centre=made.centre + truth)


def scores_table(scores: Iterable[Score], markdown: bool = False) -> str:
    """One row a score."""
    effects = sorted(CALLS)
    head = ["setup", "trial", "estimator", "floor", "n", "pairs", "false"]
    head += [f"{e} % found" for e in effects if e]
    head += ["wrong way", "covered", "half-width", "median error"]
    body = [
        (
            str(one.setup),
            str(one.design),
            one.estimator,
            _yes(one.floored),
            str(one.replicates),
            f"{one.pairs:.0f}",
            *(str(one.found.get(e, "–")) for e in effects),
            f"{one.wrong_way:.0%}",
            str(one.covered),
            percent(one.half_width),
            percent(one.error),
        )
        for one in scores
    ]
    return table(head, body, markdown) if body else "No pool is large enough for any trial."


def summary_table(scores: Iterable[Score], markdown: bool = False) -> str:
    """Each estimator over all setups: mean and worst."""
    groups: dict[tuple[str, Design, str, bool], list[Score]] = {}
    for one in scores:
        where = f"{'one process' if one.setup.together else 'a process an arm'}"
        where += f", {one.setup.allocator}{', loaded' if one.setup.load else ''}"
        groups.setdefault((where, one.design, one.estimator, one.floored), []).append(one)
    effects = sorted(CALLS)
    head = ["arms", "trial", "estimator", "floor", "setups", "false"]
    head += [f"{e} % found" for e in effects if e]
    head += ["covered", "half-width", "median error"]
    body = [
        (
            where,
            str(design),
            estimator,
            _yes(floored),
            str(len(cell)),
            *(_mean_and_worst(cell, effect) for effect in effects),
            _spread([one.covered.value for one in cell], min),
            f"{percent(float(np.median([c.half_width for c in cell])))}"
            f" ({percent(max(c.half_width for c in cell))})",
            percent(float(np.median([c.error for c in cell]))),
        )
        for (where, design, estimator, floored), cell in groups.items()
    ]
    return table(head, body, markdown) + "\n\nMean over setups; in brackets the worst of them."


def _mean_and_worst(cell: Sequence[Score], effect: int) -> str:
    rates = [one.found[effect].value for one in cell if effect in one.found]
    return _spread(rates, min if effect else max) if rates else "–"


def _spread(values: Sequence[float], worst: Callable[[Sequence[float]], float]) -> str:
    return f"{float(np.mean(values)):.0%} ({worst(values):.0%})"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
