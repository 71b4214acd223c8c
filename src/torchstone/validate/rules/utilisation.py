"""Is more claimed than the machine can do?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement, Result
from torchstone.stats import Utilisation
from torchstone.validate.base import FunctionRule
from torchstone.validate.roofs import WRITE_ALLOWANCE, fullest, reached
from torchstone.validate.words import name_of, percent

NAME = "utilisation"
FULL = 1.00
"""R1: nothing does more than the peak."""
IMPOSSIBLE = 1.05
"""Ours: a peak is the best of many short samples and may have been missed by some per cent. What is
still above after calibrating again is wrong."""


def over_full(result: Result) -> Iterator[tuple[Measurement, Utilisation]]:
    """The arms that reach more than the whole of a roof."""
    for arm in result.arms:
        found = reached(arm, result)
        if found is not None and fullest(found) > FULL:
            yield arm, found


def _judge(result: Result) -> Iterator[Check]:
    for arm in result.arms:
        found = reached(arm, result)
        if found is not None:
            yield _look(arm, found)


def _look(arm: Measurement, found: Utilisation) -> Check:
    figures, who = _figures(found), (arm.arm.name,)
    worst = fullest(found)
    if worst <= FULL:
        text = f"{name_of(arm)} claims no more than the calibrated roofs allow."
        return Check(NAME, Level.OK, text, figures, who)
    said = f"{name_of(arm)} reads {_claim(found)}"
    if worst <= IMPOSSIBLE:
        text = (
            f"{said}: just over what was calibrated. Calibrate again when the machine is quiet "
            "(torchstone doctor --calibrate)."
        )
        return Check(NAME, Level.WARN, text, figures, who)
    text = (
        f"{said}, which cannot be: the time, the count or the roof is wrong. Calibrate again "
        "(torchstone doctor --calibrate); if it stays, look for work that the arm leaves out, for "
        "operations counted twice, or for an algorithm that needs fewer of them than its formula "
        "says (Winograd)."
    )
    return Check(NAME, Level.FAIL, text, figures, who)


def _claim(found: Utilisation) -> str:
    compute, memory = found.compute or 0.0, found.least_memory or 0.0
    if compute >= memory / WRITE_ALLOWANCE:
        threads = f" at {found.threads} thread{'s' * (found.threads != 1)}" if found.threads else ""
        return f"{percent(compute)} of the {found.dtype} peak{threads}"
    return f"{percent(memory)} of the bandwidth of {found.least_level}"


def _figures(found: Utilisation) -> dict[str, float]:
    shares = {
        "compute_share": found.compute,
        "memory_share": found.memory,
        "least_memory_share": found.least_memory,
    }
    known = {name: share for name, share in shares.items() if share is not None}
    return {**known, "time_covered": found.time_covered}


UTILISATION = FunctionRule(NAME, "R1: utilisation over 100 % is an error, never clamped", _judge)
