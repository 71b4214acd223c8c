"""Which techniques are tried on a baseline, in which order, and what their arms are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchstone.conductor import ExtraChecks
from torchstone.records import (
    TIERS,
    ArmSpec,
    Decision,
    Experiment,
    Ledger,
    Stage,
    UsageError,
)
from torchstone.records.plugins import did_you_mean
from torchstone.variants.techniques import TECHNIQUES, Technique
from torchstone.variants.techniques.base import METRIC, STATISTICAL

BATCH = 3
"""Techniques that are screened in one case, in turns with one baseline."""


@dataclass(frozen=True)
class Wanted:
    """What may be tried at all."""

    goal: str = "speed"
    allow: str = "tolerance"
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    metric: str = ""


def check_names(names: Iterable[str]) -> None:
    """Refuse a technique that nobody has."""
    for name in names:
        if name not in TECHNIQUES:
            raise UsageError(
                f"There is no technique {name!r}.",
                f"{did_you_mean(name, TECHNIQUES)}`torchstone list techniques` lists them.",
            )


def arm_of(base: ArmSpec, names: Sequence[str]) -> ArmSpec:
    """The baseline with these techniques, one after the other."""
    arm = base
    for name in names:
        arm = TECHNIQUES[name].on(arm)
    return replace(arm, name=" + ".join(names) or base.name)


def with_technique(names: Sequence[str], name: str) -> tuple[str, ...]:
    """The list with one more; one of the same group gives way to it."""
    group = TECHNIQUES[name].group
    kept = tuple(one for one in names if not group or TECHNIQUES[one].group != group)
    return (*kept, name)


def checks_of(arm: str, names: Sequence[str], metric: str = "") -> ExtraChecks:
    """What is asked of an arm with these techniques besides the answers of timed calls."""
    techniques = [TECHNIQUES[name] for name in names]
    tiers = {one.tier for one in techniques}
    return ExtraChecks(
        arm,
        tuple(dict.fromkeys(case for one in techniques for case in one.inputs)),
        tuple(dict.fromkeys(case for one in techniques for case in one.conditions)),
        losses=STATISTICAL in tiers or METRIC in tiers,
        convergence=any(one.trains_otherwise for one in techniques),
        metric=metric if METRIC in tiers else "",
    )


def work_of(names: Sequence[str]) -> int:
    """Of how many of the baseline's calls an arm with these techniques does the work."""
    return math.prod(TECHNIQUES[name].work for name in names if name in TECHNIQUES)


def share_of(technique: Technique, ledger: Ledger) -> float:
    """The share of a step that it could touch at most: the ledger's lines that it is after, and
    what the ledger could not explain."""
    if not technique.lines:
        return 1.0
    known = {line.name for line in ledger.lines if line.level <= 3}
    found = sum(max(0.0, ledger.share(name)) for name in technique.lines if name in known)
    return min(1.0, found + max(0.0, ledger.share("rest")))


def choose(
    base: ArmSpec, wanted: Wanted, torch: str, shares: Mapping[str, float]
) -> tuple[list[str], list[Experiment]]:
    """The techniques to screen, one of each group before its others and the largest share first,
    and those that are not run, each with the reason. Nothing is left out because little is at
    stake: only what cannot or may not be done."""
    candidates: list[str] = []
    unable: list[Experiment] = []
    for name in wanted.only or TECHNIQUES:
        found = _unable(name, base, wanted, torch)
        if found is None:
            candidates.append(name)
        else:
            decision, reason, tier = found
            unable.append(Experiment(Stage.SCREEN, name, decision, reason, tier=tier))
    order = {name: place for place, name in enumerate(TECHNIQUES)}
    candidates.sort(key=lambda name: (-round(shares.get(name, 1.0), 2), order[name]))
    groups: set[str] = set()
    first = []
    for name in candidates:
        group = TECHNIQUES[name].group or name
        first += [] if group in groups else [name]
        groups.add(group)
    return [*first, *(name for name in candidates if name not in first)], unable


def _unable(
    name: str, base: ArmSpec, wanted: Wanted, torch: str
) -> tuple[Decision, str, str] | None:
    try:
        technique = TECHNIQUES[name]
    except Exception as error:  # a package of somebody else's: it costs the others nothing
        return Decision.NOT_APPLICABLE, f"it cannot be loaded: {error}", ""
    tier = technique.tier
    if name in wanted.without:
        return Decision.NOT_RUN, "left out by --without", tier
    reason = technique.why_not(base, torch)
    if reason:
        return Decision.NOT_APPLICABLE, reason, tier
    if wanted.goal not in technique.goals:
        return Decision.NOT_APPLICABLE, f"it does not help {wanted.goal}", tier
    if TIERS.index(tier) > TIERS.index(wanted.allow):
        return Decision.NOT_ALLOWED, f"its answers are other ones: needs --allow {tier}", tier
    if tier == TIERS[-1] and not wanted.metric:
        return Decision.NOT_ALLOWED, "only your metric can evaluate it: needs --metric", tier
    return None


def batches(base: ArmSpec, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Techniques that are screened together: those whose processes start alike, so that libraries
    are imported once for all of them, and of one group at most one."""
    open_: list[tuple[object, list[str]]] = []
    for name in names:
        arm = TECHNIQUES[name].on(base)
        key = (arm.env, arm.allocator, arm.threads)
        alike = key == (base.env, base.allocator, base.threads) and TECHNIQUES[name].work == 1
        place = next((some for kind, some in open_ if kind == key and len(some) < BATCH), None)
        if place is not None and alike:
            place.append(name)
        else:
            open_.append((key, [name]))
    return [tuple(some) for _, some in open_]
