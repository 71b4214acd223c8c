"""Figures of one arm: the intervals of its times pay for the looks that might have stopped it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tests.stats.synthetic import from_turns, turn
from torchstone import stats
from torchstone.records import Measurement, Result
from torchstone.show.markdown import document
from torchstone.show.rows import LEVEL, arm_table, figures
from torchstone.show.table import Style
from torchstone.show.terminal import timeit_report
from torchstone.store.results import headline, sentence

from . import synthetic_result as made_result

STEP_NS = 5_000_000
PLANNED = 12
WITHIN = 0.01
TRIALS = 600


def processes(spread: np.ndarray) -> Measurement:  # type: ignore[type-arg]
    """One turn each of equal samples: all that differs is the process."""
    levels = [int(level) for level in STEP_NS * np.exp(spread)]
    return from_turns(
        "arm", [turn(i, 0, [ns] * 4, [100_000] * 5, 1) for i, ns in enumerate(levels)]
    )


def stopped(spread: np.ndarray) -> tuple[Measurement, float]:  # type: ignore[type-arg]
    """The measurement when the case ends, as a conductor looks at a single arm, and its alpha."""
    planned = stats.looks(PLANNED)
    for index, count in enumerate(planned):
        alpha = stats.alpha_at(index, planned)
        made = processes(spread[:count])
        found = stats.absolute(made, stats.FLOOR_ESTIMATOR, 1 - alpha)
        if stats.is_precise((found.lo, found.hi), WITHIN):
            break
    return made, alpha


def test_times_of_cases_that_stop_early_are_covered_as_shown() -> None:
    # A spread at which about half of the cases stop early: those whose processes happen to agree.
    rng = np.random.default_rng(20)
    covered = early = at_level = 0
    for _ in range(TRIALS):
        made, alpha = stopped(rng.normal(0.0, 0.008, PLANNED))
        if len(made.replicates) == PLANNED:
            continue
        early += 1
        found = figures(made, alpha)
        assert found is not None
        assert found.floor.interval is not None
        low, high = found.floor.interval
        covered += low <= STEP_NS / 1e9 <= high
        plain = stats.absolute(made, stats.FLOOR_ESTIMATOR, LEVEL)
        at_level += plain.lo <= STEP_NS / 1e9 <= plain.hi
    assert early > TRIALS / 5
    assert covered / early >= 0.93
    assert at_level / early < 0.93  # what does not pay for looking does not hold: the test can tell


def test_every_report_makes_intervals_with_what_the_last_look_left() -> None:
    whole = made_result.two_faster()
    early = replace(whole, method=replace(whole.method, alpha=0.00375))
    late = replace(whole, method=replace(whole.method, alpha=0.05))
    for said in (_document_width, _row_spread, _timeit_line):
        assert said(early) > said(late)


def _document_width(result: Result) -> float:
    low, high = document(result)["arms"][0]["time"]["floor_interval"]
    return float(high - low)


def _row_spread(result: Result) -> float:
    ((_, spread), *_), *_ = arm_table(result, Style()).main.values()
    return float(spread.strip("±% "))


def _timeit_line(result: Result) -> float:
    line = next(line for line in timeit_report(result).splitlines() if "floor" in line)
    low, high = re.findall(r"[\d.]+", line.split("(")[1])[:2]
    return float(high) - float(low)


def test_a_list_has_the_typical_time_where_no_floor_is_known() -> None:
    calm = made_result.single()
    assert ": floor " in sentence(headline(calm))
    (arm,) = calm.arms
    turns = (replace(t, wall_ns=tuple(w << t.replicate for w in t.wall_ns)) for t in arm.turns)
    busy = replace(calm, arms=(replace(arm, turns=tuple(turns)),))
    assert ": typical " in sentence(headline(busy))
