"""Two runs, case by case: the one comparison behind the command, the page and the gate."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from torchstone import stats
from torchstone.records import (
    SUITE_DEFINITION,
    CaseChange,
    CaseKey,
    CaseMetrics,
    ChangeKind,
    Conditions,
    GroupChange,
    Mean,
    RunComparison,
    SuiteSummary,
    Verdict,
)
from torchstone.stats.estimators import exp_or_inf
from torchstone.stats.suite import group_key
from torchstone.track import pairing
from torchstone.track.pairing import chosen, pairs_of, selected
from torchstone.track.terms import MACHINES, Side, Terms

if TYPE_CHECKING:
    from torchstone.store import Store


# What identical arms differ by: no change of a speed-up below that is believed.


DEFAULT_AA_FLOOR = 0.005
"""What identical arms may differ by on a machine not observed yet (benchmarks/aa.py)."""

_CLASSES = ("under 1 ms", "1-10 ms", "10-100 ms", "over 100 ms")
_LIMITS = (1e6, 1e7, 1e8)  # nanoseconds between them


class Floor(NamedTuple):
    """A relative difference, and whether it was seen on the machine or is the named default."""

    value: float
    seen: bool = False


Floors = Callable[[str, CaseMetrics], Floor]
"""From a machine's id and a case that ran there to what its speed-up may be off by."""


def step_class(nanoseconds: float) -> str:
    """The order of magnitude of a step: noise depends on it."""
    return _CLASSES[bisect_right(_LIMITS, nanoseconds)]


def default_floors(machine_id: str, case: CaseMetrics) -> Floor:
    """The named default, for any machine."""
    return Floor(DEFAULT_AA_FLOOR)


def stored_floors(store: Store) -> Floors:
    """What the store has seen of each machine, thread count, allocator and length of step; never
    less than the default."""

    @cache
    def look(machine_id: str, conditions: Conditions) -> Floor:
        known = store.aa_floor(machine_id, conditions)
        return Floor(max(DEFAULT_AA_FLOOR, known or 0.0), known is not None)

    def floor(machine_id: str, case: CaseMetrics) -> Floor:
        # Without a thread count of its own the case ran with the library's, which is not kept.
        if not machine_id or not case.key.threads or case.base_ns is None:
            return Floor(DEFAULT_AA_FLOOR)
        key = case.key
        kind = step_class(case.base_ns)
        return look(machine_id, Conditions(key.threads, key.allocator, kind))

    return floor


# The groups of a comparison: all cases of two runs that differ in their model alone.


COMPILE_COLD, COMPILE_WARM, MEMORY = "compile_cold", "compile_warm", "memory"
COSTS = (COMPILE_COLD, COMPILE_WARM, MEMORY)
Limits = Mapping[str, stats.CostThresholds]


def groups_of(
    base: Side,
    new: Side,
    cases: Sequence[CaseChange],
    changes: Sequence[tuple[stats.Change, float] | None],
    drift: stats.Drift | None,
    terms: Terms,
) -> tuple[tuple[GroupChange, ...], tuple[CaseChange, ...]]:
    """The groups in the order of their first cases, and the cases with their costs evaluated.

    `changes` are those of the cases with their floors, place by place.
    """
    olds, news = (_summaries(side, terms, n, cases) for n, side in enumerate((base, new)))
    groups: list[GroupChange] = []
    held = list(cases)
    means: dict[CaseKey, list[tuple[stats.Change, float]]] = {}
    for key, places in _places(cases).items():
        found = [cases[place] for place in places]
        limits = _limits([case for case in found if case.paired], drift)
        groups.append(_group(key, found, (olds.get(key), news.get(key)), limits, terms))
        means[key] = []
        for place, case in zip(places, found, strict=True):
            held[place] = _with_costs(case, limits)
            change = changes[place]
            if change is not None and not _too_wide(case):
                means[key].append(change)
    return _judged(groups, means, terms), tuple(held)


def _places(cases: Sequence[CaseChange]) -> dict[CaseKey, list[int]]:
    """Where the cases of each group are."""
    found: dict[tuple[object, ...], list[int]] = {}
    for place, case in enumerate(cases):
        key = case.key  # not `group_key`: a tuple of texts is looked up five times as quickly
        named = (key.suite, key.scale, key.mode, key.precision, key.variant, key.device)
        found.setdefault((*named, key.threads, key.allocator), []).append(place)
    return {group_key(cases[places[0]].key): places for places in found.values()}


def _summaries(
    side: Side, terms: Terms, number: int, cases: Sequence[CaseChange]
) -> dict[CaseKey, SuiteSummary]:
    """The figures of a run over the cases that are looked at, by the groups' keys."""
    if side.groups and terms.everything:
        known = {(one.definition, one.false_discovery_rate) for one in side.groups}
        if known == {(SUITE_DEFINITION, terms.rules.q)}:
            return {group_key(one): one for one in side.groups}
    found = chosen(side, terms, number)
    if terms.only_common:
        keys = {case.key for case in cases}
        found = {key: case for key, case in found.items() if key in keys}
    named = [c if c.key == key else replace(c, key=key) for key, c in found.items()]
    return {group_key(one): one for one in stats.summarise(named, q=terms.rules.q)}


def _group(
    key: CaseKey,
    cases: Sequence[CaseChange],
    summaries: tuple[SuiteSummary | None, SuiteSummary | None],
    limits: Limits,
    terms: Terms,
) -> GroupChange:
    """The group without its mean change, which is evaluated among all groups of its suite."""
    paired = [case for case in cases if case.paired]
    told = [case for case in paired if case.speedup is not None and not _too_wide(case)]
    olds, news = [c.base for c in told if c.base], [c.new for c in told if c.new]
    level, many = terms.rules.level, len(paired)
    middle = stats.drift_of([math.log(case.baseline_time) for case in paired if case.baseline_time])
    means = {name: _mean([getattr(case, name) for case in paired]) for name in COSTS}
    return GroupChange(
        key=key,
        base=summaries[0],
        new=summaries[1],
        common=sum(case.base is not None and case.new is not None for case in cases),
        paired=many,
        base_common=replace(stats.geometric_mean_speedup(olds, level), of=many),
        new_common=replace(stats.geometric_mean_speedup(news, level), of=many),
        speedup=None,
        verdict=None,
        compile_cold=means[COMPILE_COLD],
        compile_warm=means[COMPILE_WARM],
        memory=means[MEMORY],
        drift=None if middle is None else exp_or_inf(middle.log),
        counts=_counts(cases),
        cost_thresholds={name: (limit.case, limit.mean) for name, limit in limits.items()},
        costs_changed=tuple(
            name
            for name, limit in limits.items()
            if (mean := means[name].value) is not None and limit.mean_changed(mean)
        ),
    )


def _too_wide(case: CaseChange) -> bool:
    """Known too badly in one of the runs to be in a mean over both."""
    return any(side is not None and side.too_wide for side in (case.base, case.new))


def _judged(
    groups: Sequence[GroupChange],
    changes: Mapping[CaseKey, Sequence[tuple[stats.Change, float]]],
    terms: Terms,
) -> tuple[GroupChange, ...]:
    """The groups with their mean changes and verdicts, corrected over all groups of a suite."""
    told: dict[CaseKey, tuple[stats.Change, float]] = {}
    for key, found in changes.items():
        mean = stats.mean_change([change for change, _ in found])
        if mean is not None:
            told[key] = mean, stats.mean_floor([floor for _, floor in found])
    evaluated = stats.evaluate_families(
        [change for change, _ in told.values()],
        [floor for _, floor in told.values()],
        [(key.suite, key.scale) for key in told],
        terms.rules,
    )
    verdicts = dict(zip(told, evaluated, strict=True))
    return tuple(
        replace(
            group,
            speedup=told[group.key][0].ratio(terms.rules.level),
            threshold=verdicts[group.key].least,
            verdict=verdicts[group.key].verdict,
        )
        if group.key in told
        else group
        for group in groups
    )


def _limits(cases: Sequence[CaseChange], drift: stats.Drift | None) -> Limits:
    """How far each cost must move to be called changed; costs that too few cases have are left
    out."""
    found: dict[str, stats.CostThresholds] = {}
    for name in COSTS:
        logs = [math.log(ratio) for case in cases if (ratio := getattr(case, name))]
        memory = name == MEMORY
        least = stats.LEAST_MEMORY_CHANGE if memory else stats.LEAST_COMPILE_CHANGE
        limit = stats.cost_thresholds(logs, least, None if memory else drift)
        if limit is not None:
            found[name] = limit
    return found


def _with_costs(case: CaseChange, limits: Limits) -> CaseChange:
    beyond = tuple(
        name
        for name, limit in limits.items()
        if (ratio := getattr(case, name)) is not None and limit.case_changed(ratio)
    )
    return replace(case, costs_changed=beyond) if beyond else case


def _counts(cases: Sequence[CaseChange]) -> dict[str, int]:
    """Every kind and every verdict has its entry, 0 where there is none."""
    kinds = Counter(case.kind for case in cases)
    told = Counter(case.verdict for case in cases if case.paired)
    return {kind.value: kinds[kind] for kind in ChangeKind} | {v.value: told[v] for v in Verdict}


def _mean(ratios: Sequence[float | None]) -> Mean:
    known = [math.log(ratio) for ratio in ratios if ratio]
    value = exp_or_inf(math.fsum(known) / len(known)) if known else None
    return Mean(value, len(known), len(ratios))


@dataclass(frozen=True)
class _Compared:
    """A paired case with what the statistics need of it; logs of ratios, new over base."""

    pair: CaseChange
    base: CaseMetrics
    new: CaseMetrics
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
        marks=(*notes, *pairing.marks(base, new, terms, pairs)),
        margin=terms.rules.margin,
        false_discovery_rate=terms.rules.q,
    )
    refused, remedy = pairing.refusal(pairing.reasons(base, new, terms, pairs, every))
    if refused:
        return replace(answer, refused=refused, remedy=remedy)
    compared = [_compared(pair, base, new, floors) for pair in every if pair.paired]
    drift = stats.drift_of(_baselines(compared))
    cases = _cases(every, compared, drift, terms, _budget(base, new))
    found = iter(compared)
    changes = [_told(next(found)) if pair.paired else None for pair in every]
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


def _compared(pair: CaseChange, base: Side, new: Side, floors: Floors) -> _Compared:
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
    pairs: Sequence[CaseChange],
    compared: Sequence[_Compared],
    drift: stats.Drift | None,
    terms: Terms,
    budget_s: float | None,
) -> list[CaseChange]:
    """Every case, in the pairs' order, with its verdict among all of its suite."""
    told = [(one, one.change) for one in compared if one.change is not None]
    evaluated = iter(
        stats.evaluate_families(
            [change for _, change in told],
            [one.floor for one, _ in told],
            [(one.pair.key.suite, one.pair.key.scale) for one, _ in told],
            terms.rules,
        )
    )
    # On another machine every time is another: what moved there says nothing of the software.
    usable = None if MACHINES in terms.across else drift
    made = (
        _case(one, None if one.change is None else next(evaluated), usable, terms.rules, budget_s)
        for one in compared
    )
    return [
        next(made) if pair.paired else CaseChange(pair.key, pair.kind, pair.base, pair.new)
        for pair in pairs
    ]


def _case(
    one: _Compared,
    evaluated: stats.Evaluated | None,
    drift: stats.Drift | None,
    rules: stats.Rules,
    budget_s: float | None,
) -> CaseChange:
    old, fresh = one.base, one.new
    verdict, moved = evaluated.verdict if evaluated else None, "cannot tell"
    if evaluated is not None and one.baseline is not None and one.arm is not None:
        moved = stats.side_moved(evaluated.verdict, one.baseline, one.arm, drift, evaluated.least)
    return CaseChange(
        key=one.pair.key,
        kind=ChangeKind.PAIRED,
        base=old,
        new=fresh,
        speedup=one.change.ratio(rules.level) if one.change else None,
        verdict=verdict,
        alone=evaluated.alone if evaluated else None,
        moved=moved,
        baseline_time=_ratio(one.baseline),
        arm_time=_ratio(one.arm),
        compile_cold=_compile_ratio(fresh.compile_cold_ns, old.compile_cold_ns),
        compile_warm=_compile_ratio(fresh.compile_warm_ns, old.compile_warm_ns),
        memory=_ratio(_log_ratio(fresh.new_tensor_bytes, old.new_tensor_bytes)),
        threshold=evaluated.least if evaluated else None,
        deciding_budget_s=_decided_by(one.change, evaluated, rules, budget_s),
    )


def _decided_by(
    change: stats.Change | None,
    evaluated: stats.Evaluated | None,
    rules: stats.Rules,
    budget_s: float | None,
) -> float | None:
    if change is None or evaluated is None or budget_s is None:
        return None
    return stats.deciding_budget(change, evaluated, budget_s, rules)


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
