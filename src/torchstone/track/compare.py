"""Two runs, case by case: the one comparison behind the command, the page and the gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchstone import stats
from torchstone.records import CaseChange, CaseFigures, RunComparison
from torchstone.stats.distributions import exp_or_inf
from torchstone.stats.suite import group_key
from torchstone.track import refusal
from torchstone.track.floors import DEFAULT_AA_FLOOR, Floors, default_floors
from torchstone.track.groups import groups_of
from torchstone.track.pairing import PAIRED, Pair, pairs_of, selected
from torchstone.track.sides import Side
from torchstone.track.terms import MACHINES, Terms


@dataclass(frozen=True)
class _Compared:
    """A paired case with what the statistics need of it; logs of ratios, new over base."""

    pair: Pair
    base: CaseFigures
    new: CaseFigures
    change: stats.Change | None
    floor: float
    """What identical arms would make it change by."""
    seen: bool
    baseline: float | None
    arm: float | None


def compare(
    base: Side,
    new: Side,
    terms: Terms | None = None,
    floors: Floors = default_floors,
    notes: Sequence[str] = (),
) -> RunComparison:
    """Set two runs against each other. `notes` become marks, before those found here.

    Where they cannot be compared, `refused` and `remedy` of the answer say why. Drift, verdicts and
    the figures of groups are those of the whole runs; a selection in the terms only leaves out
    what is not wanted of them. So a case has one verdict, however it is looked at.
    """
    terms = terms or Terms()
    every = pairs_of(base, new, terms.whole)
    pairs = selected(every, terms)
    answer = RunComparison(
        base.head,
        new.head,
        marks=(*notes, *refusal.marks(base, new, terms, pairs)),
        margin=terms.rules.margin,
        false_discovery_rate=terms.rules.q,
    )
    refused, remedy = refusal.refusal(refusal.reasons(base, new, terms, pairs, every))
    if refused:
        return replace(answer, refused=refused, remedy=remedy)
    compared = [_compared(pair, base, new, floors) for pair in every if pair.kind == PAIRED]
    drift = stats.drift_of(_baselines(compared))
    cases = _cases(every, compared, drift, terms, _budget(base, new))
    found = iter(compared)
    changes = [_told(next(found)) if pair.kind == PAIRED else None for pair in every]
    groups, held = groups_of(base, new, cases, changes, drift, terms.whole)
    told = [one for one in compared if one.change is not None]
    if len(pairs) < len(every):
        keys = {pair.key for pair in pairs}
        of_groups = {group_key(key) for key in keys}
        groups = tuple(group for group in groups if group.key in of_groups)
        held = tuple(case for case in held if case.key in keys)
        told = [one for one in told if one.pair.key in keys]
    answer = replace(answer, groups=groups, cases=held, threshold_source=_source(told))
    if drift is None:
        return answer
    middle, spread = exp_or_inf(drift.log), exp_or_inf(drift.spread) - 1.0
    return replace(answer, drift=middle, drift_spread=spread, drift_of=drift.n)


def _compared(pair: Pair, base: Side, new: Side, floors: Floors) -> _Compared:
    old, fresh = pair.both
    floor = floors(base.head.machine_id, old), floors(new.head.machine_id, fresh)
    change = stats.change_of(old, fresh)
    return _Compared(
        pair,
        old,
        fresh,
        change,
        stats.change_floor(floor[0].value, floor[1].value),
        floor[0].seen and floor[1].seen,
        # Times of a speed-up that was withheld are withheld with it.
        None if change is None else _log_ratio(fresh.base_ns, old.base_ns),
        None if change is None else _log_ratio(fresh.new_ns, old.new_ns),
    )


def _told(one: _Compared) -> tuple[stats.Change, float] | None:
    """The change with its floor, where there is one."""
    return None if one.change is None else (one.change, one.floor)


def _baselines(compared: Sequence[_Compared]) -> list[float]:
    """Log ratios of the baselines, each once: variants that were measured together share one."""
    found: dict[tuple[object, ...], float] = {}
    for one in compared:
        if one.baseline is not None:
            key = one.pair.key
            place = (key.suite, key.model, key.scale, key.mode, key.precision, key.device)
            run = (key.threads, key.allocator, one.base.base_ns, one.new.base_ns)
            found[(*place, *run)] = one.baseline
    return list(found.values())


def _cases(
    pairs: Sequence[Pair],
    compared: Sequence[_Compared],
    drift: stats.Drift | None,
    terms: Terms,
    budget_s: float | None,
) -> list[CaseChange]:
    """Every case, in the pairs' order, with its verdict among all of its suite."""
    told = [(one, one.change) for one in compared if one.change is not None]
    judged = iter(
        stats.judge_families(
            [change for _, change in told],
            [one.floor for one, _ in told],
            [(one.pair.key.suite, one.pair.key.scale) for one, _ in told],
            terms.rules,
        )
    )
    # On another machine every time is another: what moved there says nothing of the software.
    usable = None if MACHINES in terms.across else drift
    made = (
        _case(one, None if one.change is None else next(judged), usable, terms.rules, budget_s)
        for one in compared
    )
    return [
        next(made) if pair.kind == PAIRED else CaseChange(pair.key, pair.kind, pair.base, pair.new)
        for pair in pairs
    ]


def _case(
    one: _Compared,
    judged: stats.Judged | None,
    drift: stats.Drift | None,
    rules: stats.Rules,
    budget_s: float | None,
) -> CaseChange:
    old, fresh = one.base, one.new
    verdict, moved = judged.verdict if judged else None, "cannot tell"
    if judged is not None and one.baseline is not None and one.arm is not None:
        moved = stats.side_moved(judged.verdict, one.baseline, one.arm, drift, judged.least)
    return CaseChange(
        key=one.pair.key,
        kind=PAIRED,
        base=old,
        new=fresh,
        speedup=one.change.ratio(rules.level) if one.change else None,
        verdict=verdict,
        alone=judged.alone if judged else None,
        moved=moved,
        baseline_time=_ratio(one.baseline),
        arm_time=_ratio(one.arm),
        compile_cold=_compile_ratio(fresh.compile_cold_ns, old.compile_cold_ns),
        compile_warm=_compile_ratio(fresh.compile_warm_ns, old.compile_warm_ns),
        memory=_ratio(_log_ratio(fresh.new_tensor_bytes, old.new_tensor_bytes)),
        threshold=judged.least if judged else None,
        deciding_budget_s=_decided_by(one.change, judged, rules, budget_s),
    )


def _decided_by(
    change: stats.Change | None,
    judged: stats.Judged | None,
    rules: stats.Rules,
    budget_s: float | None,
) -> float | None:
    if change is None or judged is None or budget_s is None:
        return None
    return stats.deciding_budget(change, judged, budget_s, rules)


def _budget(base: Side, new: Side) -> float | None:
    """Of a case, where both runs gave it the same."""
    known = {one.method.budget_s if one.method else 0.0 for one in (base, new)}
    budget = known.pop()
    return budget if budget > 0.0 and not known else None


def _source(compared: Sequence[_Compared]) -> str:
    """Where the thresholds come from."""
    if not compared:
        return ""
    seen = sum(one.seen for one in compared)
    default = f"{100 * DEFAULT_AA_FLOOR:g} % a run, the least there is for any machine"
    larger = "the larger of half the margin and what identical arms"
    if seen == len(compared):
        return f"{larger} were seen to differ by on this machine"
    if seen:
        return f"{larger} were seen to differ by on this machine, else {default}"
    return f"{larger} may differ by: {default}"


def _compile_ratio(new: int | None, base: int | None) -> float | None:
    """None where one of them compiled nothing worth the name."""
    if new is None or base is None or min(new, base) < stats.LEAST_COMPILE_NS:
        return None
    return _ratio(_log_ratio(new, base))


def _log_ratio(new: float | None, base: float | None) -> float | None:
    if new is None or base is None or not (0.0 < new < math.inf and 0.0 < base < math.inf):
        return None
    return math.log(new) - math.log(base)


def _ratio(log: float | None) -> float | None:
    return None if log is None else exp_or_inf(log)
