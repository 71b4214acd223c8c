"""From a measured comparison to a decision: adopted, rejected, or not to be told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchstone.conductor.extra_checks import STEPS_RATIO
from torchstone.conductor.run import OUT_OF_TIME
from torchstone.conductor.solo import HOPELESS
from torchstone.records import (
    Agreement,
    Comparison,
    Decision,
    Experiment,
    Measurement,
    Outcome,
    Result,
    Stage,
    Verdict,
)
from torchstone.records.format import format_percent
from torchstone.stats import compare_all, least_effect
from torchstone.tuning.plan import work_of
from torchstone.validate import AGREE_WITHIN, needs_remeasuring
from torchstone.variants.techniques import TECHNIQUES
from torchstone.variants.techniques.base import BITWISE, TOLERANCE

MEMORY_MARGIN = 0.02
"""A peak of tensors is counted exactly, so this is what is worth a step, not noise."""
MOST_SLOWDOWN = 2.0
"""Nobody takes a step twice as long for less memory unasked."""
NO_TIME = "stopped before a sample was taken: its part of the budget was spent"
HOPELESS_RATIO = 3.0
"""A technique that alone takes three times the baseline's step is not measured in turns."""


def rules(goal: str, allow: str, alpha: float, margin: float, techniques: int) -> tuple[str, ...]:
    """What is fixed before the first experiment, for the report."""
    gain = "takes less time" if goal != "memory" else f"needs {MEMORY_MARGIN:.0%} less memory"
    return (
        f"Every technique that applies ({techniques}) is measured alone against the baseline, as "
        "far as the budget reaches.",
        f"It is tested again on top of what is adopted, with data of its own, unless it is known "
        f"not to gain. It is adopted where it {gain} at the level {format_percent(alpha)} divided "
        "by the number of these tests, so that the chance of any false adoption is at most "
        f"{format_percent(alpha)}.",
        f"A difference below {format_percent(margin / 2)} is never adopted.",
        f"One whose step alone takes more than {HOPELESS_RATIO:g} times the baseline's is stopped "
        "early; a case ends as soon as every arm in it is decided.",
        f"Answers may be: {allow}. Those of timed calls are compared, and those to the inputs with "
        "which a technique is known to fail.",
        "What was adopted is confirmed in new processes from the recipe file.",
    )


@dataclass(frozen=True)
class Rule:
    """By what an experiment is decided."""

    goal: str
    allow: str
    margin: float
    alpha: float


def outcome_of(arm: Measurement, out_of_time: bool = False) -> tuple[Decision, str] | None:
    """The decision of an arm that did not do its work, in a case that may have run out of time;
    None where it did."""
    said = arm.detail.message or arm.outcome.words
    if arm.outcome is Outcome.OK:
        return None
    if arm.outcome is Outcome.WRONG_ANSWER:
        return Decision.WRONG_ANSWER, said
    if arm.outcome is Outcome.NOT_SUPPORTED:
        return Decision.NOT_APPLICABLE, said
    if arm.outcome is Outcome.NOT_RUN:
        if said.startswith(HOPELESS):
            return Decision.STOPPED, said
        return Decision.NOT_RUN, NO_TIME if out_of_time else said
    if arm.outcome is Outcome.NONDETERMINISTIC:
        return Decision.CANNOT_TELL, f"no fixed answer to compare with: {said}"
    return Decision.FAILED, f"{arm.outcome.words}: {said}"


def decide(
    experiment: Experiment,
    result: Result,
    name: str,
    rule: Rule,
    earlier: Experiment | None = None,
) -> Experiment:
    """The experiment with what its case says of the arm of that name; `earlier` measured the same
    two arms in other processes with other inputs."""
    base, arm = result.arms[0], next(one for one in result.arms if one.arm.name == name)
    comparison = next((one for one in result.comparisons if one.new == name), None)
    if comparison is not None and comparison.time_ratio is None:
        comparison = _believed(comparison, result, rule, experiment.stage, earlier)
    made = replace(_with_figures(experiment, base, arm, comparison, rule), result_id=result.id)
    out_of_time = result.method.stopped_by == OUT_OF_TIME
    ended = outcome_of(base, out_of_time) or outcome_of(arm, out_of_time)
    if ended is not None:
        return replace(made, decision=ended[0], reason=ended[1])
    if rule.allow == BITWISE and made.shown_tier != BITWISE:
        said = "its answers are not the baseline's bit for bit"
        return replace(made, decision=Decision.REJECTED, reason=said)
    decided = _by_memory(made) if rule.goal == "memory" else _by_time(made, comparison, rule)
    return replace(made, decision=decided[0], reason=decided[1])


def _believed(
    comparison: Comparison, result: Result, rule: Rule, stage: Stage, earlier: Experiment | None
) -> Comparison:
    """A gain that looked too good was measured twice. Where the two looks differ, the verdict is
    withheld; where both are far from no gain, there is one, and the smaller of the two counts.
    Where no time was left for the second, an earlier experiment stands for it; screening adopts
    nothing, so there the first look is enough."""
    looks = [one for one in result.remeasurements if one.new == comparison.new]
    again = looks[-1] if looks else None
    if again is None or (again.outcome == "ok" and not again.speedup):
        doubted = needs_remeasuring(replace(result, remeasurements=()))
        first = next((one for one in doubted if one.new == comparison.new), comparison)
        if stage is Stage.SCREEN or first.speedup is None:
            return first
        return _seen_before(first, result, rule, earlier) or comparison
    if again.outcome != "ok" or not again.speedup or not again.interval:
        return comparison
    edge = 1 / (1 + least_effect(comparison.aa_floor, rule.margin))
    if not again.interval[1] < edge or again.first_speedup < 1 / edge:
        return comparison
    ratio = 1 / min(again.speedup, again.first_speedup)
    low, high = again.interval
    ends = (min(low, ratio), max(high, ratio))
    return replace(comparison, verdict=Verdict.FASTER, time_ratio=ratio, interval=ends)


def _seen_before(
    first: Comparison, result: Result, rule: Rule, earlier: Experiment | None
) -> Comparison | None:
    """The comparison as its samples have it, where an earlier one came to the same ratio."""
    if earlier is None or earlier.speedup is None or first.speedup is None:
        return None
    if abs(math.log(earlier.speedup / first.speedup)) > 2 * math.log1p(AGREE_WITHIN):
        return None
    alpha = result.method.alpha
    made = compare_all(result.arms, rule.margin, alpha, first.aa_floor)
    return next((one for one in made if one.new == first.new), None)


def _with_figures(
    made: Experiment,
    base: Measurement,
    arm: Measurement,
    comparison: Comparison | None,
    rule: Rule,
) -> Experiment:
    ratio, interval = _ratio(comparison, rule)
    agreed, peaks = arm.agreement, [_peak(one) for one in (base, arm)]
    factor = _factor(made, agreed)
    if ratio is not None and factor != 1.0:
        ratio, interval = ratio * factor, interval and (interval[0] * factor, interval[1] * factor)
    shown = ""
    if agreed is not None and agreed.method != "none" and not agreed.mismatch:
        shown = BITWISE if agreed.identical else TOLERANCE
    made = replace(
        made,
        time_ratio=ratio,
        interval=interval,
        alpha=rule.alpha,
        memory_ratio=peaks[1] / peaks[0] if peaks[0] and peaks[1] else None,
        peak_bytes=peaks[1],
        shown_tier=shown,
        metric=agreed.quality.get("metric") if agreed else None,
        conditions=_conditions(made, agreed.adversarial if agreed else {}),
    )
    return _with_break_even(made, base, arm)


def _ratio(
    comparison: Comparison | None, rule: Rule
) -> tuple[float | None, tuple[float, float] | None]:
    if comparison is None:
        return None, None
    if rule.goal == "latency" and comparison.typical is not None:
        ends = comparison.typical.interval
        finite = all(math.isfinite(end) for end in ends)
        return comparison.typical.time_ratio, ends if finite else None
    return comparison.time_ratio, comparison.interval


def _factor(made: Experiment, agreed: Agreement | None) -> float:
    """From the time of a call to that of the same work: of as many rows, of training to the same
    loss. Both sides of a test have what is adopted already."""
    names = made.on if made.stage is Stage.CONFIRM else (made.technique,)
    steps = agreed.quality.get(STEPS_RATIO, 1.0) if agreed else 1.0
    return steps / work_of(names)


def _peak(arm: Measurement) -> int | None:
    if arm.memory is None:
        return None
    return arm.memory.tensor_peak_bytes or arm.memory.peak_bytes


def _conditions(made: Experiment, found: object) -> tuple[str, ...]:
    if not isinstance(found, dict) or made.technique not in TECHNIQUES:
        return ()
    wanted = {case for name in made.techniques for case in TECHNIQUES[name].conditions}
    return tuple(
        f"not with {case}: {said}"
        for case, said in found.items()
        if case in wanted and said and not said.startswith("does not apply")
    )


def _with_break_even(made: Experiment, base: Measurement, arm: Measurement) -> Experiment:
    """What compiling costs more than the baseline's first call, in calls that are saved."""
    if arm.compile is None or base.compile is None or arm.compile.cold_ns is None:
        return made
    steady = base.compile.steady_ns / 1e9
    cost = max(0, arm.compile.cold_ns - (base.compile.cold_ns or 0)) / 1e9
    saved = steady * (1 - made.time_ratio) if made.time_ratio else 0.0
    return replace(
        made,
        step_s=steady * made.time_ratio if made.time_ratio else None,
        compile_s=cost,
        break_even_calls=cost / saved if saved > 0 else None,
    )


def _by_memory(made: Experiment) -> tuple[Decision, str]:
    ratio, slower = made.memory_ratio, made.time_ratio or 1.0
    if ratio is None:
        return Decision.CANNOT_TELL, "the memory of its tensors is not known"
    if ratio > 1 - MEMORY_MARGIN:
        return (
            Decision.REJECTED,
            f"its peak of tensors is {format_percent(ratio)} of the baseline's",
        )
    if slower > MOST_SLOWDOWN:
        return Decision.REJECTED, f"it takes {slower:.1f} times as long"
    said = f"its peak of tensors is {format_percent(ratio)} of what it was"
    return (Decision.PROMISING if made.stage is Stage.SCREEN else Decision.ADOPTED), said


def _by_time(made: Experiment, comparison: Comparison | None, rule: Rule) -> tuple[Decision, str]:
    if comparison is None or made.time_ratio is None:
        why = comparison.reason if comparison else ""
        return Decision.CANNOT_TELL, why or "no comparison came out"
    verdict = _verdict(made, comparison, rule)
    speedup = 1 / made.time_ratio
    if verdict is Verdict.FASTER:
        screened = made.stage is Stage.SCREEN
        return (Decision.PROMISING if screened else Decision.ADOPTED), _not_neutral(made)
    if verdict in (Verdict.SLOWER, Verdict.SAME, Verdict.NOT_FASTER):
        words = "slower" if verdict is Verdict.SLOWER else f"no gain above {rule.margin:.0%}"
        return Decision.REJECTED, f"{words} ({speedup:.3g} times as fast)"
    if made.stage is Stage.SCREEN and speedup > 1 + least_effect(0.0, rule.margin):
        return Decision.PROMISING, "a gain is likely, and not proven yet"
    return Decision.CANNOT_TELL, comparison.reason


def _not_neutral(made: Experiment) -> str:
    names = [name for name in made.techniques if name in TECHNIQUES]
    if any(TECHNIQUES[name].trains_otherwise for name in names):
        return "time to the baseline's loss, the worst of three seeds: it trains otherwise"
    if work_of(names) > 1:
        return f"time for as many rows, in batches {work_of(names)} times as large"
    return ""


def _verdict(made: Experiment, comparison: Comparison, rule: Rule) -> Verdict:
    scaled = made.time_ratio not in (comparison.time_ratio, None)
    typical = rule.goal == "latency" and comparison.typical is not None
    if made.interval is None or not (scaled or typical):
        return comparison.verdict
    from torchstone.stats import by_interval, logs_of

    ends = logs_of(made.interval)
    if ends[1] < -math.log1p(max(comparison.aa_floor, least_effect(0.0, rule.margin))):
        return Verdict.FASTER
    return by_interval(ends, rule.margin)


def queue(screened: Sequence[Experiment], goal: str) -> list[str]:
    """The techniques that are tested in the selection: the largest estimated gain first."""
    promising = [one for one in screened if one.decision is Decision.PROMISING]
    key = "memory_ratio" if goal == "memory" else "time_ratio"
    promising.sort(key=lambda one: getattr(one, key) or 1.0)
    return [one.technique for one in promising]


def pareto(experiments: Sequence[Experiment]) -> tuple[Experiment, ...]:
    """Of the arms that did their work: those that no other beats in time and in memory.

    Of screened ones and confirmations alone, whose figures are all against the baseline.
    """
    known = [
        one
        for one in experiments
        if one.stage is not Stage.SELECT
        and one.time_ratio is not None
        and one.memory_ratio is not None
        and one.decision not in (Decision.WRONG_ANSWER, Decision.FAILED)
    ]

    def beaten(one: Experiment) -> bool:
        mine = (one.time_ratio or 1.0, one.memory_ratio or 1.0)
        return any(
            (other.time_ratio or 1.0) <= mine[0]
            and (other.memory_ratio or 1.0) <= mine[1]
            and ((other.time_ratio or 1.0), (other.memory_ratio or 1.0)) != mine
            for other in known
        )

    front = [one for one in known if not beaten(one)]
    return tuple(sorted(front, key=lambda one: one.time_ratio or 1.0))
