"""The groups of a comparison: all cases of two runs that differ in their model alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchstone import stats
from torchstone.records import (
    SUITE_DEFINITION,
    CaseChange,
    CaseKey,
    GroupChange,
    Mean,
    SuiteSummary,
    Verdict,
)
from torchstone.stats.distributions import exp_or_inf
from torchstone.stats.suite import group_key
from torchstone.track.pairing import KINDS, PAIRED, chosen
from torchstone.track.sides import Side
from torchstone.track.terms import Terms

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
    """The groups in the order of their first cases, and the cases with their costs judged.

    `changes` are those of the cases with their floors, place by place.
    """
    olds, news = (_summaries(side, terms, n, cases) for n, side in enumerate((base, new)))
    groups: list[GroupChange] = []
    held = list(cases)
    means: dict[CaseKey, list[tuple[stats.Change, float]]] = {}
    for key, places in _places(cases).items():
        found = [cases[place] for place in places]
        limits = _limits([case for case in found if case.kind == PAIRED], drift)
        groups.append(_group(key, found, (olds.get(key), news.get(key)), limits, terms))
        means[key] = []
        for place, case in zip(places, found, strict=True):
            held[place] = _with_costs(case, limits)
            change = changes[place]
            if change is not None:
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
    """The group without its mean change, which is judged among all groups of its suite."""
    paired = [case for case in cases if case.kind == PAIRED]
    told = [case for case in paired if case.speedup is not None]
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
    judged = stats.judge_families(
        [change for change, _ in told.values()],
        [floor for _, floor in told.values()],
        [(key.suite, key.scale) for key in told],
        terms.rules,
    )
    verdicts = dict(zip(told, judged, strict=True))
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
    told = Counter(case.verdict for case in cases if case.kind == PAIRED)
    return {kind: kinds[kind] for kind in KINDS} | {v.value: told[v] for v in Verdict}


def _mean(ratios: Sequence[float | None]) -> Mean:
    known = [math.log(ratio) for ratio in ratios if ratio]
    value = exp_or_inf(math.fsum(known) / len(known)) if known else None
    return Mean(value, len(known), len(ratios))
