"""Did the core itself run at full speed? The probe sees what the system's counters miss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchstone.records import Check, Level, Measurement
from torchstone.stats import (
    PAIRS_ESTIMATOR,
    ProcessData,
    estimator_of,
    process_data,
    replicates_with_samples,
)
from torchstone.stats.estimators import MIN_GATED, PROBE_TOLERANCE
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import count, name_of, percent

NAME = "probe"
SLOW_SHARE = 0.50
"""Ours: beyond half, the typical time is the slow core's, not the arm's."""
FEW_SHARE = 0.50
"""Ours: one process in many without quiet samples is chance; half of them is the machine."""


def _look(arm: Measurement) -> Iterator[Check]:
    processes = [_count(process_data(arm, r)) for r in replicates_with_samples(arm)]
    probed = sum(known for known, _ in processes)
    if not probed:
        return
    share = 1 - sum(clean for _, clean in processes) / probed
    few = sum(clean < MIN_GATED for _, clean in processes)
    figures = {
        "slow_share": share,
        "samples": float(probed),
        "fewest_clean": float(min(clean for _, clean in processes)),
        "processes_with_few": float(few),
    }
    level, text = _words(arm, share, few, len(processes))
    yield Check(NAME, level, text, figures, (arm.arm.name,))


def _count(process: ProcessData) -> tuple[int, int]:
    """Samples with a probe on both sides, and those of them between two at full speed."""
    known = np.isfinite(process.probe_before) & np.isfinite(process.probe_after)
    if not known.any():
        return 0, 0
    slowest = np.maximum(process.probe_before[known], process.probe_after[known])
    fastest = min(process.probe_before[known].min(), process.probe_after[known].min())
    return int(known.sum()), int((slowest <= fastest * (1 + PROBE_TOLERANCE)).sum())


def _words(arm: Measurement, share: float, few: int, processes: int) -> tuple[Level, str]:
    if few >= FEW_SHARE * processes and estimator_of(arm) != PAIRS_ESTIMATOR:
        return Level.WARN, (
            f"{few} of {count(processes, 'process', 'processes')} of {name_of(arm)} have fewer "
            f"than {MIN_GATED} samples taken while the core ran at full speed "
            f"({percent(share)} of all samples were beside a slow probe). Run it on a quieter "
            "machine or with a longer --budget; a floor may not have been met."
        )
    if share > SLOW_SHARE:
        return Level.NOTE, (
            f"The core itself ran slow most of the time: {percent(share)} of the samples of "
            f"{name_of(arm)} were beside a probe more than {percent(PROBE_TOLERANCE)} above its "
            f"floor. {_stands(arm)} Take the typical time with caution, or measure on a quieter "
            "machine."
        )
    text = f"The core ran at full speed for {percent(1 - share)} of the samples of {name_of(arm)}."
    return Level.OK, text


def _stands(arm: Measurement) -> str:
    """What a ratio rests on all the same."""
    if estimator_of(arm) == PAIRS_ESTIMATOR:
        return "Ratios are of calls that were slow together."
    return "Floors stand on the rest."


PROBE = FunctionRule(NAME, "R15, and the probe of trials on a shared machine", each_arm(_look))
