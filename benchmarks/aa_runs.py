"""Two runs of the same commit, compared: how often is a model called slower or faster?

A quick-tier run is six models. One is played by drawing three recorded processes (`aa_real.py
record`) for each; its twin gets three others of the same recording, so the two differ by the
machine's noise alone. Both go through `torchstone compare` itself. The same again with one model
that is 5 or 10 % slower in the second run says what such a comparison can find.

    python benchmarks/aa_runs.py benchmarks/results/aa-real-pools.jsonl --pairs 1000
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from aa_journal import read_rows
from aa_real_pools import Replicate, error_of, fit, load_pools
from aa_real_record import Setup

from torchstone.records import CaseKey, CaseMetrics, Outcome, PlannedCase, Run, Verdict
from torchstone.stats import share_interval
from torchstone.stats.estimators import PAIRS_ESTIMATOR, deciding_estimator, median_variance
from torchstone.track.compare import compare
from torchstone.track.terms import Side, head_of

MODELS, PROCESSES = 6, 3
SLOWDOWNS = (0.0, 0.05, 0.10)
Pools = Mapping[Setup, Sequence[Replicate]]


def log_ratio(one: Replicate, base_s: float) -> tuple[float, float]:
    """A process's log ratio and its variance, by the estimator that decides for such a step."""
    if deciding_estimator(base_s * 1e9) != PAIRS_ESTIMATOR:
        return error_of(one, "floor")
    logs = np.log(one.new / one.base) - one.truth
    return float(np.median(logs)), median_variance(logs)


def played(setup: Setup, drawn: Sequence[Replicate], slower: float) -> CaseMetrics:
    """The case that a run would store, had these processes been its own."""
    base_s = float(np.median(np.concatenate([one.base for one in drawn])))
    found = fit([log_ratio(one, base_s) for one in drawn], math.log1p(slower), True)
    low, high = found.interval(0.95)
    key = CaseKey("recorded", str(setup), "", "inference", "fp32", "inductor", threads=1)
    return CaseMetrics(
        key,
        Outcome.OK,
        speedup=math.exp(-found.centre),
        interval=(1 / high, 1 / low),
        log_error=found.std_error,
        log_freedom=float(found.df),
        base_ns=base_s * 1e9,
        new_ns=base_s * 1e9 * math.exp(found.centre),
        replicates=len(drawn),
    )


def run_of(name: str, cases: Sequence[CaseMetrics]) -> Side:
    """A run of these cases."""
    plan = tuple(PlannedCase(one.key, one.key.model) for one in cases)
    run = Run(id=name, created="2026-01-01T00:00:00+00:00", command=(), plan=plan, machine_id="m")
    return Side(head_of(run, tuple(cases)), tuple(cases))


def called(pools: Pools, slower: float, chance: random.Random) -> dict[str, Verdict | None]:
    """The verdict of each model of one pair of runs; the first is slower in the second one."""
    sides: tuple[list[CaseMetrics], list[CaseMetrics]] = ([], [])
    for place, setup in enumerate(chance.sample(list(pools), MODELS)):
        drawn = chance.sample(list(pools[setup]), 2 * PROCESSES)
        sides[0].append(played(setup, drawn[:PROCESSES], 0.0))
        sides[1].append(played(setup, drawn[PROCESSES:], 0.0 if place else slower))
    found = compare(run_of("base", sides[0]), run_of("new", sides[1]))
    assert not found.refused, found.refused
    return {one.key.model: one.verdict for one in found.cases}


def main() -> None:
    """Parse, play, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    recorded = load_pools(read_rows(asked.files))
    pools = {
        setup: pool[0]
        for setup, pool in recorded.items()
        if not setup.together and len(pool.get(0, ())) >= 2 * PROCESSES
    }
    print(f"{len(pools)} recorded models and thread counts; {MODELS} a run, {PROCESSES} processes")
    for slower in SLOWDOWNS:
        chance = random.Random(f"{asked.seed} {slower}")
        pairs = [list(called(pools, slower, chance).values()) for _ in range(asked.pairs)]
        others = [one[1:] if slower else one for one in pairs]
        wrong = sum(any(v is not None and v.different for v in one) for one in others)
        low, high = share_interval(wrong, asked.pairs)
        words = f"{wrong} of {asked.pairs} pairs ({low:.1%} to {high:.1%})"
        print(f"{slower:+.0%}: an unchanged model called slower or faster in {words}", end="")
        hit = sum(one[0] is Verdict.SLOWER for one in pairs)
        print(f"; the changed one found in {hit / asked.pairs:.0%}" if slower else "")


if __name__ == "__main__":
    main()
