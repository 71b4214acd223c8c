"""Comparisons of made-up runs for the tests of `show`: every kind of case, and hostile names."""

from __future__ import annotations

from dataclasses import replace

from tests.track.made import Plant, changed, keys, side, two
from torchstone.records import (
    FOREIGN_DEFINITION,
    CaseMetrics,
    Outcome,
    RunComparison,
)
from torchstone.track import Terms, compare

from .synthetic_result import HOSTILE


def planted() -> RunComparison:
    """One slower arm, one changed baseline, one gain, more expensive costs, one crash."""
    plants = {
        "model03": Plant(arm=0.08),
        "model07": Plant(baseline=-0.08),
        "model09": Plant(arm=-0.1),
        "model11": Plant(compile=0.9),
        "model12": Plant(memory=0.3),
        "model20": Plant(outcome=Outcome.CRASH),
    }
    plan = [*keys(30), *keys(30, mode="training", suite="huggingface")]
    return compare(*two(plants, plan=plan, error=0.002), notes=["run-new is the newest of 3"])


def every_kind() -> RunComparison:
    """Cases of every kind, and groups that one run alone has."""
    plan, more = keys(12), keys(3, variant="aot_eager")
    base = side(
        1,
        [*plan[:11], *more],
        {"model01": Plant(outcome=Outcome.CRASH), "model02": Plant(outcome=Outcome.OOM)},
    )
    plants = {
        "model02": Plant(outcome=Outcome.TIMEOUT),
        "model03": Plant(outcome=Outcome.WRONG_ANSWER),
        "model04": Plant(outcome=Outcome.NOT_RUN),
        "model05": Plant(outcome=Outcome.NOT_SUPPORTED),
    }
    new = side(2, [*plan[1:], *keys(2, mode="training")], plants, run_id="run-new")
    return compare(base, new)


def nothing_changed() -> RunComparison:
    return compare(*two(plan=keys(4), error=0.001))


def few() -> RunComparison:
    return compare(*two({"model01": Plant(arm=0.2)}, plan=keys(3)))


def one_process() -> RunComparison:
    return compare(*two(plan=keys(5), processes=1))


def across() -> RunComparison:
    base, new = two(plan=keys(10), drift=0.4)
    far = replace(new, head=replace(new.head, machine_id="m-2", machine="ARM", torch="2.14"))
    return compare(base, far, Terms(across=frozenset({"machines", "torch"})))


def foreign() -> RunComparison:
    def theirs(case: CaseMetrics) -> CaseMetrics:
        return CaseMetrics(case.key, case.outcome, definition=FOREIGN_DEFINITION)

    base, new = two({"model01": Plant(outcome=Outcome.ERROR)}, plan=keys(5))
    return compare(changed(base, theirs), changed(new, theirs))


def hostile() -> RunComparison:
    """Names, reasons, labels and marks that would like to be something else."""
    plan = [
        replace(key, model=f"{HOSTILE[i % 4]}{i}", suite=HOSTILE[(i + 1) % 4])
        for i, key in enumerate(keys(16))
    ]
    plants = {
        plan[0].model: Plant(arm=0.5),
        plan[1].model: Plant(outcome=Outcome.CRASH),
        plan[2].model: Plant(outcome=Outcome.CRASH),
        plan[3].model: Plant(outcome=Outcome.CRASH),
    }
    base, new = two(plants, plan=plan)
    evil = changed(new, lambda c: replace(c, reason=HOSTILE[1] + HOSTILE[2], command=HOSTILE))
    head = replace(
        evil.head, id=HOSTILE[2], label=HOSTILE[1], branch=HOSTILE[0], commit=HOSTILE[2], dirty=True
    )
    head = replace(head, origin=HOSTILE[1], machine=HOSTILE[0])
    return compare(base, replace(evil, head=head, version=HOSTILE[0]), notes=HOSTILE)


def large() -> RunComparison:
    plan = keys(900)
    plants = {f"model{i:02d}": Plant(outcome=Outcome.CRASH) for i in range(450)}
    return compare(*two(plants, plan=plan))


ALL = {
    one.__name__: one
    for one in (planted, every_kind, nothing_changed, few, one_process, across, foreign, hostile)
}
