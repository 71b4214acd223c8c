"""Which techniques are tried on a baseline, in which order, and what their arms are.

How a tuning divides its wall time: no stage takes what the ones after it need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchstone.conductor import ExtraChecks
from torchstone.records import TIERS, ArmSpec, Decision, Experiment, Ledger, Stage, UsageError
from torchstone.records.plugins import did_you_mean
from torchstone.variants.techniques import TECHNIQUES, Technique
from torchstone.variants.techniques.base import METRIC, STATISTICAL

BATCH = 3
"""Techniques that are screened in one case, in turns with one baseline."""
PLAIN, PROCESS, COMPILED = "plain", "process", "compiled"
COSTS = {PLAIN: 1.0, PROCESS: 1.5, COMPILED: 3.0}
"""Wall time of screening one technique, beside that of a plain one, until it has been seen: with
others in one case; in processes that are started otherwise; with a compiler."""
COMPILERS = "compiler"
"""The group of techniques that compile."""


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
    """The techniques to screen, in order, and those that are not run, each with the reason. Nothing
    is left out because little is at stake: only what cannot or may not be done."""
    candidates: list[str] = []
    unable: list[Experiment] = []
    for name in wanted.only or TECHNIQUES:
        found = _unable(name, base, wanted, torch)
        if found is None:
            candidates.append(name)
        else:
            decision, reason, tier = found
            unable.append(Experiment(Stage.SCREEN, name, decision, reason, tier=tier))
    return order(base, candidates, shares), unable


def order(
    base: ArmSpec,
    names: Iterable[str],
    shares: Mapping[str, float],
    seen: Sequence[Experiment] = (),
) -> list[str]:
    """One of each group before its others, and the largest share at stake for its cost first. Those
    `seen` say what each kind costs here, and which groups have had their turn. Without
    shares a compiler comes first: a short budget would often not get past the many cheap ones."""
    measured = [one for one in seen if one.seconds > 0 and one.technique in TECHNIQUES]
    costs = _costs(base, measured)
    place = {name: number for number, name in enumerate(TECHNIQUES)}

    def worth(name: str) -> tuple[float, int]:
        if not shares:
            return float(TECHNIQUES[name].group != COMPILERS), place[name]
        return -round(shares.get(name, 1.0) / costs[kind_of(base, name)], 2), place[name]

    groups = {TECHNIQUES[one.technique].group for one in measured}
    first, later = list[str](), list[str]()
    for name in sorted(names, key=worth):
        group = TECHNIQUES[name].group or name
        (later if group in groups else first).append(name)
        groups.add(group)
    return [*first, *later]


def kind_of(base: ArmSpec, name: str) -> str:
    """What its cost depends on most."""
    if TECHNIQUES[name].group == COMPILERS:
        return COMPILED
    arm = TECHNIQUES[name].on(base)
    alike = (arm.env, arm.allocator, arm.threads) == (base.env, base.allocator, base.threads)
    return PLAIN if alike and TECHNIQUES[name].work == 1 else PROCESS


def _costs(base: ArmSpec, measured: Sequence[Experiment]) -> dict[str, float]:
    """By kind, beside a plain technique: as seen here, and as expected where none was seen."""
    found: dict[str, list[float]] = {}
    for one in measured:
        found.setdefault(kind_of(base, one.technique), []).append(one.seconds)
    means = {kind: sum(some) / len(some) for kind, some in found.items()}
    if not means:
        return COSTS
    unit = sum(mean / COSTS[kind] for kind, mean in means.items()) / len(means)
    return {kind: means[kind] / unit if kind in means else COSTS[kind] for kind in COSTS}


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
    are imported once for all of them. What compiles is alone: where it takes too long, it alone is
    not measured."""
    made: list[list[str]] = []
    plain: list[str] | None = None
    for name in names:
        if kind_of(base, name) != PLAIN:
            made.append([name])
        elif plain is None or len(plain) == BATCH:
            plain = [name]
            made.append(plain)
        else:
            plain.append(name)
    return [tuple(some) for some in made]


LEDGER_SHARE = 0.2
"""Of the budget, at most, for the ledger: without one only the order of experiments is worse."""
SELECT_SHARE, CONFIRM_SHARE = 0.3, 0.15
"""Of the budget, kept for the selection while techniques are screened (half of it until one of them
is promising), and for the confirmation."""
MOST_CONFIRM_SHARE = 0.3
"""The confirmation compiles like the tests before it: where those took long, more is kept."""
REPEATED = 1.2
"""What a case takes, by one like it."""
CASE_SHARE, USUAL_CASE_S = 0.5, 20.0
"""One of several cases has half of what its stage has left, or this long: what hangs must not take
everything, and a small budget is not worth dividing."""
LEAST_CASE_S = 3.0
"""What starts with less than this cannot come to a sample."""
TURNS_SHARE = 0.35
"""Of a case's time that is planned for turns: compiling, starting and measuring again take the
rest."""
TURNS_S = {Stage.SCREEN: (1.5, 8.0), Stage.SELECT: (3.0, 30.0), Stage.CONFIRM: (4.0, 40.0)}
"""Least and most time in turns of a case of two arms."""


@dataclass(frozen=True)
class Clock:
    """The wall time of a tuning, from its first moment."""

    budget_s: float
    began: float
    now: Callable[[], float] = time.monotonic

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return self.now() - self.began

    @property
    def left_s(self) -> float:
        """Seconds until it must be over."""
        return max(0.0, self.budget_s - self.spent_s)


@dataclass(frozen=True)
class Allowance:
    """What a case may take."""

    total_s: float
    """With starting, compiling, checks and measuring again."""
    turns_s: float


def allow(
    clock: Clock, stage: Stage, cases: int, arms: int, seen: Sequence[Experiment]
) -> Allowance | None:
    """Of the next of so many cases of a stage, with so many arms beside the baseline; None where
    no time is left for it."""
    left = clock.left_s
    if stage is not Stage.CONFIRM:
        left -= _for_confirmation(clock.budget_s, seen)
    if stage is Stage.SCREEN:
        promising = any(one.decision is Decision.PROMISING for one in seen)
        left -= (SELECT_SHARE if promising else SELECT_SHARE / 2) * clock.budget_s
    total = left if cases < 2 else min(left, max(CASE_SHARE * left, USUAL_CASE_S))
    if total < LEAST_CASE_S:
        return None
    least, most = TURNS_S[stage]
    turns = min(most, max(least, TURNS_SHARE * left / cases)) * (1 + arms) / 2
    return Allowance(total, min(turns, TURNS_SHARE * total))


def _for_confirmation(budget_s: float, seen: Sequence[Experiment]) -> float:
    """By the longest case of two arms that could become a part of the recipe."""
    tests = [one.seconds for one in seen if one.stage is Stage.SELECT]
    longest = REPEATED * max(tests, default=0.0)
    return min(MOST_CONFIRM_SHARE * budget_s, max(CONFIRM_SHARE * budget_s, longest))
