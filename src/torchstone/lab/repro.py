"""`torchstone repro`: measure a stored result again, and set the new beside the old."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchstone import stats, validate
from torchstone.conductor import Events, Settings
from torchstone.lab.bench import measure
from torchstone.lab.identical import aa_floor
from torchstone.lab.keeping import Keeper
from torchstone.lab.request import check_arm, settings_from
from torchstone.lab.secrets import restore_env
from torchstone.machine.environment import machine_id
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.records import Comparison, Measurement, Result, UsageError

STORED = " (stored)"


@dataclass(frozen=True)
class Reproduction:
    """The new result, and every arm against its stored self."""

    stored: Result
    new: Result
    against_stored: tuple[Comparison, ...]

    @property
    def combined(self) -> Result:
        """Old and new arms in one result, for the same JSON shape as everywhere."""
        arms = (*(_renamed(arm) for arm in self.stored.arms), *self.new.arms)
        both = replace(
            self.new, arms=arms, comparisons=(*self.new.comparisons, *self.against_stored)
        )
        return replace(both, checks=validate.judge(both))


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
    arms = [restore_env(arm.arm) for arm in stored.arms]
    for arm in arms:
        check_arm(arm)
    settings = settings_of(stored)
    if budget_s is not None:
        settings = replace(settings, budget_s=budget_s)
    command = ("torchstone", "repro", stored.id)
    new = measure(arms, settings, keeper, events, command, stored.kind, f"repro of {stored.id}")
    if stored.thinned:  # there is nothing left to set the new samples against
        return Reproduction(stored, new, ())
    return Reproduction(stored, new, against(stored, new, aa_floor(keeper, new.arms[0])))


def where_from(stored: Result) -> str:
    """Words for a result that was not made on this machine; empty for our own.

    A database from elsewhere calls its rows its own, so the machine is compared as well.
    """
    if stored.origin != "here":
        return f"was imported from {stored.origin}"
    known = {arm.environment.machine_id for arm in stored.arms if arm.environment}
    here = machine_id(describe_cpu(), cache_sizes(), memory_bytes())
    return "was made on another machine" if known - {here} else ""


def settings_of(stored: Result) -> Settings:
    """The settings that a stored result was made with."""
    method = stored.method
    # A statement's setup may be good for so many executions only.
    loops = {arm.loops for arm in stored.arms if arm.arm.statement is not None and arm.turns}
    return replace(settings_from(method), loops=loops.pop() if len(loops) == 1 else None)


def against(stored: Result, new: Result, floor: float) -> tuple[Comparison, ...]:
    """Each arm against its stored self, floor by floor."""
    alpha = 0.05 / max(1, len(stored.arms))
    return tuple(
        stats.compare(
            _renamed(old),
            again,
            margin=stored.method.margin,
            alpha=alpha,
            aa_floor=floor,
        )
        for old, again in zip(stored.arms, new.arms, strict=True)
    )


def _renamed(measurement: Measurement) -> Measurement:
    return replace(measurement, arm=replace(measurement.arm, name=measurement.arm.name + STORED))
