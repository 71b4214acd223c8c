"""How much of a time difference is the memory allocator's doing?

An allocator that gives memory back takes it again page by page on the next call. Two arms that
free memory at different moments then differ in page faults, which looks like a speed-up: 1.25 was
measured where nothing had been compiled at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torchstone.records import Check, Level, Measurement, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import estimator, faults_per_call, is_comparable, seconds_per_call
from torchstone.validate.words import duration, name_of, number, percent

NAME = "allocator"
SHARE_OF_STEP = 0.02
"""The default margin: what is smaller than that counts as the same anyway."""
MOST_SHARE = 1.05
"""Ours: faults cannot explain more than the whole; a twentieth is left for the times' own error."""


@dataclass(frozen=True)
class _Faults:
    """Two arms' faults and times per call, in seconds."""

    base_faults: float
    new_faults: float
    cost: float
    base_time: float
    new_time: float

    @property
    def explained(self) -> float:
        """The part of new - base that the faults stand for."""
        return (self.new_faults - self.base_faults) * self.cost

    @property
    def difference(self) -> float:
        return self.new_time - self.base_time

    @property
    def share(self) -> float | None:
        """Of the difference; above 1 where faults explain more than all of it."""
        same_way = self.explained * self.difference > 0
        return self.explained / self.difference if same_way else None

    @property
    def ratio_without(self) -> float | None:
        """The time ratio with the estimated cost of all faults taken out of both arms.

        None where faults would explain more than the whole difference: their cost is then taken
        for too high, and what is left of the times means nothing.
        """
        if self.share is not None and self.share > MOST_SHARE:
            return None
        base = self.base_time - self.base_faults * self.cost
        new = self.new_time - self.new_faults * self.cost
        return new / base if base > 0 and new > 0 else None


def _judge(result: Result) -> Iterator[Check]:
    for arm in result.arms[1:]:
        base = result.arms[0]
        faults = _compare(base, arm, result)
        if faults is None:
            continue
        large = abs(faults.explained) > SHARE_OF_STEP * faults.base_time
        level = Level.WARN if large else Level.OK
        text = _warning(base, arm, faults) if large else _fine(base, arm, faults)
        yield Check(NAME, level, text, _figures(faults), (base.arm.name, arm.arm.name))


def _compare(base: Measurement, arm: Measurement, result: Result) -> _Faults | None:
    """The two arms' faults; None where one has no samples or a fault's cost is unknown."""
    if not (is_comparable(base) and is_comparable(arm)):
        return None
    # One machine, one cost: the lowest reading of all arms is the least disturbed (on a loaded
    # machine readings of one run differed by five times), and claims least.
    costs = [m.fault_cost_ns for m in result.arms if m.fault_cost_ns and m.fault_cost_ns > 0]
    before, after = faults_per_call(base), faults_per_call(arm)
    base_time = seconds_per_call(base, estimator(result))
    ratio = next((c.time_ratio for c in result.comparisons if c.new == arm.arm.name), None)
    new_time = seconds_per_call(arm, estimator(result))
    if base_time and ratio and math.isfinite(ratio):
        new_time = base_time * ratio
    if not costs or before is None or after is None or not base_time or not new_time:
        return None
    return _Faults(before, after, min(costs) / 1e9, base_time, new_time)


def _warning(base: Measurement, arm: Measurement, faults: _Faults) -> str:
    more = "more" if faults.explained > 0 else "less"
    text = (
        f"{name_of(arm)} takes {number(faults.new_faults)} minor page faults a call and "
        f"{name_of(base)} {number(faults.base_faults)}; at {duration(faults.cost)} each that is "
        f"{duration(abs(faults.explained))} {more} a call, {_part(faults)}"
    )
    without = faults.ratio_without
    if without is not None:
        ratio = faults.new_time / faults.base_time
        text += f", and the time ratio without faults would be about {without:.2f}, not {ratio:.2f}"
    return f"{text}. {_remedy(base, arm)}"


def _part(faults: _Faults) -> str:
    share = faults.share
    if share is None:
        return "against the measured difference"
    return "more than the whole difference" if share > 1 else f"{percent(share)} of the difference"


def _remedy(base: Measurement, arm: Measurement) -> str:
    if {base.arm.allocator, arm.arm.allocator} == {"keep"}:
        return "Look for memory that is mapped anew in each call: the allocator keeps its own."
    return "Run again with --allocator keep to compare without it."


def _fine(base: Measurement, arm: Measurement, faults: _Faults) -> str:
    share = percent(abs(faults.explained) / faults.base_time)
    return f"Page faults of {name_of(arm)} and {name_of(base)} differ by {share} of a step."


def _figures(faults: _Faults) -> dict[str, float]:
    figures = {
        "base_faults_per_call": faults.base_faults,
        "new_faults_per_call": faults.new_faults,
        "fault_cost_s": faults.cost,
        "explained_s": faults.explained,
        "difference_s": faults.difference,
        "time_ratio": faults.new_time / faults.base_time,
    }
    if faults.share is not None:
        figures["explained_share"] = faults.share
    if faults.ratio_without is not None:
        figures["time_ratio_without_faults"] = faults.ratio_without
    return figures


ALLOCATOR = FunctionRule(NAME, "the dashboard's runner, measured: glibc giving memory back", _judge)
