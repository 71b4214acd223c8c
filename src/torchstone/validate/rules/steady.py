"""Did every process settle before it was timed?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from torchstone.records import Check, Level, Measurement, WarmUp
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import count, name_of

NAME = "steady"
MOST_REASONS = 2
FIRST_CALL = 5.0
"""Ours: a sample of five times the process's median, and its slowest, stands where a first call
(building, compiling, filling caches) would. Noise puts the slowest sample anywhere."""
FEWEST_SAMPLES = 8
"""Ours: in fewer samples the first is the slowest by chance too often."""
FEWEST_PROCESSES = 2
"""Ours: in one process it may be chance; a first call that is timed stands in every one."""


def _look(arm: Measurement) -> Iterator[Check]:
    processes = arm.replicates
    if not processes:
        return
    restless = [p.warm_up for p in processes if not _settled(p.warm_up)]
    first = first_calls(arm)
    figures = {
        "unsteady": float(len(restless)),
        "processes": float(len(processes)),
        "first_calls": float(first),
    }
    who = (arm.arm.name,)
    if restless:
        yield Check(NAME, Level.WARN, _restless(arm, restless), figures, who)
    if first >= max(FEWEST_PROCESSES, len(processes)):
        text = (
            f"In all {first} processes of {name_of(arm)} the first sample is the slowest and over "
            f"{FIRST_CALL:.0f} times the median: a first call is timed with the rest. Warm it up "
            "until nothing is built or compiled any more."
        )
        yield Check(NAME, Level.WARN, text, figures, who)
    elif not restless:
        yield Check(NAME, Level.OK, f"{name_of(arm)} was steady.", figures, who)


def _settled(warm_up: WarmUp) -> bool:
    return warm_up.steady and bool(warm_up.wall_ns)


def _restless(arm: Measurement, restless: list[WarmUp]) -> str:
    said = (w.reason or ("" if w.wall_ns else "it made no call to warm up") for w in restless)
    reasons = list(dict.fromkeys(filter(None, said)))[:MOST_REASONS]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"{name_of(arm)} had not settled when timing began in {len(restless)} of "
        f"{count(len(arm.replicates), 'process', 'processes')}{why}. Run it on a quieter machine, "
        "or look for work that changes from call to call: shapes that recompile, growing state."
    )


def first_calls(arm: Measurement) -> int:
    """Processes in whose samples the first stands out as a first call does."""
    found = 0
    for index in {turn.replicate for turn in arm.turns}:
        turns = sorted((t for t in arm.turns if t.replicate == index), key=lambda t: t.index)
        samples = [wall for turn in turns for wall in turn.wall_ns]
        if len(samples) < FEWEST_SAMPLES:
            continue
        found += samples[0] == max(samples) and samples[0] > FIRST_CALL * median(samples)
    return found


STEADY = FunctionRule(NAME, "the method: warm up until steady, else say so", each_arm(_look))
