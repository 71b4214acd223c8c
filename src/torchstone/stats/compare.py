"""Two arms to one verdict, by one rule, with the reason for what it leaves open.

Sizes are evaluated on the log ratio: "within 2 %" means a time ratio between 1 / 1.02 and 1.02.

From an interval to a verdict: one rule for two arms, for the cases of two runs, for their means.

Everything is on the log of the time ratio new / base, so swapping the two turns each verdict into
its mirror image and changes nothing else. `margin` is what the user calls the same, `floor` what
identical arms differ by on this machine. The first of these that holds is the verdict:

1. `faster`, `slower`: the difference is significant after the correction for everything that was
   tested with it, and larger than the least effect worth believing, max(floor, margin / 2).
2. `same`: the whole interval lies within the margin.
3. `not slower`, `not faster`: the interval excludes that side beyond the margin, and leaves the
   other open.
4. `cannot tell`: neither side is excluded.

A difference comes first, so that knowing it better never turns it into `same`. One that does not
survive the correction falls back to what its interval says by 2 to 4.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from torchstone.records import Comparison, Estimate, Measurement, Verdict
from torchstone.stats.drift import fit_sessions
from torchstone.stats.estimators import (
    FLOOR_ESTIMATOR,
    TYPICAL_ESTIMATOR,
    estimator_of,
    find_estimator,
    replicates_with_samples,
)
from torchstone.stats.ratio import LogFit, as_estimate, fit_ratios

LEAST_SHARE = 0.5
"""Of the margin. An effect smaller than half of what the user calls the same is not worth a
verdict, however precisely it is known; one a little below the margin, and known to be there, is."""
MOST_BUDGET_S = 3600.0
"""Nobody waits longer for one comparison; who would have to has too small a difference, or too
noisy a machine."""
PLAIN_BUDGETS_S = (
    *(5.0, 10.0, 15.0, 20.0, 30.0, 45.0),
    *(60.0 * minutes for minutes in (1, 1.5, 2, 3, 5, 10, 15, 20, 30, 45)),
    MOST_BUDGET_S,
)
"""What people type. The estimate is no better than that."""

Logs = tuple[float, float]


def least_effect(floor: float, margin: float) -> float:
    """The smallest relative effect that is called faster or slower; shown as the threshold."""
    return max(floor, LEAST_SHARE * margin)


def decide(centre: float, ends: Logs, significant: bool, margin: float, least: float) -> Verdict:
    """The verdict on a log time ratio with its interval. `significant` is after correction, `least`
    from `least_effect`."""
    if significant and abs(centre) > math.log1p(least):
        return Verdict.FASTER if centre < 0.0 else Verdict.SLOWER
    return by_interval(ends, margin)


def by_interval(ends: Logs, margin: float) -> Verdict:
    """What the interval alone says of a difference that is not called one."""
    low, high = ends
    limit = math.log1p(margin)
    not_slower, not_faster = high <= limit, low >= -limit
    if not_slower and not_faster:
        return Verdict.SAME
    if not_slower:
        return Verdict.NOT_SLOWER
    return Verdict.NOT_FASTER if not_faster else Verdict.CANNOT_TELL


def logs_of(interval: tuple[float, float] | None) -> Logs:
    """The interval of a ratio on the log scale; without one, everything is possible."""
    low, high = interval or (0.0, math.inf)
    return (
        math.log(low) if low > 0.0 else -math.inf,
        math.log(high) if 0.0 < high < math.inf else math.inf,
    )


def turned(ends: Logs) -> Logs:
    """The interval of the ratio turned round: of a time from that of a speed-up, and back."""
    return -ends[1], -ends[0]


def needed_budget(spent_s: float, detectable: float, margin: float, least: float) -> float:
    """Seconds after which a change as large as the margin would probably be found.

    A standard error falls with the square root of the time, so the time grows with the square of
    what is to be gained. Rounded up to a plain number; infinite where it is longer than
    `MOST_BUDGET_S`, or where identical arms differ by more than the margin.
    """
    if least > margin:
        return math.inf
    needed = spent_s * (math.log1p(detectable) / math.log1p(margin)) ** 2
    place = bisect_left(PLAIN_BUDGETS_S, needed)
    return PLAIN_BUDGETS_S[place] if place < len(PLAIN_BUDGETS_S) else math.inf


def with_budget(found: Comparison, spent_s: float) -> Comparison:
    """The comparison with the budget that would probably decide, where the data was too coarse for
    the margin; where none would, an undecided verdict's reason says so."""
    detectable = found.smallest_detectable
    if detectable is None or detectable <= found.margin:
        return found
    least = least_effect(found.aa_floor, found.margin)
    needed = needed_budget(spent_s, detectable, found.margin, least)
    if math.isfinite(needed):
        return replace(found, deciding_budget_s=needed)
    if not found.verdict.undecided:
        return found
    why = f"A difference of {found.margin:.1%} is too small for this machine to tell."
    return replace(found, reason=f"{found.reason} {why}".strip())


# When to look at the data, and how much error each look may spend.
#
# Looking often and stopping at the first good look breaks an interval's promise. The looks are
# fixed before the first sample, and their alphas add up to at most the whole alpha, so by the
# union bound all looks together keep it, whatever rule stops.

FIRST_LOOK = 3
"""Two processes give one degree of freedom: never precise enough to be worth a look."""
LOOK_GROWTH = 1.6
"""Each look waits for this many times the processes of the one before: 3, 5, 8, 13, ..."""
EARLY_SHARE = 0.2
"""The share of alpha that all looks but the last may spend together; the rest is kept."""


def looks(replicates: int) -> tuple[int, ...]:
    """The replicate counts at which to look, the last being `replicates` itself."""
    if replicates < 1:
        raise ValueError(f"need at least one replicate, got {replicates}")
    early = []
    look = FIRST_LOOK
    # A look just before the last one would spend alpha and save next to nothing.
    while look <= replicates - 2:
        early.append(look)
        look = round(look * LOOK_GROWTH)
    return (*early, replicates)


def alpha_at(
    look_index: int, looks: Sequence[int], alpha: float = 0.05, share: float = EARLY_SHARE
) -> float:
    """The alpha of one look; early looks have a `share`, in proportion to their replicates."""
    if not 0 <= look_index < len(looks):
        raise ValueError(f"there is no look {look_index} among {len(looks)}")
    early = looks[:-1]
    if not early:
        return alpha
    if look_index == len(looks) - 1:
        return alpha * (1.0 - share)
    return alpha * share * early[look_index] / sum(early)


def is_clear(interval: tuple[float, float], margin: float) -> bool:
    """Whether the whole interval of a time ratio lies beyond the margin on one side, or inside."""
    low, high = logs_of(interval)
    limit = math.log1p(margin)
    return low > limit or high < -limit or (-limit <= low and high <= limit)


def stop(estimates: Sequence[Estimate], within: float) -> bool:
    """True when every interval is precise enough; False when there is none at all."""
    return bool(estimates) and all(is_precise(e.interval, within) for e in estimates)


def is_decided(found: Estimate, margin: float) -> bool:
    """Whether slower by more than the margin is excluded, or slower is sure and the best estimate
    beyond the margin: what `torchstone check` asks (`track.check`)."""
    low, high = found.interval
    if high <= 1.0 + margin:
        return True
    return low > 1.0 and found.time_ratio > 1.0 + margin


def is_precise(interval: tuple[float, float], within: float) -> bool:
    """Whether half the interval's width, in log ratio, is at most log(1 + within)."""
    low, high = interval
    if not (0.0 < low <= high < math.inf):
        return False
    return 0.5 * (math.log(high) - math.log(low)) <= math.log1p(within)


# P-values corrected for how many there are.


def holm(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the given order: the family-wise error rate is kept."""
    order = _ranked(pvalues)
    count = len(order)
    raised = (pvalues[place] * (count - rank) for rank, place in enumerate(order))
    return _unranked(order, accumulate(raised, max))


def benjamini_hochberg(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Benjamini and Hochberg's adjusted p-values: the false discovery rate is kept."""
    order = _ranked(pvalues)
    count = len(order)
    order.reverse()
    raised = (pvalues[place] * count / (count - rank) for rank, place in enumerate(order))
    return _unranked(order, accumulate(raised, min))


def _ranked(pvalues: Sequence[float]) -> list[int]:
    """The places of the p-values, the smallest first."""
    if not all(0.0 <= p <= 1.0 for p in pvalues):
        raise ValueError("p-values must lie in [0, 1]")
    return sorted(range(len(pvalues)), key=pvalues.__getitem__)


def _unranked(order: Sequence[int], adjusted: Iterable[float]) -> tuple[float, ...]:
    found = [0.0] * len(order)
    for place, p in zip(order, adjusted, strict=True):
        found[place] = min(float(p), 1.0)
    return tuple(found)


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
    """One arm against the base. The shown intervals are at 1 - alpha; the rule is `decide`'s."""
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
