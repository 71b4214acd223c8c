"""A second look at what is too good to be taken on trust: new processes, other inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchstone import stats, validate
from torchstone.conductor import CaseSpec, Events, Settings, Templates, run_case
from torchstone.lab.judging import interrupted, judge_again
from torchstone.lab.secrets import public_measurement
from torchstone.records import ArmSpec, Comparison, Result, SecondLook

SEED_APART = 7_919
"""Added to the seed: other inputs and, where the factory is seeded, other weights."""
SHARE = 0.5
"""Of the first look's budget: an effect of two times needs no fine interval to be seen again."""
SHORTEST_S = 3.0
REPLICATES = 3


def with_second_looks(
    result: Result,
    arms: Sequence[ArmSpec],
    settings: Settings,
    events: Events | None,
    templates: Templates | None = None,
) -> Result:
    """Measure each suspicious comparison again and judge the result by both looks."""
    if result.method.stopped_by == "interrupt":
        return result
    wanted = validate.wants_second_look(result)
    if not wanted:
        return result
    by_name = {arm.name: arm for arm in arms}
    try:
        looks = tuple(
            look_again(by_name[c.base], by_name[c.new], c, settings, events, templates)
            for c in wanted
        )
    except KeyboardInterrupt:  # the first look is whole and is kept
        return judge_again(interrupted(result))
    return judge_again(replace(result, second_looks=looks))


def look_again(
    base: ArmSpec,
    new: ArmSpec,
    first: Comparison,
    settings: Settings,
    events: Events | None,
    templates: Templates | None = None,
) -> SecondLook:
    """The same two arms from another seed, in processes of their own.

    Half a look says nothing, so Ctrl-C ends it as a `KeyboardInterrupt`.
    """
    seed = settings.seed + SEED_APART
    if events is not None:
        events.phase(f"{new.name}: a second look, too good to be taken on trust")
    again = replace(
        settings,
        seed=seed,
        budget_s=max(SHORTEST_S, SHARE * settings.budget_s),
        replicates=REPLICATES,
        count_flops=False,
    )
    pair = tuple(replace(arm, seed=seed) for arm in (base, new))
    case = run_case(CaseSpec(pair, again), events, templates)
    if case.stopped_by == "interrupt":
        raise KeyboardInterrupt
    made = SecondLook(first.base, first.new, seed, first.speedup or 0.0, None)
    failed = next((arm for arm in case.arms if arm.outcome not in stats.COMPARABLE), None)
    if failed is not None:
        said = public_measurement(failed).detail.message
        reason = said or f"{failed.arm.name} ended with {failed.outcome.value}"
        return replace(made, outcome=failed.outcome.value, reason=reason)
    (comparison,) = stats.compare_all(case.arms, settings.margin, case.alpha, first.aa_floor)
    return replace(
        made,
        speedup=comparison.speedup,
        interval=comparison.interval,
        reason=comparison.reason,
    )
