"""What does the memory allocator add to the times?

An allocator that gives memory back takes it again page by page on the next call. Two arms that
free memory at different moments then differ in page faults, which looks like a speed-up: 1.25 was
measured where nothing had been compiled at all. Counted faults say that this happens; what it costs
is only known from an arm that does the same work with another allocator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torchstone.records import Check, Comparison, Level, Measurement, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import estimator, faults_per_call, is_comparable, seconds_per_call
from torchstone.validate.words import name_of, number

NAME = "allocator"
SHARE_OF_STEP = 0.02
"""The default margin: what is smaller than that counts as the same anyway."""
_WORDS = {"default": "the system's own allocator", "keep": "memory kept"}


@dataclass(frozen=True)
class _Faults:
    """Two arms' minor page faults per call, and what they could matter: a share of a step.

    The share is only for the question whether to speak of them. Faults cost what the moment makes
    of them (readings of one run differed by five times), so no figure is made from it.
    """

    base: float
    new: float
    share: float


def _judge(result: Result) -> Iterator[Check]:
    base = result.arms[0] if result.arms else None
    for arm in result.arms[1:]:
        assert base is not None
        if _same_work(base, arm):
            yield from _measured(base, arm, result)
        else:
            yield from _counted(base, arm, result)


def _same_work(base: Measurement, arm: Measurement) -> bool:
    """Whether the two differ in their allocator and in nothing else."""
    alike = replace(base.arm, name=arm.arm.name, allocator=arm.arm.allocator) == arm.arm
    return alike and base.arm.allocator != arm.arm.allocator


def _measured(base: Measurement, arm: Measurement, result: Result) -> Iterator[Check]:
    """What the one allocator costs, from the comparison with the other."""
    found = next((c for c in result.comparisons if c.new == arm.arm.name), None)
    if found is None or not found.time_ratio or found.interval is None:
        return
    figures = {"time_ratio": found.time_ratio}
    figures |= dict(zip(("low", "high"), found.interval, strict=True))
    for name, faults in (("base", faults_per_call(base)), ("new", faults_per_call(arm))):
        if faults is not None:
            figures[f"{name}_faults_per_call"] = faults
    text = _cost(base, arm, found)
    yield Check(NAME, Level.NOTE, text, figures, (base.arm.name, arm.arm.name))


def _cost(base: Measurement, arm: Measurement, found: Comparison) -> str:
    """Always of another allocator against memory kept, where one of the two keeps it."""
    ratio, (low, high) = found.time_ratio or 0.0, found.interval or (0.0, 0.0)
    of, against = arm, base
    if arm.arm.allocator == "keep" and low > 0:
        of, against = base, arm
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    unproven = " So the data cannot tell whether it costs anything." if low <= 1 <= high else ""
    return (
        f"{_title(of).capitalize()} takes {ratio:.2f}× the time of {_title(against)} here "
        f"({low:.2f} to {high:.2f}), measured: {name_of(of)} against {name_of(against)}.{unproven}"
    )


def _title(arm: Measurement) -> str:
    return _WORDS.get(arm.arm.allocator, arm.arm.allocator)


def _counted(base: Measurement, arm: Measurement, result: Result) -> Iterator[Check]:
    """Page faults, where they are so many or so different that the allocator may matter."""
    faults = _compare(base, arm, result)
    if faults is None:
        return
    large = faults.share > SHARE_OF_STEP
    text = (
        f"{name_of(arm)} takes {number(faults.new)} minor page faults a call and {name_of(base)} "
        f"{number(faults.base)}"
    )
    text += f". {_remedy(base, arm, result)}" if large else ": too few to matter."
    figures = {"base_faults_per_call": faults.base, "new_faults_per_call": faults.new}
    level = Level.WARN if large else Level.OK
    yield Check(NAME, level, text, figures, (base.arm.name, arm.arm.name))


def _compare(base: Measurement, arm: Measurement, result: Result) -> _Faults | None:
    """The two arms' faults; None where one has no samples or a fault's cost is unknown."""
    if not (is_comparable(base) and is_comparable(arm)):
        return None
    # One machine, one cost: the lowest reading of all arms is the least disturbed.
    costs = [m.fault_cost_ns for m in result.arms if m.fault_cost_ns and m.fault_cost_ns > 0]
    before, after = faults_per_call(base), faults_per_call(arm)
    base_time = seconds_per_call(base, estimator(result))
    if not costs or before is None or after is None or not base_time:
        return None
    return _Faults(before, after, abs(after - before) * min(costs) / 1e9 / base_time)


def _remedy(base: Measurement, arm: Measurement, result: Result) -> str:
    used = {base.arm.allocator, arm.arm.allocator}
    if used == {"keep"}:
        return "Look for memory that is mapped anew in each call: the allocator keeps its own."
    if any(_same_work(base, other) or _same_work(arm, other) for other in result.arms):
        return "What that costs, the arm with the other allocator says."
    first = name_of(result.arms[0])
    return (
        "So the difference in time may be the allocator's in part: --allocator keep compares "
        f'without it, and --arm "name=keep allocator=keep" measures what it costs {first}.'
    )


ALLOCATOR = FunctionRule(NAME, "the dashboard's runner, measured: glibc giving memory back", _judge)
