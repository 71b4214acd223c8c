"""`torchstone repro`: measure a stored result again, and set the new beside the old."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torchstone import stats, validate
from torchstone.conductor import Events, Settings
from torchstone.lab.bench import measure
from torchstone.lab.identical import aa_floor
from torchstone.lab.installation import is_ours
from torchstone.lab.keeping import Keeper
from torchstone.lab.repro_changes import Change, as_checks, changes, other_models
from torchstone.lab.request import check_arm, settings_from
from torchstone.lab.secrets import refuse_incomplete, restore_env
from torchstone.records import (
    CASE_KIND,
    CaseFigures,
    CaseKey,
    Check,
    Comparison,
    Measurement,
    Outcome,
    Result,
    UsageError,
    Verdict,
)

STORED = " (stored)"
DRIFT = 0.04
"""What the time of unchanged code may move by between two sessions. Of 39 sessions of one 5 ms step
within 90 minutes (`benchmarks/results/aa-live.jsonl`, the baseline's floor) no two differed by more
than 3.8 %, one pair in twenty by more than 2.6 %, and one in six would have been called different.
"""
BETWEEN_SESSIONS = (
    "Times of two sessions: the machine's drift between them is in no interval, so a difference "
    f"up to {DRIFT:.0%} is not called one."
)


@dataclass(frozen=True)
class Reproduction:
    """The new result, and every arm against its stored self.

    `against_stored` has each arm's time; `speedups`, of every arm but the baseline, its time in
    units of its session's baseline, in which the machine's drift cancels.
    """

    stored: Result
    new: Result
    against_stored: tuple[Comparison, ...]
    speedups: tuple[Comparison, ...] = ()
    changes: tuple[Change, ...] = ()
    other_models: Mapping[str, str] = field(default_factory=dict)
    """Arms that are not what they were, and why: their times are not compared."""

    @property
    def combined(self) -> Result:
        """Old and new arms in one result, for the same JSON shape as everywhere."""
        arms = (*(_renamed(arm) for arm in self.stored.arms), *self.new.arms)
        both = replace(self.new, arms=arms)
        comparisons = (*self.new.comparisons, *self.speedups, *self.against_stored)
        checks = (*validate.judge(both), *as_checks(self.changes, self.other_models))
        return replace(both, comparisons=comparisons, checks=checks)


def repro(
    stored: Result,
    *,
    trust: bool,
    keeper: Keeper | None,
    events: Events | None = None,
    budget_s: float | None = None,
) -> Reproduction:
    """Run the stored arms again. A record from elsewhere names code to run, so it needs `trust`."""
    elsewhere = where_from(stored)
    if elsewhere and not trust:
        raise UsageError(
            f"{stored.id} {elsewhere} and names code that would be run.",
            "Look at it with `torchstone show`, then add --trust.",
        )
    for measured in stored.arms:
        refuse_incomplete(measured)
    arms = [restore_env(measured.arm) for measured in stored.arms]
    for arm in arms:
        check_arm(arm)
    settings = settings_of(stored)
    if budget_s is not None:
        settings = replace(settings, budget_s=budget_s)
    command = ("torchstone", "repro", stored.id)
    # One case of a run is a result of its own when it is measured again: lists leave cases out.
    kind = "bench" if stored.kind == CASE_KIND else stored.kind
    new = measure(arms, settings, keeper, events, command, kind, f"repro of {stored.id}")
    done = Reproduction(
        stored, new, (), changes=changes(stored, new), other_models=other_models(stored, new)
    )
    if stored.thinned:  # there is nothing left to set the new samples against
        return done
    floor = aa_floor(keeper, new.arms[0])
    return replace(
        done, against_stored=against(stored, new, floor), speedups=speedups(stored, new, floor)
    )


def where_from(stored: Result) -> str:
    """Words for a result that this installation did not make; empty for our own.

    A database from elsewhere calls its rows its own, and machines of one type have one
    `machine_id`, so neither speaks for a result: only the signature does.
    """
    if stored.origin != "here":
        return f"was imported from {stored.origin}"
    if not stored.signature:
        return "is not signed by the installation that made it (as those of older versions)"
    return "" if is_ours(stored) else "was not made by this installation, or was changed since"


def settings_of(stored: Result) -> Settings:
    """The settings that a stored result was made with."""
    method = stored.method
    # A statement's setup may be good for so many executions only.
    loops = {arm.loops for arm in stored.arms if arm.arm.statement is not None and arm.turns}
    settings = replace(settings_from(method), loops=loops.pop() if len(loops) == 1 else None)
    # As `bench` does, or no rule could hold the new times against the work that they stand for.
    return replace(settings, count_flops=all(arm.arm.statement is None for arm in stored.arms))


def against(stored: Result, new: Result, floor: float) -> tuple[Comparison, ...]:
    """Each arm's time against its stored self, floor by floor, over all processes of both.

    No figure where one of the two fails a check, or is not the model that it was.
    """
    alpha = 0.05 / max(1, len(stored.arms))
    made = tuple(
        _with_drift(
            stats.compare_sessions(
                _renamed(old), again, margin=stored.method.margin, alpha=alpha, aa_floor=floor
            )
        )
        for old, again in zip(stored.arms, new.arms, strict=True)
    )
    others = other_models(stored, new)
    judged = validate.withhold(made, (*_checks_of(stored), *new.checks))
    return tuple(_without_figures(one, others.get(one.new, "")) for one in judged)


def _checks_of(stored: Result) -> tuple[Check, ...]:
    """The stored result's, under the names that its arms have beside the new ones."""
    return tuple(
        replace(check, arms=tuple(name + STORED for name in check.arms)) for check in stored.checks
    )


def _without_figures(found: Comparison, why: str) -> Comparison:
    """The same where there is nothing against it, else what `validate.withhold` would leave."""
    if not why:
        return found
    bare = Comparison(found.base, found.new, Verdict.CANNOT_TELL, found.decided_by)
    bare = replace(bare, margin=found.margin, aa_floor=found.aa_floor)
    return replace(bare, reason=f"Withheld: {why}.")


def _with_drift(found: Comparison) -> Comparison:
    """Nothing is claimed that may be the machine's, and what the interval lacks is said."""
    if found.time_ratio is None:
        return found
    least = found.smallest_detectable
    return replace(
        found,
        verdict=_despite_drift(found, found.time_ratio),
        threshold=max(found.threshold or 0.0, DRIFT),
        smallest_detectable=None if least is None else max(least, DRIFT),
        reason=f"{found.reason} {BETWEEN_SESSIONS}".strip(),
    )


def _despite_drift(found: Comparison, ratio: float) -> Verdict:
    """The verdict, if it stands wherever the machine drifted to; `same` is of the times as seen."""
    if found.verdict.different:
        beyond = abs(math.log(ratio)) > math.log1p(DRIFT)
        return found.verdict if beyond else Verdict.CANNOT_TELL
    if found.verdict is Verdict.SAME:
        return found.verdict
    low, high = stats.logs_of(found.interval)
    drift = math.log1p(DRIFT)
    wider = stats.by_interval((low - drift, high + drift), found.margin)
    return wider if wider is found.verdict else Verdict.CANNOT_TELL


def speedups(stored: Result, new: Result, floor: float) -> tuple[Comparison, ...]:
    """Each arm's time over its baseline's, against the same of the stored session.

    The two arms of a session ran turn by turn, so what slowed the machine in one of the sessions
    has cancelled. Verdicts are those of two runs (`stats.changes`).
    """
    if len(stored.arms) < 2:
        return ()
    others = other_models(stored, new)
    pairs = list(zip(_cases(stored), _cases(new), strict=True))
    changes = [stats.change_of(before, after) for before, after in pairs]
    known = [change for change in changes if change is not None]
    before = max((c.aa_floor for c in stored.comparisons), default=floor)
    both = stats.change_floor(before, floor)
    rules = stats.Rules(margin=stored.method.margin)
    judged = iter(stats.judge(known, [both] * len(known), rules))
    base, estimator = new.arms[0].arm.name, stats.estimator_of(new.arms[0])
    made = []
    for arm, change in zip(new.arms[1:], changes, strict=True):
        name = f"{arm.arm.name} against {base}"
        one = Comparison(name + STORED, name, Verdict.CANNOT_TELL, estimator)
        one = replace(one, margin=rules.margin, aa_floor=both)
        if change is None:
            made.append(replace(one, reason="One of the two sessions has no ratio."))
            continue
        judgement = next(judged)
        ratio = change.ratio(rules.level)
        ends = None if ratio.interval is None else (1 / ratio.interval[1], 1 / ratio.interval[0])
        found = replace(one, verdict=judgement.verdict, time_ratio=1 / ratio.value)
        found = replace(found, threshold=judgement.least)
        why = others.get(arm.arm.name) or others.get(base, "")
        made.append(_without_figures(replace(found, interval=ends), why))
    return tuple(made)


def _cases(result: Result) -> list[CaseFigures]:
    """The log ratio of every arm but the first, with its error."""
    return [_case(result, arm) for arm in result.arms[1:]]


def _case(result: Result, arm: Measurement) -> CaseFigures:
    spec = arm.arm
    key = CaseKey("", spec.target, "", spec.mode, spec.precision, spec.variant)
    case = CaseFigures(key, Outcome.OK, level=1.0 - result.method.alpha)
    found = next((c for c in result.comparisons if c.new == spec.name), None)
    if found is None or not found.time_ratio:
        return case
    fit = stats.fit_ratio(result.arms[0], arm, stats.estimator_of(result.arms[0]))
    freedom = float(fit.df) if fit.replicates > 1 else None
    return replace(case, speedup=found.speedup, log_error=fit.std_error, log_freedom=freedom)


def _renamed(measurement: Measurement) -> Measurement:
    return replace(measurement, arm=replace(measurement.arm, name=measurement.arm.name + STORED))
