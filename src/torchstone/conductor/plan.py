"""How many processes, turns and samples fit the budget."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from torchstone.conductor.case import Settings
from torchstone.records import UsageError

LEAST_REPLICATES = 4
MOST_REPLICATES = 12
START_SHARE = 0.5
"""Starting processes may take about this share of the budget. More processes narrow an interval
faster than more turns do, until nothing is left for turns (benchmarks/aa.py)."""
LEAST_TURNS = 4
MOST_TURNS = 400
LEAST_SAMPLES = 4
SLOW_SAMPLES = 2
"""Of each process, where a sample is one execution of a statement that takes a second or more."""
LEAST_PASSES = 2
"""A sample that goes through several shapes is several calls, so fewer of them make a turn."""
MOST_SAMPLES = 4000
"""Samples of less than 15 µs come only from a small `timeit -n`; more of them say nothing new."""
LENGTH_SPREAD = 0.5
"""A turn has up to this share more samples than needed, at random: an arm cannot know the last."""
HANDOVER_S = 0.003
MOST_OF_AN_ARM = 2_000_000
"""Samples of all turns and processes. Each is two or three numbers (wall, CPU, probe), and with
those of warm-up they have to stay well under the 10 million that the store keeps of an arm. Samples
of a length that we chose ourselves (0.25 ms and more) do not reach it in twelve processes."""


@dataclass(frozen=True)
class Plan:
    """Fixed when the first replicate is steady."""

    replicates: int
    turns: int
    samples: int | None = None
    """Of a turn, where so many are enough."""
    one_call: bool = False
    """Arms take turns call by call, so that neighbours in time are pairs."""

    @property
    def most_samples(self) -> int:
        """Of a turn, before the random few more: what all turns together can be kept with."""
        turns = self.replicates * self.turns
        return max(LEAST_SAMPLES, int(MOST_OF_AN_ARM / (1 + LENGTH_SPREAD)) // turns)


def check_asked(settings: Settings) -> None:
    """Refuse, before anything runs, more samples than can be kept."""
    if settings.samples is None:
        return
    most = MOST_OF_AN_ARM // max(1, settings.replicates or LEAST_REPLICATES)
    if settings.samples > most:
        raise UsageError(
            f"{settings.samples} samples in each process are more than can be kept.",
            f"Ask for at most {most}.",
        )


def make_plan(
    settings: Settings,
    start_s: float,
    cycle_s: float,
    slow_sample_s: float = 0.0,
    one_call: bool = False,
) -> Plan:
    """Replicates and turns per replicate, given what one replicate's start and one cycle cost.

    The budget is time for turns; starting the processes comes on top, and what that takes says how
    many there are. `slow_sample_s`: of a statement so slow that each execution counts; then there
    is one turn.
    """
    if settings.replicates is not None:
        replicates = max(1, settings.replicates)
    else:
        by_share = 1 + int(START_SHARE * settings.budget_s / max(start_s, 1e-3))
        kept = MOST_OF_AN_ARM // max(1, settings.samples or 1)
        replicates = min(MOST_REPLICATES, max(LEAST_REPLICATES, min(by_share, kept)))
    if settings.samples is not None:
        return Plan(replicates, 1)
    if slow_sample_s:
        fit = int(settings.budget_s / replicates / slow_sample_s) - 1  # the first one is apart
        return Plan(replicates, 1, min(MOST_SAMPLES, max(SLOW_SAMPLES, fit)))
    turns = math.floor(settings.budget_s / replicates / max(cycle_s, 1e-6))
    return Plan(replicates, min(MOST_TURNS, max(LEAST_TURNS, turns)), one_call=one_call)


def samples_per_turn(
    settings: Settings, plan: Plan, sample_ns: int, chance: random.Random, shapes: int = 1
) -> int:
    """Enough for the turn's shortest length, or what can be kept, and a random few more."""
    asked = settings.samples if plan.samples is None else plan.samples
    if asked is not None:
        return asked
    least = min(plan.most_samples, _least_samples(settings, sample_ns, shapes))
    return least + chance.randint(0, max(1, int(least * LENGTH_SPREAD)))


def _least_samples(settings: Settings, sample_ns: int, shapes: int) -> int:
    needed = math.ceil(settings.turn_ns / max(sample_ns, 1))
    least = max(LEAST_PASSES, math.ceil(LEAST_SAMPLES / shapes))
    return min(MOST_SAMPLES, max(least, needed))


def cycle_seconds(
    settings: Settings, sample_ns: list[int], shapes: int = 1, one_call: bool = False
) -> float:
    """One turn of every arm, with hand-over, first and final call."""
    if one_call:
        return sum(ns / 1e9 * 1.05 + HANDOVER_S for ns in sample_ns)
    total = 0.0
    for ns in sample_ns:
        least = _least_samples(settings, ns, shapes)
        total += (least * (1 + LENGTH_SPREAD / 2) + 2) * ns / 1e9 * 1.05 + HANDOVER_S
    return total
