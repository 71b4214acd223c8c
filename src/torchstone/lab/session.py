"""Objects of a session as targets: models, lambdas, local functions, cells of a notebook."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torchstone
from torchstone import stats
from torchstone.conductor import CaseResult, Events, Settings
from torchstone.conductor.session import SessionArm, run_session
from torchstone.lab import bench
from torchstone.lab.bench import keep, new_id
from torchstone.lab.peaks import evaluate, read_clock, with_peaks, with_remeasurements
from torchstone.lab.recording import Recorder
from torchstone.lab.request import (
    check_choices,
    check_settings,
    check_threads,
    distinct,
    method_of,
    torch_backends,
)
from torchstone.lab.secrets import public_measurement
from torchstone.records import MODES, PRECISIONS, ArmSpec, Result, UsageError
from torchstone.store.limits import now
from torchstone.validate import CONSTANT_OUTPUT_NOTE
from torchstone.variants import check_variant
from torchstone.workloads import Workload

BUDGET_S = 5.0
"""Somebody waits at a prompt. Nothing but the rounds is in it."""
SESSION = "session"
"""The place of a target that is an object: `session:model`."""
FORMS = "a model with its inputs, a function, or a string such as path.py:make"


@dataclass(frozen=True)
class SessionRequest:
    """What is asked of objects. `threads` None: as they are set now."""

    objects: tuple[tuple[str, Workload], ...]
    vs: tuple[str, ...] = ()
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None
    label: str = ""
    settings: Settings = field(default_factory=lambda: Settings(budget_s=BUDGET_S))


def is_object(target: Any) -> bool:
    """Whether workers cannot import it, so that it has to be measured where it lives."""
    return not isinstance(target, str) and import_name(target) is None


def import_name(target: Any) -> str | None:
    """`file.py:name` of a function at the top level of a file; None of anything else."""
    name = getattr(target, "__qualname__", "")
    if not inspect.isfunction(target) or not name or "<" in name:
        return None
    try:
        path = inspect.getsourcefile(target)
    except TypeError:
        return None
    return f"{os.path.abspath(path)}:{name}" if path and os.path.isfile(path) else None


def as_objects(targets: Sequence[Any], inputs: Any = None) -> tuple[tuple[str, Workload], ...]:
    """Callables with the inputs behind them, pairs and workloads, each with a name.

    What cannot be called stands for the inputs of what was named before it.
    """
    found: list[tuple[str, Workload]] = []
    given = [False]
    for target in targets:
        pair = isinstance(target, tuple) and len(target) == 2 and callable(target[0])
        if isinstance(target, Workload):
            found.append((_name(target.call), target))
        elif pair:
            found.append((_name(target[0]), Workload(*target)))
        elif callable(target):
            found.append((_name(target), Workload(target, () if inputs is None else inputs)))
        elif isinstance(target, str):
            raise UsageError(
                f"{target!r} names a file, and other targets are objects of this session.",
                "Measure files in one call and objects in another.",
            )
        elif not found or given[-1] or inputs is not None:
            raise UsageError(f"{type(target).__name__} cannot be measured.", f"Give {FORMS}.")
        else:
            name, workload = found[-1]
            found[-1] = name, replace(workload, inputs=target)
            given[-1] = True
            continue
        given.append(False)
    return tuple(found)


def _name(call: Callable[..., Any]) -> str:
    name = getattr(call, "__name__", "") or type(call).__name__
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "object"


def bench_session(
    request: SessionRequest, recorder: Recorder | None = None, events: Events | None = None
) -> Result:
    """Measure, compare, evaluate, save: as `bench` does, in this process."""
    check_settings(request.settings)
    arms = make_arms(request)
    if recorder is not None and recorder.saves:
        recorder.check()
    clock = read_clock()
    case = run_session(arms, request.settings, events)
    measured = tuple(public_measurement(arm) for arm in case.arms)
    measured = tuple(
        replace(arm, notes=(*arm.notes, CONSTANT_OUTPUT_NOTE))
        if arm.arm.name in case.constant
        else arm
        for arm in measured
    )
    method = replace(
        method_of(request.settings),
        replicates=case.replicates,
        looks=case.looks,
        stopped_by=case.stopped_by,
        elapsed_s=case.elapsed_s,
        alpha=case.alpha,
        estimator=stats.estimator_of(case.arms[0]),
        phases={name: round(seconds, 3) for name, seconds in case.phases.items()},
        session=True,
    )
    made = Result(
        id=new_id(),
        created=now(),
        command=(),
        arms=measured,
        comparisons=(),
        checks=(),
        method=method,
        label=request.label,
        version=torchstone.__version__,
        clocks_hz=(*clock, *read_clock()),
    )
    result = evaluate(with_peaks(made, recorder), bench.aa_floor(recorder, made.arms[0]))

    def again(pair: Sequence[ArmSpec], settings: Settings) -> CaseResult:
        by_name = {arm.spec.name: arm.workload for arm in arms}
        return run_session([SessionArm(one, by_name[one.name]) for one in pair], settings, events)

    specs = [arm.spec for arm in arms]
    result = with_remeasurements(result, specs, request.settings, events, run=again)
    return keep(result, recorder)


def make_arms(request: SessionRequest) -> list[SessionArm]:
    """Every object in eager and under each variant, the first the baseline."""
    if not request.objects:
        raise UsageError("There is nothing to measure.", f"Give {FORMS}.")
    check_choices("mode", MODES, request.mode)
    check_choices("precision", PRECISIONS, request.precision)
    check_threads(request.threads)
    for variant in request.vs:
        check_variant(variant, lambda: torch_backends(None))
        if "dynamic" in variant.split("+")[1:] or "freezing" in variant.split("+")[1:]:
            raise UsageError(
                f"{variant} cannot be measured in a session: it is a setting of a whole process.",
                "Write a factory `def make(): ...` in a file, and name it: path.py:make.",
            )
    common = ArmSpec(
        name="",
        mode=request.mode,
        precision=request.precision,
        device=request.device,
        threads=request.threads,
        seed=request.settings.seed,
    )
    specs, workloads = [], []
    for name, workload in request.objects:
        for variant in ("eager", *request.vs):
            title = name if not request.vs else f"{name} {variant}"
            if len(request.objects) == 1 and request.vs:
                title = variant
            target = f"{SESSION}:{name}"
            specs.append(replace(common, name=title, target=target, variant=variant))
            workloads.append(workload)
    return [SessionArm(*pair) for pair in zip(distinct(specs), workloads, strict=True)]
