"""What a judged result asks to be measured again, before it is believed."""

from __future__ import annotations

from dataclasses import replace

from torchstone.records import Comparison, Level, Result
from torchstone.stats import Utilisation
from torchstone.validate.roofs import WRITE_ALLOWANCE
from torchstone.validate.rules.too_good import NAME as TOO_GOOD
from torchstone.validate.rules.too_good import second_look, suspicious
from torchstone.validate.rules.utilisation import over_full


def needs_recalibration(result: Result) -> list[tuple[str, int]]:
    """Roofs of which an arm reaches more than the whole: a dtype or a memory level, and threads.

    Measure them anew beside the result, put the higher ones into it and judge again; what is
    still over then is wrong.
    """
    return list(dict.fromkeys(roof for _, found in over_full(result) for roof in _beaten(found)))


def _beaten(found: Utilisation) -> list[tuple[str, int]]:
    roofs = []
    if (found.compute or 0.0) > 1:
        roofs.append((found.dtype, found.threads))
    if (found.least_memory or 0.0) > WRITE_ALLOWANCE:
        roofs.append((found.least_level, found.threads))
    return roofs


def wants_second_look(result: Result) -> list[Comparison]:
    """Comparisons that are too good to be believed unless they are measured once more.

    A ratio that was withheld only because it is too good is put back from its check. Arms that
    failed another check are past saving.
    """
    failed = {
        name
        for check in result.checks
        if check.level is Level.FAIL and check.rule != TOO_GOOD
        for name in (check.arms or [arm.arm.name for arm in result.arms])
    }
    return [
        comparison
        for comparison in (_with_ratio(c, result) for c in result.comparisons)
        if suspicious(comparison, result)
        and second_look(comparison, result) is None
        and failed.isdisjoint((comparison.base, comparison.new))
    ]


def _with_ratio(comparison: Comparison, result: Result) -> Comparison:
    if comparison.time_ratio is not None:
        return comparison
    for check in result.checks:
        speedup = check.figures.get("speedup", 0.0)
        if check.rule == TOO_GOOD and comparison.new in check.arms and speedup > 0:
            return replace(comparison, time_ratio=1 / speedup)
    return comparison
