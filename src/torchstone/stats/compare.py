"""Two arms to one verdict, by the rule in `verdict`, with the reason for what it leaves open.

Sizes are evaluated on the log ratio: "within 2 %" means a time ratio between 1 / 1.02 and 1.02.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchstone.records import Comparison, Estimate, Measurement, Verdict
from torchstone.stats.drift import fit_sessions
from torchstone.stats.estimators import (
    FLOOR_ESTIMATOR,
    TYPICAL_ESTIMATOR,
    estimator_of,
    find_estimator,
)
from torchstone.stats.process import replicates_with_samples
from torchstone.stats.ratio import LogFit, as_estimate, fit_ratios
from torchstone.stats.verdict import decide, holm, least_effect, logs_of


@dataclass(frozen=True)
class _Rules:
    """What a verdict is evaluated by: relative sizes, and alpha for each shown interval."""

    margin: float
    alpha: float
    aa_floor: float
    comparisons: int
    decide_by: str

    def __post_init__(self) -> None:
        if not (self.margin > 0.0 and 0.0 < self.alpha < 1.0 and self.aa_floor >= 0.0):
            raise ValueError(f"need margin > 0, 0 < alpha < 1 and aa_floor >= 0, got {self}")
        find_estimator(self.decide_by)

    @property
    def level(self) -> float:
        """The level of the shown intervals."""
        return 1.0 - self.alpha

    @property
    def least(self) -> float:
        """The smallest relative effect that is called a difference."""
        return least_effect(self.aa_floor, self.margin)


@dataclass(frozen=True)
class _Evidence:
    deciding: LogFit
    floor: Estimate
    typical: Estimate
    sessions: bool = False
    """Whether the two arms ran in sessions of their own, and not turn by turn."""


def compare(
    base: Measurement, new: Measurement, *, margin: float, alpha: float, aa_floor: float
) -> Comparison:
    """One arm against the base. The shown intervals are at 1 - alpha; the rule is in `verdict`."""
    (found,) = compare_all((base, new), margin, alpha, aa_floor)
    return found


def compare_sessions(
    base: Measurement, new: Measurement, *, margin: float, alpha: float, aa_floor: float
) -> Comparison:
    """The same of one arm in two sessions, each summed up over all its processes (`fit_sessions`).

    The interval knows nothing of what changed on the machine between the two.
    """
    (found,) = compare_all((base, new), margin, alpha, aa_floor, sessions=True)
    return found


def compare_all(
    arms: Sequence[Measurement],
    margin: float,
    alpha: float,
    aa_floor: float,
    decide_by: str | None = None,
    *,
    sessions: bool = False,
) -> tuple[Comparison, ...]:
    """Every other arm against the first, with Holm's correction over those that can be tested."""
    if not arms:
        return ()
    base, others = arms[0], arms[1:]
    refusals = [_refusal(base, new) for new in others]
    tested = [new for new, refusal in zip(others, refusals, strict=True) if not refusal]
    name = decide_by or estimator_of(base)
    rules = _Rules(margin, alpha, aa_floor, max(1, len(tested)), name)
    evidence = [_evidence(base, new, rules, sessions) for new in tested]
    significant = [p <= alpha for p in holm([e.deciding.p_value() for e in evidence])]
    found = iter(zip(evidence, significant, strict=True))
    started = [_start(base, new, rules, why) for new, why in zip(others, refusals, strict=True)]
    return tuple(one if one.reason else _judged(one, rules, *next(found)) for one in started)


def _refusal(base: Measurement, new: Measurement) -> str:
    """Why the two cannot be compared at all; empty when they can."""
    for measurement in (base, new):
        name = measurement.arm.name
        if not measurement.outcome.comparable:
            return f"{name} ended as {measurement.outcome.value}."
        if not replicates_with_samples(measurement):
            return f"{name} ended as {measurement.outcome.value} but has no samples."
    return ""


def _start(base: Measurement, new: Measurement, rules: _Rules, reason: str) -> Comparison:
    """What is known before the samples are looked at; the whole of it for a refused comparison."""
    return Comparison(
        base=base.arm.name,
        new=new.arm.name,
        verdict=Verdict.CANNOT_TELL,
        decided_by=rules.decide_by,
        margin=rules.margin,
        aa_floor=rules.aa_floor,
        reason=reason,
        threshold=rules.least,
    )


def _evidence(base: Measurement, new: Measurement, rules: _Rules, sessions: bool) -> _Evidence:
    fit = fit_sessions if sessions else fit_ratios
    fits = fit(base, new, (rules.decide_by, FLOOR_ESTIMATOR, TYPICAL_ESTIMATOR))
    return _Evidence(
        deciding=fits[rules.decide_by],
        floor=as_estimate(fits[FLOOR_ESTIMATOR], FLOOR_ESTIMATOR, rules.level),
        typical=as_estimate(fits[TYPICAL_ESTIMATOR], TYPICAL_ESTIMATOR, rules.level),
        sessions=sessions,
    )


def _judged(start: Comparison, rules: _Rules, evidence: _Evidence, found: bool) -> Comparison:
    fit = evidence.deciding
    verdict, reason = _verdict(evidence, rules, found)
    detectable = fit.detectable(rules.alpha / rules.comparisons)
    estimate = as_estimate(fit, rules.decide_by, rules.level)
    return replace(
        start,
        verdict=verdict,
        time_ratio=estimate.time_ratio if fit.replicates else None,
        interval=estimate.interval if fit.replicates else None,
        floor=evidence.floor,
        typical=evidence.typical,
        smallest_detectable=None if detectable is None else max(detectable, rules.least),
        reason=reason,
    )


def _verdict(evidence: _Evidence, rules: _Rules, found: bool) -> tuple[Verdict, str]:
    """The verdict and its reason; `found` is the decision after correction for multiplicity."""
    fit = evidence.deciding
    if fit.replicates < 2:
        return Verdict.CANNOT_TELL, _too_few(evidence, rules)
    floor, typical = evidence.floor, evidence.typical
    if _side(floor.interval) * _side(typical.interval) < 0:
        return Verdict.CANNOT_TELL, (
            f"The floor ({_change(floor.time_ratio)}) and the typical time "
            f"({_change(typical.time_ratio)}) clearly contradict each other."
        )
    interval = fit.interval(rules.level)
    verdict = decide(fit.centre, logs_of(interval), found, rules.margin, rules.least)
    if verdict.different:
        return verdict, ""
    reasons = [_typical_differs(typical, rules.margin)]
    if verdict is not Verdict.SAME:
        reasons.insert(0, _undecided(verdict, fit, interval, rules, found))
    return verdict, " ".join(filter(None, reasons))


def _too_few(evidence: _Evidence, rules: _Rules) -> str:
    none = evidence.deciding.replicates == 0
    if evidence.sessions:
        few = f"No process of one session has enough samples for {rules.decide_by}."
        one = "Only one process of one session was measured"
        return few if none else f"{one}, which cannot show how much processes differ."
    if none:
        return f"No process in which both arms ran has enough samples for {rules.decide_by}."
    return "Only one process per arm was measured, which cannot show how much processes differ."


def _typical_differs(typical: Estimate, margin: float) -> str:
    low, high = typical.interval
    if low > 1.0 + margin or high < 1.0 / (1.0 + margin):
        return f"The typical time does differ: {_change(typical.time_ratio)}."
    return ""


def _undecided(
    verdict: Verdict, fit: LogFit, interval: tuple[float, float], rules: _Rules, found: bool
) -> str:
    if found:
        held_to = (
            f"what identical arms show on this machine ({rules.aa_floor:.2%})"
            if rules.aa_floor >= rules.least
            else f"half the margin ({rules.least:.2%})"
        )
        return f"The difference ({_change(math.exp(fit.centre))}) is no larger than {held_to}."
    span = "from {} to {}".format(*map(_change, interval))
    if _side(interval):
        return (
            f"The interval ({span}) leaves out 0 %, but not after correction for "
            f"{rules.comparisons} comparisons."
        )
    if verdict is Verdict.CANNOT_TELL:
        return (
            f"The interval ({span}) holds 0 % but is wider than the margin of {rules.margin:.1%}."
        )
    out, left = ("slower", "faster") if verdict is Verdict.NOT_SLOWER else ("faster", "slower")
    return f"The interval ({span}) excludes more than {rules.margin:.1%} {out}, but not {left}."


def _side(interval: tuple[float, float]) -> int:
    """-1 when the interval lies below 1, +1 when above, 0 when it holds 1."""
    low, high = interval
    return 1 if low > 1.0 else -1 if high < 1.0 else 0


def _change(time_ratio: float) -> str:
    """A time ratio as a person reads it: `+2.10 %` takes longer."""
    if not math.isfinite(time_ratio) or time_ratio > 100.0:
        return "many times longer"
    return f"{100.0 * (time_ratio - 1.0):+.2f} %"
