"""Does a change make anything slower: from what was measured at two revisions to one answer.

Ratios are times, new / base, measured turn by turn. Of each target, in this order:

1. **Same code.** What it loads from the repository is the same in both trees. Whatever its times
   do, the change did not do it; it serves as a control.
2. **Slower**: the difference is significant after Benjamini and Hochberg's correction over all
   targets, the best estimate lies beyond the margin, and a second measurement in new processes
   agrees: its own estimate is beyond half the margin, and both together are still significant and
   beyond the margin. One measurement in fifty of unchanged code is significant by chance and on
   the slow side; two in a row are one in thousands.
3. **Not slower**: the interval ends below the margin. **Cannot tell**: all else, after a second
   measurement where that could decide.

**Controls** are a fixed kernel and the targets of the same code. What they share is not the change:
it is the machine, or the two trees' surroundings. Where they moved (beyond what identical arms do,
p <= 0.01), a target is called slower, or not slower, only if it is so with and without that shift.

**The suite** is tested first and as a whole: the mean over all targets whose code changed. Many
small slow-downs, none of them certain by itself, are one there.

Which commit changed a time: a posterior over commits from the sizes of measured effects.

A probe of commit j gives y_j, the log of its time over GOOD's, measured turn by turn with GOOD (so
the machine's drift is gone), and its variance. The model:

    y_j = (sum of the effects of culprits up to j) + c_j - c_0 + error

`c` is what a commit's time differs by without a cause worth naming (code layout, `JITTER`); GOOD's
own is in every probe. Effects are drawn from a normal distribution of `EFFECT`, so their sizes need
not be known: they are integrated out, and each hypothesis has a closed likelihood. Hypotheses: no
culprit (the ends do not differ), one, or two. Commits between two probed ones cannot be told apart
and share their part of the posterior equally, so the work grows with the probes, not the commits.

The next probe is the commit whose result is expected to tell most (mutual information of its time
and the hypothesis); where that is a commit that was probed before, it is measured again. Bayesian
posteriors hold whenever one stops, so the stated confidence is that of the answer
(`benchmarks/bisect_rates.py` holds 1,000 simulated searches against the truth).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from torchstone import stats
from torchstone.records import (
    CheckedTarget,
    CheckReport,
    Comparison,
    Outcome,
    Shift,
    Status,
    Verdict,
)
from torchstone.records.format import format_percent

MOST_WIDTH = 2.0
"""Half the width of an interval, in margins, up to which a second measurement is worth its time:
it makes the interval of no change end at 1.4 margins instead of 2, and chance does the rest."""
CONTROL_ALPHA = 0.01
"""A moved control turns answers into "cannot tell", so it has to be sure (as an A/A test)."""
LEAST_TARGETS = 3
"""Below so many, the mean says nothing that the targets do not."""
NOT_SLOWER, SLOWER, UNKNOWN, NOT_RUN = 0, 1, 3, 4
"""Exit codes; 2 is a mistake in the request."""


@dataclass(frozen=True)
class Seen:
    """One measurement of a target at both revisions. `change` is of its speed: log(base / new)."""

    target: str
    base: Outcome
    new: Outcome
    change: stats.Change | None = None
    floor: float = 0.0
    said: Comparison | None = None
    why: str = ""
    """What is wrong with an arm that did not end well."""
    same_code: bool = False


def is_usable(seen: Seen) -> bool:
    """Whether there is a ratio with an error."""
    ran = seen.base.comparable and seen.new.comparable
    return ran and seen.change is not None and seen.change.error is not None


def unsettled(seen: Sequence[Seen], margin: float) -> list[str]:
    """The targets to measure a second time: those that look slower, and those that nothing can be
    said of yet and probably could then."""
    found = evaluate(seen, [None] * len(seen), (), margin)[0]
    return [
        one.target
        for one, of in zip(found, seen, strict=True)
        if one.status is Status.SLOWER
        or (one.status is Status.CANNOT_TELL and is_usable(of) and _is_within_reach(one, margin))
    ]


def _is_within_reach(row: CheckedTarget, margin: float) -> bool:
    """Whether twice as much data would probably decide it."""
    if row.interval is None:
        return False
    low, high = map(math.log, row.interval)
    return (high - low) / 2 <= MOST_WIDTH * math.log1p(margin)


def evaluate(
    seen: Sequence[Seen], again: Sequence[Seen | None], kernels: Sequence[Seen], margin: float
) -> tuple[list[CheckedTarget], Shift | None, Shift | None]:
    """Each target in its order, the controls' shift and the suite's.

    `again` is the second measurement of those that have one; `kernels` are controls of our own.
    """
    controls = [*kernels, *(one for one in seen if one.same_code)]
    control_shift = _shift(controls, margin, CONTROL_ALPHA)
    changed = [i for i, one in enumerate(seen) if not one.same_code and is_usable(one)]
    whole = [_together(seen[i], again[i]) for i in changed]
    plain = _statuses(seen, again, changed, whole, margin)
    if control_shift is not None and control_shift.real:
        moved = _mean(controls)
        assert moved is not None
        rest = [_without(change, moved) for change in whole]
        plain = _agreed(plain, _statuses(seen, again, changed, rest, margin), control_shift)
    of_change = dict(zip(changed, plain, strict=True))
    found = [of_change.get(i) or _other(one) for i, one in enumerate(seen)]
    suite = _shift([seen[i] for i in changed], margin) if len(changed) >= LEAST_TARGETS else None
    return found, control_shift, suite


def control(seen: Seen) -> CheckedTarget:
    """A kernel of ours, as a row."""
    return replace(_figures(seen, seen.change), status=Status.SAME_CODE, reason=seen.why)


def exit_code(report: CheckReport) -> int:
    """What a script is told."""
    statuses = [one.status for one in report.targets]
    if any(status.bad for status in statuses) or suite_is_slower(report):
        return SLOWER
    compared = [s for s in statuses if s not in (Status.NOT_COMPARED, Status.ADDED)]
    if Status.NOT_COMPARED in statuses or not compared:
        return NOT_RUN
    if Status.CANNOT_TELL in statuses:
        return {"pass": NOT_SLOWER, "fail": SLOWER}.get(report.on_unknown, UNKNOWN)
    return NOT_SLOWER


def suite_is_slower(report: CheckReport) -> bool:
    """All targets together are, beyond the margin, and the controls did not move."""
    suite, controls = report.suite_shift, report.control_shift
    if suite is None or (controls is not None and controls.real):
        return False
    return suite.real and suite.ratio > 1.0 + report.margin


def _together(first: Seen, second: Seen | None) -> stats.Change:
    """Of both measurements, which are independent, where there are two."""
    assert first.change is not None
    if second is None or second.change is None or not is_usable(second):
        return first.change
    both = stats.mean_change([first.change, second.change])
    assert both is not None
    return both


def _without(change: stats.Change, moved: stats.Change) -> stats.Change:
    """The change beyond what the controls did."""
    if change.error is None or moved.error is None:
        return stats.Change(change.log - moved.log)
    error = stats.rounded_down(stats.error_of_sum([change.error, moved.error]))
    return stats.Change(change.log - moved.log, error)


def _mean(seen: Sequence[Seen]) -> stats.Change | None:
    return stats.mean_change([s.change for s in seen if s.change is not None and is_usable(s)])


def _shift(seen: Sequence[Seen], margin: float, alpha: float = stats.CASE_ALPHA) -> Shift | None:
    """How far these moved together."""
    mean = _mean(seen)
    if mean is None or mean.error is None:
        return None
    usable = [one for one in seen if is_usable(one)]
    floor = stats.mean_floor([one.floor for one in usable])
    p = mean.p_value
    real = p is not None and p <= alpha and abs(mean.log) > math.log1p(floor)
    ratio, interval = _times(mean)
    return Shift(ratio, interval, len(usable), real)


def _statuses(
    seen: Sequence[Seen],
    again: Sequence[Seen | None],
    places: Sequence[int],
    changes: Sequence[stats.Change],
    margin: float,
) -> list[CheckedTarget]:
    """Of the targets at these places, given their changes, corrected over all of them."""
    floors = [seen[i].floor for i in places]
    evaluated = stats.evaluate(changes, floors, stats.Rules(margin=margin))
    return [
        _status(seen[i], again[i], change, one.verdict, margin)
        for i, change, one in zip(places, changes, evaluated, strict=True)
    ]


def _status(
    seen: Seen, again: Seen | None, change: stats.Change, verdict: Verdict, margin: float
) -> CheckedTarget:
    row = _figures(seen, change)
    ratio, interval = _times(change)
    high = interval[1] if interval else math.inf
    if again is not None:
        row = replace(row, first_ratio=_times(seen.change)[0] if seen.change else None)
    if verdict is Verdict.SLOWER and ratio > 1.0 + margin:
        doubt = _doubt(seen, again, margin)
        if not doubt:
            return replace(row, status=Status.SLOWER)
        return replace(row, status=Status.CANNOT_TELL, reason=doubt)
    if verdict is Verdict.FASTER:
        return replace(row, status=Status.FASTER)
    if high <= 1.0 + margin:
        return replace(row, status=Status.NOT_SLOWER)
    return replace(row, status=Status.CANNOT_TELL, reason=_open(verdict, interval, margin))


def _doubt(seen: Seen, again: Seen | None, margin: float) -> str:
    """Why a slow-down is not called one after all."""
    if seen.said is not None and not seen.said.verdict.different and seen.said.reason:
        return seen.said.reason
    if again is None:
        return ""
    if not is_usable(again) or again.change is None:
        return f"Measured a second time, it could not be compared. {again.why}".rstrip()
    ratio = _times(again.change)[0]
    if ratio > 1.0 + stats.LEAST_SHARE * margin:
        return ""
    first = format_percent(_times(seen.change)[0] - 1.0, signed=True) if seen.change else ""
    second = format_percent(ratio - 1.0, signed=True)
    return f"A slow-down of {first} was seen, and {second} when it was measured a second time."


def _open(verdict: Verdict, interval: tuple[float, float] | None, margin: float) -> str:
    shown = format_percent(margin)
    if interval is None:
        return "One process per revision cannot show how much processes differ."
    low, high = (format_percent(end - 1.0, signed=True) for end in interval)
    span = f"The interval runs from {low} to {high}"
    if verdict is Verdict.SLOWER:
        return f"{span}: slower, but perhaps by less than the margin of {shown}."
    return f"{span}, past the margin of {shown}."


def _agreed(
    raw: Sequence[CheckedTarget], rest: Sequence[CheckedTarget], shift: Shift
) -> list[CheckedTarget]:
    """Where the controls moved, only what is so with and without their shift."""
    size = format_percent(shift.ratio - 1.0, signed=True)
    why = f"The controls, which the change cannot touch, moved by {size} as well."
    return [
        a if a.status is b.status else replace(a, status=Status.CANNOT_TELL, reason=why)
        for a, b in zip(raw, rest, strict=True)
    ]


def _other(seen: Seen) -> CheckedTarget:
    """A target without a ratio, or one whose code did not change."""
    row = _figures(seen, seen.change)
    if seen.base.comparable and seen.new.comparable:
        if seen.same_code:
            return replace(row, status=Status.SAME_CODE, same_code=True)
        reason = seen.why or (seen.said.reason if seen.said else "")
        return replace(row, status=Status.CANNOT_TELL, reason=reason)
    if not seen.base.comparable or seen.same_code:
        both = "both revisions" if not seen.new.comparable else "the base"
        where = both if not seen.base.comparable else "the new revision, whose code is the same"
        ended = seen.new if seen.base.comparable else seen.base
        reason = f"It ended as {ended.words} in {where}. {seen.why}".rstrip()
        return replace(row, status=Status.NOT_COMPARED, reason=reason)
    if not seen.new.failed:
        said = f"It ended as {seen.new.words} in the new revision. {seen.why}".rstrip()
        return replace(row, status=Status.NOT_COMPARED, reason=said)
    wrong = seen.new is Outcome.WRONG_ANSWER
    return replace(row, status=Status.WRONG_ANSWER if wrong else Status.FAILS, reason=seen.why)


def _figures(seen: Seen, change: stats.Change | None) -> CheckedTarget:
    row = CheckedTarget(seen.target, Status.CANNOT_TELL, same_code=seen.same_code)
    if change is None or not (seen.base.comparable and seen.new.comparable):
        return row
    ratio, interval = _times(change)
    return replace(row, time_ratio=ratio, interval=interval)


def _times(change: stats.Change) -> tuple[float, tuple[float, float] | None]:
    """The time ratio, new / base, with its interval."""
    found = change.ratio()
    ends = found.interval
    if ends is None or not all(0.0 < end < math.inf for end in ends):
        return 1.0 / found.value, None
    return 1.0 / found.value, (1.0 / ends[1], 1.0 / ends[0])


JITTER = 0.003
"""What the same work differs by from commit to commit: identical arms differ by up to half a per
cent (`DEFAULT_AA_FLOOR`), which is about twice this."""
EFFECT = 0.10
"""The size of a typical effect, in logs: from a per cent to a fifth are all likely under it."""
NO_CULPRIT, ONE, TWO = 0.1, 0.8, 0.1
"""What is believed before anything is measured: somebody has seen the ends differ, and changes
rarely have two causes."""
FIRST_ERROR = 0.01
"""Expected of a probe before there is one."""
LEAST_FREEDOM = 3.0
"""A variance with fewer degrees of freedom counts as if it had these."""
MOST_BORROWED = 20.0
"""Degrees of freedom that a probe's variance takes from the others': all are of one target on one
machine, and the error of a few processes that agree by chance is far too small."""
LEAST_ERROR = 1e-6
LEAST = 0.01
"""Ends that differ by less are said not to differ: a cause could be found, and is not worth it."""
DOUBTED, MOST_OF_END = 0.2, 4
"""The last commit is measured again, at most so often, while there may well be nothing to find."""
GRID = 200
LIKELY = 1e-3
"""Stretches of commits of a smaller posterior are not worth a probe."""
NEGLIGIBLE = 1e-5
"""Hypotheses of a smaller posterior do not decide what to measure next."""

Floats = Any


@dataclass(frozen=True)
class Probe:
    """One measurement of a commit against GOOD: the log time ratio, its standard error, its
    degrees of freedom. `commit` counts from GOOD, which is 0."""

    commit: int
    log_ratio: float
    error: float
    freedom: float


@dataclass(frozen=True)
class Posterior:
    """What is believed after some probes. `culprit[j]` is the chance that commit j changed the
    time; commit 0 is GOOD and has none."""

    culprit: tuple[float, ...]
    none: float
    """The chance that the ends do not differ, or by less than `LEAST`."""
    two: float
    effect: Mapping[int, float] = field(default_factory=dict)
    """By commit, the log effect if it is a culprit; for the likely ones."""

    def best(self, number: int = 1) -> list[int]:
        """The likeliest culprits."""
        ranked = sorted(range(1, len(self.culprit)), key=lambda j: -self.culprit[j])
        return ranked[:number]


def posterior(commits: int, probes: Sequence[Probe]) -> Posterior:
    """Over the commits 1 … `commits` after GOOD."""
    return _Fit(commits, probes).posterior()


def answer(found: Posterior, confidence: float, skipped: Collection[int] = ()) -> str:
    """`none`, `one`, `two`, or `range` where it is certain enough; else empty.

    `range`: the culprit is one of several neighbours, of which no more can be measured.
    """
    if found.none >= confidence:
        return "none"
    if found.two > 0.5:
        return "two" if min(found.culprit[j] for j in found.best(2)) >= confidence else ""
    best = found.best()[0]
    if found.culprit[best] >= confidence:
        return "one"
    first, last = neighbours(best, len(found.culprit) - 1, skipped)
    held = math.fsum(found.culprit[first : last + 1])
    return "range" if last > first and held >= confidence else ""


def neighbours(commit: int, commits: int, skipped: Collection[int]) -> tuple[int, int]:
    """The commits that cannot be told from this one, because those between cannot be measured."""
    first = last = commit
    while first - 1 in skipped:
        first -= 1
    while last in skipped and last < commits:
        last += 1
    return first, last


def next_probe(commits: int, probes: Sequence[Probe], skipped: Collection[int] = ()) -> int | None:
    """The commit whose measurement is expected to tell most; None where nothing can be measured.

    The last commit comes first, until the ends are known to differ.
    """
    ends = sum(probe.commit == commits for probe in probes)
    fit = _Fit(commits, probes)
    believed = fit.posterior()
    if (not ends or believed.none >= DOUBTED) and ends < MOST_OF_END and commits not in skipped:
        return commits
    candidates = _candidates(commits, probes, skipped, believed)
    return max(candidates, key=lambda j: (fit.information(j), -j)) if candidates else None


def _candidates(
    commits: int, probes: Sequence[Probe], skipped: Collection[int], believed: Posterior
) -> list[int]:
    """Of each stretch that may hold a culprit: its two ends, where they were probed, and a few
    commits in its middle parts. All probed ones, where no stretch may."""
    known = sorted({probe.commit for probe in probes})
    found = set[int]()
    for low, high in zip([0, *known], [*known, commits + 1], strict=True):
        if math.fsum(believed.culprit[low + 1 : high + 1]) < LIKELY:
            continue
        found |= {low, high} & set(known)
        inside = [j for j in range(low + 1, high) if j not in skipped]
        for share in (0.25, 0.375, 0.5, 0.625, 0.75) if inside else ():
            found.add(inside[round(share * (len(inside) - 1))])
    return sorted(found or known)


class _Fit:
    """The likelihood of every hypothesis, by the stretch between probed commits a culprit is in.

    Stretch i holds the commits after probed commit i - 1, up to and with probed commit i; the last
    one those after all probed ones.
    """

    def __init__(self, commits: int, probes: Sequence[Probe]) -> None:
        self.commits = commits
        variances = variances_of(probes)
        merged = _merged(probes, variances)
        self.places = np.asarray(sorted(merged), dtype=int)
        self.logs = np.asarray([merged[j][0] for j in self.places])
        self.variances = np.asarray([merged[j][1] for j in self.places])
        edges = [0, *self.places, commits]
        self.counts = np.diff(edges).astype(float)
        stretches = len(self.counts)
        # steps[k, i]: whether a culprit in stretch k is in probed commit i.
        self.steps = (np.arange(stretches)[:, None] <= np.arange(len(self.places))[None, :]) * 1.0
        self.next_variance = float(np.median(variances)) if variances else FIRST_ERROR**2
        self._weigh()

    def _weigh(self) -> None:
        """The posterior weight of none, of one culprit in each stretch, of two in each pair; and
        their effects' means and variances."""
        count = len(self.places)
        covariance = np.diag(self.variances + JITTER**2) + JITTER**2
        inverse = np.linalg.inv(covariance) if count else np.zeros((0, 0))
        gram = self.steps @ inverse @ self.steps.T
        pull = self.steps @ inverse @ self.logs
        own = np.diag(gram)
        prior = 1.0 / EFFECT**2
        log_one = 0.5 * pull**2 / (prior + own) - 0.5 * np.log1p(EFFECT**2 * own)
        # Two culprits: the 2 x 2 problem of each pair of stretches, solved at once.
        a, b = prior + own[:, None], prior + own[None, :]
        determinant = a * b - gram**2
        x, y = pull[:, None], pull[None, :]
        log_two = 0.5 * (b * x**2 - 2 * gram * x * y + a * y**2) / determinant
        log_two -= 0.5 * np.log(determinant / prior**2)
        self.one_mean, self.one_variance = pull / (prior + own), 1.0 / (prior + own)
        self.first_mean = (b * x - gram * y) / determinant
        self.second_mean = (a * y - gram * x) / determinant
        self.two_variances = b / determinant, a / determinant, -gram / determinant
        n = float(self.commits)
        pairs = np.triu(np.outer(self.counts, self.counts), 1)
        pairs += np.diag(self.counts * (self.counts - 1.0) / 2.0)
        with np.errstate(divide="ignore"):
            logs = [
                np.asarray([math.log(NO_CULPRIT)]),
                log_one + np.log(ONE * self.counts / n),
                (log_two + np.log(TWO * pairs / max(1.0, n * (n - 1.0) / 2.0))).ravel(),
            ]
        top = max(float(part.max()) for part in logs)
        weights = [np.exp(part - top) for part in logs]
        total = sum(float(part.sum()) for part in weights)
        self.none = float(weights[0][0]) / total
        self.one = weights[1] / total
        self.two = (weights[2] / total).reshape(len(self.counts), -1)

    def posterior(self) -> Posterior:
        """Of each commit: its stretch's part, shared equally."""
        within = np.diag(self.two)
        in_stretch = self.one + self.two.sum(0) + self.two.sum(1) - 2.0 * within
        # Two in one stretch: each of its commits is one of the two with chance 2 / count.
        per_commit = (in_stretch + 2.0 * within) / np.maximum(self.counts, 1.0)
        culprit = [0.0]
        for share, held in zip(per_commit, self.counts, strict=True):
            culprit += [float(share)] * int(held)
        firsts = np.concatenate([[0], np.cumsum(self.counts)]).astype(int)
        effect = {
            int(firsts[k]) + 1 + i: float(self.one_mean[k])
            for k in range(len(self.counts))
            if per_commit[k] > NEGLIGIBLE
            for i in range(int(self.counts[k]))
        }
        none = max(self.none, self._alike())
        return Posterior(tuple(culprit), none, float(self.two.sum()), effect)

    def _alike(self) -> float:
        """The chance that the last commit takes as long as GOOD, within `LEAST`."""
        found = np.flatnonzero(self.places == self.commits)
        if not found.size:
            return 0.0
        mean, error = self.logs[found[0]], math.sqrt(self.variances[found[0]])
        ends = [(sign * math.log1p(LEAST) - mean) / (error * math.sqrt(2)) for sign in (1, -1)]
        return 0.5 * (math.erf(ends[0]) - math.erf(ends[1]))

    def information(self, commit: int) -> float:
        """How much the time of this commit is expected to tell about the hypothesis, in nats."""
        weights, means, variances = self._predictions(commit)
        kept = weights > NEGLIGIBLE
        weights, means, variances = weights[kept], means[kept], variances[kept]
        weights = weights / weights.sum()
        deviations = np.sqrt(variances)
        low = float((means - 5.0 * deviations).min())
        high = float((means + 5.0 * deviations).max())
        grid = np.linspace(low, high, GRID)
        scaled = (grid[None, :] - means[:, None]) / deviations[:, None]
        densities = np.exp(-0.5 * scaled**2) / (deviations[:, None] * math.sqrt(2 * math.pi))
        mixed = weights @ densities
        entropy = -float((mixed * np.log(np.maximum(mixed, 1e-300))).sum() * (grid[1] - grid[0]))
        known = 0.5 * np.log(2 * math.pi * math.e * variances)
        return entropy - float((weights * known).sum())

    def _predictions(self, commit: int) -> tuple[Floats, Floats, Floats]:
        """Of each hypothesis: its weight, and what it expects of a new time of this commit."""
        reached = self._reached(commit)
        one = [(self.one * r, self.one_mean * s, self.one_variance * s) for s, r in reached]
        a, b, ab = self.two_variances
        two = []
        for s, r in reached:  # where the first culprit is in the commit's past, or not
            for t, q in reached:
                mean = self.first_mean * s[:, None] + self.second_mean * t[None, :]
                spread = a * s[:, None] ** 2 + b * t[None, :] ** 2
                spread = spread + 2.0 * ab * s[:, None] * t[None, :]
                two.append((self.two * r[:, None] * q[None, :], mean, spread))
        none = (np.asarray([self.none]), np.zeros(1), np.zeros(1))
        parts = [none, *one, *two]
        weights, means, spreads = (
            np.concatenate([np.ravel(part[i]) for part in parts]) for i in range(3)
        )
        return (weights, *self._of_commit(commit, means, np.maximum(spreads, 0.0)))

    def _reached(self, commit: int) -> list[tuple[Floats, Floats]]:
        """For a culprit in each stretch, whether the commit has it, and with which chance: a commit
        inside a stretch has it if it is among the first ones."""
        edges = np.concatenate([[0], np.cumsum(self.counts)])
        share = np.clip((commit - edges[:-1]) / np.maximum(self.counts, 1.0), 0.0, 1.0)
        has, lacks = np.ones_like(share), np.zeros_like(share)
        return [(has, share), (lacks, 1.0 - share)]

    def _of_commit(self, commit: int, means: Floats, spreads: Floats) -> tuple[Floats, Floats]:
        """What is expected of its time, given what was measured of it before."""
        own = spreads + 2.0 * JITTER**2
        found = np.flatnonzero(self.places == commit)
        if found.size:
            seen, variance = self.logs[found[0]], self.variances[found[0]]
            precision = 1.0 / own + 1.0 / variance
            means = (means / own + seen / variance) / precision
            own = 1.0 / precision
        return means, own + self.next_variance


def variances_of(probes: Sequence[Probe]) -> list[float]:
    """Of each probe: its squared error, raised towards the others' median where it is smaller;
    then widened as Student's t is wider than a normal distribution.

    The median, and upwards only: a probe that met a busy machine says nothing of the others, and
    is itself as uncertain as it says.
    """
    squares = [max(probe.error, LEAST_ERROR) ** 2 for probe in probes]
    freedoms = [max(probe.freedom, 1.0) for probe in probes]
    found = []
    for place, (own, freedom) in enumerate(zip(squares, freedoms, strict=True)):
        others = [i for i in range(len(probes)) if i != place]
        borrowed = min(MOST_BORROWED, math.fsum(freedoms[i] for i in others))
        usual = median(squares[i] for i in others) if others else own
        mixed = (freedom * own + borrowed * usual) / (freedom + borrowed)
        # Its own degrees of freedom count where it is its own error that stands.
        whole = max(LEAST_FREEDOM, freedom + (borrowed if mixed >= own else 0.0))
        found.append(max(own, mixed) * whole / (whole - 2.0))
    return found


def _merged(probes: Sequence[Probe], variances: Sequence[float]) -> dict[int, tuple[float, float]]:
    """Several probes of one commit as one: their precision-weighted mean and its variance."""
    found: dict[int, list[tuple[float, float]]] = {}
    for probe, variance in zip(probes, variances, strict=True):
        found.setdefault(probe.commit, []).append((probe.log_ratio, 1.0 / variance))
    merged = {}
    for commit, several in found.items():
        precision = math.fsum(weight for _, weight in several)
        merged[commit] = math.fsum(log * w for log, w in several) / precision, 1.0 / precision
    return merged
