"""Figures over the cases of a suite; each has one definition, and carries its denominators.

**A case passes** when its outcome is `ok`. Means are over passing cases, pass rates over planned
ones.

**The geometric mean's interval** speaks of these very models, measured again in the same way. The
models are a fixed set, nobody drew them at random, so their differences from each other are no
source of error and only the measuring errors are: Var(mean log) = sum(se_i**2) / n**2 with the
degrees of freedom of Welch and Satterthwaite. It is not a claim about models outside the suite
(`geometric_mean` makes that one, and its interval is much wider). It takes the cases' errors as
independent: they were measured at different times, each against its own baseline.

**Width.** A speed-up known to no better than a factor of `WIDEST` either way (0.0018 to 4.4) would
decide a mean by itself. Such cases are left out of it by their width alone, before anybody looks
where the interval lies: leaving them out by verdict would keep the large ones and bias the mean.
Every mean says how many cases it is over and of how many.

**Looks.** A case that stops as soon as it is precise stops more readily when its processes agree
by chance, so its error is too small. Its own interval makes up for that by a level above 95 % (see
`looks`), and what is made from it here must do so as well: the error is widened, and the
p-value raised, as that level asks. Without this a mean of cases that stopped at one of three or
four looks held the truth in 91 % of simulated suites; with it, in 94 % and more. Cases of a fixed
number of processes, such as the four of `torchstone run`, are not touched.

**Verdicts.** A suite of 200 cases finds ten differences at 5 % where there are none. So the
verdicts of a case by itself are held to Benjamini and Hochberg's procedure over all passing cases
together: of the differences that are still called so, at most the share `q` is expected to be
false. One that does not survive falls back to what its own interval says (`compare`).

How speed-ups changed between two runs: the ratio of each case, its verdict, and the mean's.

**A case's change** is the new run's speed-up over the base run's. Each speed-up was measured
against its own baseline, turn by turn, so what slowed the machine in one of the runs has cancelled
already. On the log scale it is d = log S_new - log S_base; the runs' errors are independent, so
its variance is the sum of theirs, with the degrees of freedom of Welch and Satterthwaite (rounded
down a little, see `drift`). Errors count as the cases' own intervals promise them, that is wider
where a case was looked at before it ended. Interval and p-value are made from the same numbers: the
95 % interval leaves out 1 exactly where p < 0.05.

**Verdicts** are those of two arms (`compare`). A difference is significant where its p-value is at
most 0.05 and survives Benjamini and Hochberg's procedure over all paired cases of the suite in both
runs; the floor is what two identical arms are seen to differ by, in both runs together
(`change_floor`). A case that is not called different by itself enters the procedure with 1: it
counts, and lends no other its certainty.

**The mean change** of a suite is the geometric mean of its cases' changes. The cases are a fixed
set and each is paired with itself, so neither the models' differences nor the differences of their
changes are errors; only the measuring errors are, process by process within case by case. The
interval says how far the mean would move if these models were measured again in both versions. It
is no claim about other models. It does not widen where some models gain and others lose: that is
what the verdicts of the cases are for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from torchstone.records import (
    FOREIGN_DEFINITION,
    METRICS_DEFINITION,
    CaseKey,
    CaseMetrics,
    Mean,
    Outcome,
    PassRate,
    Ratio,
    SuiteSummary,
    UsageError,
    Verdict,
)
from torchstone.stats.compare import (
    Logs,
    benjamini_hochberg,
    by_interval,
    decide,
    least_effect,
    logs_of,
    needed_budget,
    turned,
)
from torchstone.stats.drift import (
    CASE_ALPHA,
    FREEDOM_STEP,
    Error,
    alpha_left,
    error_of_mean,
    error_of_sum,
    known_error,
    log_speedup,
    logs,
    promised_error,
    rounded_down,
)
from torchstone.stats.estimators import exp_or_inf, student_t_quantile, two_sided
from torchstone.stats.ratio import POWER

FALSE_DISCOVERY_RATE = 0.05
"""The share of wrong ones among the differences found, as for single comparisons (the method)."""

MOST_FREEDOM = 1000.0
"""Beyond so many degrees of freedom Student's t lies between that of so many and the normal."""


def passing(cases: Iterable[CaseMetrics]) -> tuple[CaseMetrics, ...]:
    """The cases whose outcome is `ok`; they must have been derived by one definition."""
    found = tuple(case for case in cases if case.outcome is Outcome.OK)
    versions = sorted({case.definition for case in found})
    if len(versions) > 1:
        named = " and ".join(map(str, versions))
        if FOREIGN_DEFINITION in versions:
            raise UsageError(
                "Some of these cases were measured by another tool, whose figures follow its own "
                "definitions and do not mix with ours.",
                "Look at them as a run of their own.",
            )
        raise UsageError(
            f"These cases' figures were derived by the definitions {named}, which do not mix.",
            "Derive the older ones again from their results (`torchstone db rebuild`).",
        )
    return found


def pass_rate(cases: Sequence[CaseMetrics]) -> PassRate:
    """Passing cases out of all that were planned, but for those that are not supported.

    A crash, a time-out and a case not run all count against it.
    """
    counts = Counter(case.outcome for case in cases)
    return PassRate(
        passed=counts[Outcome.OK],
        counted=sum(case.outcome.counts for case in cases),
        planned=len(cases),
        outcomes={outcome.value: counts[outcome] for outcome in Outcome},
    )


def geometric_mean_speedup(cases: Iterable[CaseMetrics], level: float = 0.95) -> Mean:
    """exp(mean log speed-up) over passing cases that have one, with its interval; without those
    that are `too_wide`.

    There is no interval where one of them has no measuring error (a single process).
    """
    ok = passing(cases)
    known = ((log_speedup(case), case) for case in ok if not case.too_wide)
    used = [(log, promised_error(case)) for log, case in known if log is not None]
    if not used:
        return Mean(None, 0, len(ok), level=level)
    centre = math.fsum(log for log, _ in used) / len(used)
    errors = [error for _, error in used if error is not None]
    interval = None
    if len(errors) == len(used):
        half = error_of_mean(errors).half_width(level)
        interval = exp_or_inf(centre - half), exp_or_inf(centre + half)
    return Mean(math.exp(centre), len(used), len(ok), interval, level)


def p_value(case: CaseMetrics) -> float | None:
    """Of "its speed-up is 1"; None for a case that does not pass or has no measuring error.

    Raised for the look at which the case stopped (the union bound over its looks).
    """
    known, log = known_error(case), log_speedup(case)
    if case.outcome is not Outcome.OK or known is None or log is None:
        return None
    return min(1.0, CASE_ALPHA / alpha_left(case) * two_sided(log, *known))


def verdicts(
    cases: Sequence[CaseMetrics], q: float = FALSE_DISCOVERY_RATE
) -> tuple[Verdict | None, ...]:
    """The verdict of each case, in order, after correction over its suite and scale; None: none.

    The family is that of a comparison of two runs (`track.compare`): what else was measured that
    night does not change a suite's verdicts.

    `faster` or `slower` that does not survive becomes what the case's interval says by itself; the
    others stay. Cases that do not pass have none.
    """
    if not 0.0 < q < 1.0:
        raise ValueError(f"q must lie in (0, 1), got {q}")
    passing(cases)
    families: dict[tuple[str, str], list[int]] = {}
    for place, case in enumerate(cases):
        families.setdefault((case.key.suite, case.key.scale), []).append(place)
    survive: set[int] = set()
    for places in families.values():
        tested = [one for place in places if (one := _tested(place, cases[place])) is not None]
        survive.update(_surviving(cases, tested, q))
    return tuple(_verdict(case, place in survive) for place, case in enumerate(cases))


class _Tested(NamedTuple):
    """A case with a p-value: its log speed-up and measuring error, and whether it is called
    different by itself. One that is not counts among those looked at, and helps no other."""

    place: int
    log: float
    error: Error
    alpha: float
    different: bool


def _tested(place: int, case: CaseMetrics) -> _Tested | None:
    known, log = known_error(case), log_speedup(case)
    if case.outcome is not Outcome.OK or known is None or log is None:
        return None
    different = case.verdict is not None and case.verdict.different
    return _Tested(place, abs(log), known, alpha_left(case), different)


def _surviving(cases: Sequence[CaseMetrics], tested: Sequence[_Tested], q: float) -> list[int]:
    """Benjamini and Hochberg's: the most cases that all have a p-value of at most `q` times their
    share of those tested. Found from above, so that hardly any has to be computed."""
    left, before = [one for one in tested if one.different], -1
    while len(left) != before:
        before = len(left)
        p = q * before / len(tested) if tested else 0.0
        limits = cache(partial(_limits, p))
        kept = []
        for one in left:
            error = one.error
            above, below = limits(min(error.freedom, MOST_FREEDOM) // FREEDOM_STEP, one.alpha)
            if one.log > below * error.size or (
                one.log >= above * error.size and (p_value(cases[one.place]) or 0.0) <= p
            ):
                kept.append(one)
        left = kept
    return [one.place for one in left]


def _limits(p: float, steps: float, alpha: float) -> tuple[float, float]:
    """Below the first, in units of the error, a p-value is certainly above `p`; above the second,
    certainly below. Quantiles take long, so they are those of the freedoms beside the case's."""
    centre = 1.0 - 0.5 * p * alpha / CASE_ALPHA
    fewer = steps * FREEDOM_STEP
    more = fewer + FREEDOM_STEP if fewer < MOST_FREEDOM else math.inf
    above, below = student_t_quantile(centre, more), student_t_quantile(centre, fewer)
    return (1.0 - 1e-6) * above, (1.0 + 1e-6) * below


def summarise(
    cases: Sequence[CaseMetrics],
    level: float = 0.95,
    q: float = FALSE_DISCOVERY_RATE,
    told: Sequence[Verdict | None] | None = None,
) -> list[SuiteSummary]:
    """One summary for each group of cases that differ in their model alone, in their order.

    Give it every planned case (`RunView.complete`). Verdicts are corrected over each suite, so that
    the counts are those of `verdicts` on the same cases; `told` are these, where they are known.
    """
    groups: dict[CaseKey, list[tuple[CaseMetrics, Verdict | None]]] = {}
    told = verdicts(cases, q) if told is None else told
    for case, verdict in zip(cases, told, strict=True):
        groups.setdefault(group_key(case.key), []).append((case, verdict))
    return [_summary(key, group, level, q) for key, group in groups.items()]


def group_key(key: CaseKey | SuiteSummary) -> CaseKey:
    """What cases that differ in their model alone have in common: the key without the model."""
    return CaseKey(  # five times as quick as `replace`, and this is asked for every case
        key.suite,
        "",
        key.scale,
        key.mode,
        key.precision,
        key.variant,
        key.device,
        key.threads,
        key.allocator,
    )


def _summary(
    key: CaseKey, group: Sequence[tuple[CaseMetrics, Verdict | None]], level: float, q: float
) -> SuiteSummary:
    cases = [case for case, _ in group]
    ok = passing(cases)
    told = Counter(verdict for case, verdict in group if case.outcome is Outcome.OK)
    return SuiteSummary(
        suite=key.suite,
        scale=key.scale,
        mode=key.mode,
        precision=key.precision,
        variant=key.variant,
        device=key.device,
        threads=key.threads,
        allocator=key.allocator,
        passes=pass_rate(cases),
        speedup=geometric_mean_speedup(ok, level),
        compile_cold_ns=_arithmetic(case.compile_cold_ns for case in ok),
        compile_warm_ns=_arithmetic(case.compile_warm_ns for case in ok),
        memory_ratio=_geometric(case.memory_ratio for case in ok),
        process_memory_ratio=_geometric(case.process_memory_ratio for case in ok),
        compiler_bytes=_arithmetic(case.compiler_bytes for case in ok),
        base_ns=_geometric(case.base_ns for case in ok),
        new_ns=_geometric(case.new_ns for case in ok),
        new_tensor_bytes=_geometric(case.new_tensor_bytes for case in ok),
        verdicts={verdict.value: told[verdict] for verdict in Verdict},
        no_verdict=told[None],
        false_discovery_rate=q,
        figures_definition=ok[0].definition if ok else METRICS_DEFINITION,
    )


def _verdict(case: CaseMetrics, survives: bool) -> Verdict | None:
    if case.outcome is not Outcome.OK:
        return None
    if case.verdict is None or not case.verdict.different or survives:
        return case.verdict
    return by_interval(turned(logs_of(case.interval)), max(case.margin, 0.0))


def _arithmetic(values: Iterable[int | None]) -> Mean:
    every = list(values)
    known = [value for value in every if value is not None]
    return Mean(math.fsum(known) / len(known) if known else None, len(known), len(every))


def _geometric(values: Iterable[float | None]) -> Mean:
    every = list(values)
    known = logs(every)
    mean = math.exp(math.fsum(known) / len(known)) if known else None
    return Mean(mean, len(known), len(every))


MARGIN = 0.02
"""A change within this is `same` when its whole interval is (the method)."""


@dataclass(frozen=True)
class Change:
    """The log of a ratio, and its error; None where a run had a single process."""

    log: float
    error: Error | None = None

    def ratio(self, level: float = 0.95) -> Ratio:
        """The ratio with its interval."""
        value = exp_or_inf(self.log)
        if self.error is None:
            return Ratio(value, None, level)
        half = self.error.half_width(level)
        return Ratio(value, (exp_or_inf(self.log - half), exp_or_inf(self.log + half)), level)

    @property
    def p_value(self) -> float | None:
        """Two-sided, of "nothing changed"; None without an error."""
        return None if self.error is None else two_sided(self.log, *self.error)


@dataclass(frozen=True)
class Rules:
    """What verdicts are given by: the margin of `same`, the rate of wrong ones, the level."""

    margin: float = MARGIN
    q: float = FALSE_DISCOVERY_RATE
    level: float = 0.95

    def __post_init__(self) -> None:
        if not (self.margin > 0.0 and 0.0 < self.q < 1.0 and 0.0 < self.level < 1.0):
            raise ValueError(f"need margin > 0, q and level in (0, 1), got {self}")


@dataclass(frozen=True)
class Evaluated:
    """A verdict after the correction for all of them, what it would be by itself, and the least
    effect that it was held to."""

    verdict: Verdict
    alone: Verdict
    least: float


def change_of(base: CaseMetrics, new: CaseMetrics) -> Change | None:
    """How the speed-up of a case changed; None where one of the runs has none."""
    before, after = log_speedup(base), log_speedup(new)
    if before is None or after is None:
        return None
    errors = promised_error(base), promised_error(new)
    if errors[0] is None or errors[1] is None:
        return Change(after - before)
    return Change(after - before, rounded_down(error_of_sum([errors[0], errors[1]])))


def mean_change(changes: Sequence[Change]) -> Change | None:
    """The mean of log changes; without an error where one of them has none."""
    if not changes:
        return None
    centre = math.fsum(change.log for change in changes) / len(changes)
    errors = [change.error for change in changes if change.error is not None]
    if len(errors) < len(changes):
        return Change(centre)
    return Change(centre, rounded_down(error_of_mean(errors)))


def change_floor(base_floor: float, new_floor: float) -> float:
    """What identical arms make a speed-up change by, from what they differ by in each run.

    Each run's speed-up may be off by its own floor, so their ratio by the root of the sum of both
    squares. Floors are relative: 0.005 is half a percent.
    """
    return math.expm1(math.hypot(math.log1p(base_floor), math.log1p(new_floor)))


def mean_floor(floors: Sequence[float]) -> float:
    """The same for a mean: what stands behind the floors may favour one arm in all cases alike,
    so it does not average out."""
    return math.expm1(math.fsum(map(math.log1p, floors)) / len(floors))


def evaluate(
    changes: Sequence[Change], floors: Sequence[float], rules: Rules | None = None
) -> list[Evaluated]:
    """The verdict of each, in order, corrected over all of them.

    A change without an error cannot be told and is not among those that are corrected for.
    """
    rules = rules or Rules()
    least = [least_effect(floor, rules.margin) for floor in floors]
    alone = [_alone(change, size, rules) for change, size in zip(changes, least, strict=True)]
    found = [change.p_value for change in changes]
    # What is not to be called different counts among those looked at and helps no other: a suite of
    # small true changes, all of them `same`, would lower the bar for whatever is merely noisy.
    tested = [
        p if verdict.different else 1.0
        for p, verdict in zip(found, alone, strict=True)
        if p is not None
    ]
    corrected = iter(benjamini_hochberg(tested))
    survives = [p is not None and next(corrected) <= rules.q for p in found]
    return [
        Evaluated(
            by_interval(_ends(change, rules), rules.margin)
            if verdict.different and not kept
            else verdict,
            verdict,
            size,
        )
        for change, verdict, kept, size in zip(changes, alone, survives, least, strict=True)
    ]


def deciding_budget(
    change: Change, evaluated: Evaluated, spent_s: float, rules: Rules
) -> float | None:
    """The budget of each run that would probably show a change as small as the margin, where the
    verdict leaves something open; None where this data could, or an hour could not."""
    if change.error is None or not evaluated.verdict.undecided:
        return None
    size, freedom = change.error
    quantiles = [student_t_quantile(share, freedom) for share in (0.5 + 0.5 * rules.level, POWER)]
    detectable = exp_or_inf(math.fsum(quantiles) * size) - 1.0
    if not rules.margin < detectable < math.inf:
        return None
    needed = needed_budget(spent_s, detectable, rules.margin, evaluated.least)
    return needed if math.isfinite(needed) else None


def evaluate_families(
    changes: Sequence[Change],
    floors: Sequence[float],
    families: Sequence[Hashable],
    rules: Rules | None = None,
) -> list[Evaluated]:
    """The verdict of each, in order, corrected over those of the same family."""
    places: dict[Hashable, list[int]] = {}
    for place, family in enumerate(families):
        places.setdefault(family, []).append(place)
    found: dict[int, Evaluated] = {}
    for own in places.values():
        evaluated = evaluate([changes[i] for i in own], [floors[i] for i in own], rules)
        found.update(zip(own, evaluated, strict=True))
    return [found[place] for place in range(len(changes))]


def _alone(change: Change, least: float, rules: Rules) -> Verdict:
    """The verdict of a change by itself."""
    p = change.p_value
    significant = p is not None and p <= CASE_ALPHA
    return decide(-change.log, _ends(change, rules), significant, rules.margin, least)


def _ends(change: Change, rules: Rules) -> Logs:
    """Of the time: a speed-up that grew is a time that fell. Without an error there are none."""
    if change.error is None:
        return -math.inf, math.inf
    half = change.error.half_width(rules.level)
    return -change.log - half, -change.log + half
