"""`torchstone bench`: measure arms against each other, judge the numbers, keep them."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import torchstone
from torchstone import stats, validate
from torchstone.conductor import CaseResult, CaseSpec, Events, Settings, Templates, run_case
from torchstone.lab import identical
from torchstone.lab.keeping import INTERRUPTED, Keeper, Trouble
from torchstone.lab.request import (
    BenchRequest,
    check_settings,
    command_of,
    make_arms,
    method_of,
    vary_shapes,
)
from torchstone.lab.roofs import (
    SEED_APART,
    interrupted,
    judge,
    judge_again,
    read_clock,
    recalibrated,
    with_roofs,
    with_second_looks,
)
from torchstone.lab.secrets import public_measurement, public_words, signature
from torchstone.records import (
    ArmSpec,
    Measurement,
    Method,
    Outcome,
    Result,
    SecondLook,
    TorchstoneError,
)
from torchstone.workloads.target import parse_target

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def bench(
    request: BenchRequest, keeper: Keeper | None = None, events: Events | None = None
) -> Result:
    """Check the request, measure, compare, judge, save."""
    check_settings(request.settings)
    arms = vary_shapes(make_arms(request))
    command = public_words(command_of(request))
    settings = replace(request.settings, count_flops=True)
    return measure(arms, settings, keeper, events, command, "bench", request.label)


def measure(
    arms: Sequence[ArmSpec],
    settings: Settings,
    keeper: Keeper | None,
    events: Events | None,
    command: tuple[str, ...],
    kind: str,
    label: str = "",
) -> Result:
    """Measure arms that are known to be sound, and keep the result."""
    if keeper is not None:
        keeper.check()
    result = measure_unkept(arms, settings, keeper, events, command, kind, label)
    if keeper is None or _came_to_nothing(result):
        return result
    try:
        with keeper.forgiving("The result was not kept"):
            keeper.save(result)
    except KeyboardInterrupt:  # pressed while another program held the database
        keeper.troubles.append(Trouble(f"The result may not be kept: {INTERRUPTED}."))
        return interrupted(result)
    return result


def _came_to_nothing(result: Result) -> bool:
    """Interrupted before anything was known: nothing is lost by not keeping it."""
    return result.method.stopped_by == "interrupt" and all(
        arm.outcome is Outcome.NOT_RUN and arm.compile is None and arm.memory is None
        for arm in result.arms
    )


def measure_unkept(
    arms: Sequence[ArmSpec],
    settings: Settings,
    keeper: Keeper | None,
    events: Events | None,
    command: tuple[str, ...],
    kind: str,
    label: str = "",
    templates: Templates | None = None,
) -> Result:
    """Measure and judge; the way of every command that measures. `keeper` knows the machine."""
    watched = identical.is_due(keeper, arms)
    specs = identical.with_duplicate(arms) if watched else tuple(arms)
    sources = {arm.name: source_hash(arm) for arm in specs}
    clock = read_clock()
    case = run_case(CaseSpec(specs, settings), events, templates)
    clocks = (*clock, *read_clock())
    if keeper is not None and watched:
        case = identical.observe(keeper, case)
    measured = tuple(
        _public(arm, arm.arm.name in case.constant, sources[arm.arm.name]) for arm in case.arms
    )
    name = new_id()
    made = Result(
        id=name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        arms=measured,
        comparisons=(),
        checks=(),
        method=_method(case, settings),
        kind=kind,
        label=label,
        version=torchstone.__version__,
        clocks_hz=clocks,
        signature=signature(name, (arm.arm for arm in measured)) if keeper is not None else "",
    )
    result = judge(with_roofs(made, keeper), identical.aa_floor(keeper, made.arms[0]))
    result = recalibrated(result, keeper, events)
    return _looked_at_again(result, arms, settings, events, templates)


def _looked_at_again(
    result: Result,
    arms: Sequence[ArmSpec],
    settings: Settings,
    events: Events | None,
    templates: Templates | None,
) -> Result:
    """With second looks. One that cannot be had (a file is gone, the disk is full) says why, and
    costs nothing of the first."""
    try:
        return with_second_looks(result, arms, settings, events, templates)
    except (TorchstoneError, OSError) as error:
        why = f"it failed: {error}"
        seed = settings.seed + SEED_APART
        looks = tuple(
            SecondLook(one.base, one.new, seed, one.speedup or 0.0, None, reason=why)
            for one in validate.wants_second_look(result)
        )
        return judge_again(replace(result, second_looks=looks))


def _public(arm: Measurement, constant: bool, source: str) -> Measurement:
    arm = public_measurement(arm)
    notes = (*arm.notes, validate.CONSTANT_OUTPUT_NOTE) if constant else arm.notes
    environment = arm.environment and replace(arm.environment, source=source)
    return replace(arm, notes=notes, environment=environment)


def source_hash(arm: ArmSpec) -> str:
    """Of the target's file as it is now, so that another one of its name can be told from it."""
    if arm.statement is not None:
        return ""
    target = parse_target(arm.target)
    if target.kind != "file":
        return ""
    try:
        return hashlib.sha256(Path(target.place).read_bytes()).hexdigest()
    except OSError:  # what is wrong with it, its worker will say
        return ""


def _method(case: CaseResult, settings: Settings) -> Method:
    return replace(
        method_of(settings),
        replicates=case.replicates,
        looks=case.looks,
        stopped_by=case.stopped_by,
        elapsed_s=case.elapsed_s,
        alpha=case.alpha,
        estimator=stats.estimator_of(case.arms[0]),
        phases={name: round(seconds, 3) for name, seconds in case.phases.items()},
    )


def new_id() -> str:
    """Sorts by time, cannot be guessed to collide, can be typed."""
    stamp = int(time.time())
    text = ""
    for _ in range(7):
        text = _ALPHABET[stamp % 32] + text
        stamp //= 32
    return text + "".join(secrets.choice(_ALPHABET) for _ in range(5))
