"""Which estimator, how many processes, how many turns: by resampling what was recorded.

A pool holds replicates (two processes that took turns) of one condition. A made-up trial is a
group of whole replicates, drawn without replacement: the pool is shuffled and dealt into disjoint
groups, again and again. Shuffling the same pool again makes the rate steadier but adds no
evidence, so the Clopper-Pearson interval counts one deal's groups as its number of trials.

Fewer turns are a run of neighbouring turns, as a shorter trial would have had; a shorter turn is
the beginning of a turn. The early looks of a real trial are not played, and neither is the rule
that withholds a verdict when floor and typical time contradict each other.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from aa_estimators import COMPETING, is_floor, process_ratio
from aa_journal import Row, number
from aa_ours import decode
from aa_report import clopper_pearson, percent, table

from torchstone.conductor.turn_scheduler import HANDOVER_S, LEAST_SAMPLES
from torchstone.records import Measurement
from torchstone.stats import LogFit, ProcessData, process_data
from torchstone.stats.compare import least_effect
from torchstone.stats.ratio import combine, fastest_probe, speed_weights

NAMES = tuple(COMPETING)
NANOSECONDS = 1e9
LEVEL = 0.95

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """What was measured, under which circumstances; `effect` in per cent."""

    step: str
    threads: int
    load: bool
    effect: int

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.step}, {threads}, {'loaded' if self.load else 'quiet'}, {self.effect} %"

    @property
    def truth(self) -> float:
        """The true log ratio."""
        return math.log1p(self.effect / 100)


@dataclass(frozen=True)
class Pair:
    """One replicate: both processes, and what it took to start them."""

    base: ProcessData
    new: ProcessData
    start_s: float
    loops: int

    @property
    def turns(self) -> list[int]:
        """Turns that both arms had."""
        return sorted(set(self.base.turn.tolist()) & set(self.new.turn.tolist()))


@dataclass(frozen=True)
class Design:
    """How a made-up trial is laid out; None means all there is."""

    replicates: int
    turns: int | None = None
    turn_ms: float | None = None


@dataclass(frozen=True)
class Rules:
    """How it is evaluated."""

    alpha: float = 0.05
    margin: float = 0.02
    aa_floor: float = 0.005


@dataclass(frozen=True)
class Rate:
    """A rate over many deals, with the interval that one deal's number of groups supports."""

    value: float
    groups: int

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson with a count that need not be whole."""
        return clopper_pearson(self.value * self.groups, self.groups, LEVEL)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.0%} ({low:.0%}–{high:.0%})"


@dataclass(frozen=True)
class Cell:
    """One estimator under one design, in one condition."""

    condition: Condition
    estimator: str
    design: Design
    rules: Rules
    different: Rate
    wrong_way: float
    covered: Rate | None
    half_width: float
    error: float
    seconds: float
    usable: float
    """The share of replicates for which the estimator gives a number at all."""


def load_pools(rows: Iterable[Row]) -> dict[Condition, list[Pair]]:
    """Replicates by condition, from live trials and from recorded pools."""
    pools: dict[Condition, list[Pair]] = {}
    for row in rows:
        if row.get("raw"):
            key = Condition(row["step"], row["threads"], row["load"], row["effect"])
            base, new = (decode(raw) for raw in row["raw"])
            pools.setdefault(key, []).extend(pairs(base, new))
    return pools


def pairs(base: Measurement, new: Measurement) -> Iterator[Pair]:
    """The replicates in which both arms have samples."""
    starts = [{r.index: r.start_ns for r in arm.replicates} for arm in (base, new)]
    for replicate in sorted(set(starts[0]) & set(starts[1])):
        both = process_data(base, replicate), process_data(new, replicate)
        if both[0].samples.size and both[1].samples.size:
            # Processes start side by side: the slower one counts.
            start_s = max(start[replicate] for start in starts) / NANOSECONDS
            yield Pair(*both, start_s, base.loops)


def evaluate(
    condition: Condition,
    pool: Sequence[Pair],
    designs: Sequence[Design],
    estimators: Sequence[str] = NAMES,
    rules: Sequence[Rules] = (Rules(),),
    resamples: int = 500,
    seed: int = 0,
) -> Iterator[Cell]:
    """Every estimator under every design; designs that the pool cannot fill are left out."""
    chance = random.Random(seed)
    for turns, turn_ms in dict.fromkeys((d.turns, d.turn_ms) for d in designs):
        long_enough = [pair for pair in pool if turns is None or len(pair.turns) >= turns]
        cut = [shorten(pair, turns, turn_ms, chance) for pair in long_enough]
        values = {name: [log_ratio(pair, name) for pair in cut] for name in estimators}
        fastest = [(fastest_probe(pair.base), fastest_probe(pair.new)) for pair in cut]
        for design in designs:
            if (design.turns, design.turn_ms) != (turns, turn_ms):
                continue
            dealt = list(deal(len(cut), design.replicates, resamples, chance))
            for name in estimators if dealt else ():
                fits = [fit(values[name], fastest, group, is_floor(name)) for group in dealt]
                usable = float(np.mean([math.isfinite(value) for value, _ in values[name]]))
                seconds = design.replicates * float(np.mean([cost(pair) for pair in cut]))
                groups = len(cut) // design.replicates
                for rule in rules:
                    yield evaluated(condition, name, design, rule, fits, groups, seconds, usable)


def fit(
    values: Sequence[tuple[float, float]],
    fastest: Sequence[tuple[float, float]],
    group: Sequence[int],
    weighted: bool,
) -> LogFit:
    """As `stats.fit_ratios` does it."""
    weights = speed_weights([fastest[i] for i in group]) if weighted else None
    return combine([values[i] for i in group], weights)


def evaluated(
    condition: Condition,
    estimator: str,
    design: Design,
    rules: Rules,
    fits: Sequence[LogFit],
    groups: int,
    seconds: float,
    usable: float,
) -> Cell:
    """The rates over all made-up trials."""
    sides = [side(fit, rules) for fit in fits]
    wanted = (1,) if condition.effect else (1, -1)
    known = [fit for fit in fits if fit.replicates >= 2]
    intervals = [fit.interval(1.0 - rules.alpha) for fit in known]
    halves = [0.5 * math.log(high / low) for low, high in intervals if 0.0 < low < high < math.inf]
    covered = [low <= math.exp(condition.truth) <= high for low, high in intervals]
    errors = [abs(fit.centre - condition.truth) for fit in known]
    return Cell(
        condition=condition,
        estimator=estimator,
        design=design,
        rules=rules,
        different=Rate(float(np.mean([s in wanted for s in sides])), groups),
        wrong_way=sides.count(-1) / len(sides) if condition.effect else 0.0,
        covered=Rate(float(np.mean(covered)), groups) if covered else None,
        half_width=float(np.median(halves)) if halves else math.nan,
        error=float(np.median(errors)) if errors else math.nan,
        seconds=seconds,
        usable=usable,
    )


def side(fit: LogFit, rules: Rules) -> int:
    """1 for slower, -1 for faster, 0 for neither: the rule of `stats.compare` for one arm."""
    if fit.replicates < 2 or fit.p_value() > rules.alpha:
        return 0
    if abs(fit.centre) <= math.log1p(least_effect(rules.aa_floor, rules.margin)):
        return 0
    return 1 if fit.centre > 0.0 else -1


def deal(size: int, hand: int, resamples: int, chance: random.Random) -> Iterator[list[int]]:
    """Disjoint groups of `hand` out of `size`, from as many shuffles as `resamples` needs."""
    groups = size // hand
    if not groups:
        return
    cards = list(range(size))
    for _ in range(math.ceil(resamples / groups)):
        chance.shuffle(cards)
        for at in range(groups):
            yield cards[at * hand : (at + 1) * hand]


def shorten(pair: Pair, turns: int | None, turn_ms: float | None, chance: random.Random) -> Pair:
    """Some neighbouring turns of the pair, each cut to its beginning."""
    known = pair.turns
    first = 0 if turns is None else chance.randrange(len(known) - turns + 1)
    kept = np.asarray(known[first:] if turns is None else known[first : first + turns])
    arms = [data.only(np.isin(data.turn, kept)) for data in (pair.base, pair.new)]
    if turn_ms is not None:
        arms = [data.only(_beginnings(data, pair.loops, turn_ms)) for data in arms]
    return Pair(arms[0], arms[1], pair.start_s, pair.loops)


def _beginnings(data: ProcessData, loops: int, turn_ms: float) -> Mask:
    """Which samples begin within `turn_ms` of their turn's start, or are its first few."""
    keep = np.zeros(data.samples.size, dtype=bool)
    for turn in np.unique(data.turn):
        places = np.flatnonzero(data.turn == turn)
        begins = np.concatenate([[0.0], np.cumsum(data.samples[places])[:-1]]) * loops * 1e3
        keep[places] = (begins < turn_ms) | (np.arange(places.size) < LEAST_SAMPLES)
    return keep


def log_ratio(pair: Pair, estimator: str) -> tuple[float, float]:
    """One replicate's log ratio and its variance over turns, as `stats.fit_ratio` takes them."""
    return process_ratio(estimator, pair.base, pair.new)


def cost(pair: Pair) -> float:
    """Seconds that the replicate takes in a real trial, about."""
    samples = float(pair.base.samples.sum() + pair.new.samples.sum()) * pair.loops
    return pair.start_s + samples + 2 * HANDOVER_S * len(pair.turns)


def as_data(cell: Cell) -> Row:
    """The cell for JSON, with the intervals of its rates."""
    data = asdict(cell)
    for name in ("different", "covered"):
        rate = getattr(cell, name)
        if rate is not None:
            data[name]["interval"] = rate.interval
    for name in ("half_width", "error"):
        data[name] = number(data[name])
    return data


def pools_table(cells: Iterable[Cell], markdown: bool = False) -> str:
    """One row a cell."""
    head = ["condition", "estimator", "processes", "turns", "turn", "margin", "different"]
    head += ["wrong way", "covered", "half-width", "median error", "usable", "about"]
    body = [
        (
            str(one.condition),
            one.estimator,
            str(one.design.replicates),
            "all" if one.design.turns is None else str(one.design.turns),
            "whole" if one.design.turn_ms is None else f"{one.design.turn_ms:g} ms",
            f"{one.rules.margin:.1%}",
            str(one.different),
            f"{one.wrong_way:.0%}",
            str(one.covered or "–"),
            percent(None if math.isnan(one.half_width) else one.half_width),
            percent(None if math.isnan(one.error) else one.error),
            f"{one.usable:.0%}",
            f"{one.seconds:.0f} s",
        )
        for one in cells
    ]
    return table(head, body, markdown) if body else "No pool is large enough for any design."
