"""Did the arm work on after it had said that it was done?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from torchstone.records import Check, Level, Measurement, Turn
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.facts import busy_limit
from torchstone.validate.words import duration, name_of

NAME = "late-work"
SPIN_NS = 10_000_000
"""Per thread: idle OpenMP threads spin on for some milliseconds after a call (libgomp)."""
WALL_SHARE = 0.20
"""Ours: late work that matters is a good part of the turn's own work."""
MOST_TURNS = 0.50
"""Ours: a single turn may meet a collector or a thread that is just ending."""
LONG_SPIN_NS = (180_000_000, 230_000_000)
"""Other OpenMP run times spin for 200 ms by default (KMP_BLOCKTIME) and then stop."""

_REMEDY = "Wait for threads and queues inside the timed call, so that their work is counted."


def _look(arm: Measurement) -> Iterator[Check]:
    turns = [turn for turn in arm.turns if _known(turn)]
    if not turns:
        return
    late = [turn for turn in turns if _is_late(turn, busy_limit(arm))]
    restless = [turn for turn in turns if _never_quiet(turn)]
    usual = median(turn.noise.late_cpu_ns or 0 for turn in turns) / 1e9
    figures = {
        "late_turns": float(len(late)),
        "never_quiet_turns": float(len(restless)),
        "turns": float(len(turns)),
        "median_late_s": usual,
        "new_threads": float(arm.integrity.new_threads if arm.integrity else 0),
    }
    level, text = _words(arm, late, restless, len(turns), duration(usual))
    yield Check(NAME, level, text, figures, (arm.arm.name,))


def _words(
    arm: Measurement, late: list[Turn], restless: list[Turn], turns: int, usual: str
) -> tuple[Level, str]:
    name = name_of(arm)
    if len(restless) >= MOST_TURNS * turns:
        found = (
            f"{name} never came to rest after {len(restless)} of {turns} turns (typically "
            f"{usual} of CPU time after it had reported the end)."
        )
        return Level.FAIL, f"{found} {_REMEDY}"
    if len(late) < MOST_TURNS * turns:
        return Level.OK, f"{name} is quiet when it says that it is done."
    if _spins_long(late, busy_limit(arm)):
        return Level.WARN, (
            f"{name} uses {usual} of CPU time after a turn and stops after about 200 ms, as some "
            "OpenMP run times do when they spin. Run again with --env KMP_BLOCKTIME=0 to tell "
            "that from work done late."
        )
    found = (
        f"{name} goes on working after {len(late)} of {turns} turns: typically {usual} of CPU "
        "time after it had reported the end."
    )
    return Level.FAIL, f"{found} {_REMEDY}"


def _known(turn: Turn) -> bool:
    """Never quiet and yet no CPU time is what a system leaves that does not say."""
    noise = turn.noise
    return noise.late_cpu_ns is not None and (
        noise.late_cpu_ns > 0 or noise.quiet_after_ns is not None
    )


def _is_late(turn: Turn, threads: int) -> bool:
    late = turn.noise.late_cpu_ns or 0
    return late > max(SPIN_NS * threads, WALL_SHARE * turn.noise.wall_ns)


def _never_quiet(turn: Turn) -> bool:
    """Never at rest, with more than a spin's worth of work.

    On a crowded machine honest threads may be spinning still, because they hardly got the CPU.
    """
    return turn.noise.quiet_after_ns is None and (turn.noise.late_cpu_ns or 0) > SPIN_NS


def _spins_long(late: list[Turn], threads: int) -> bool:
    """All of them stop at the spin limit; one thread alone has nobody to spin for."""
    low, high = LONG_SPIN_NS
    return threads > 1 and all(low <= (t.noise.quiet_after_ns or 0) <= high for t in late)


LATE_WORK = FunctionRule(NAME, "R13: no thread does the work later", each_arm(_look))
