"""`torchstone bench`: measure arms against each other, evaluate the numbers, keep them."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torchstone
from torchstone import stats, validate
from torchstone.conductor import (
    CaseResult,
    CaseSpec,
    Events,
    Settings,
    Templates,
    open_templates,
    run_case,
)
from torchstone.lab import aa_test
from torchstone.lab.peaks import (
    evaluate,
    interrupted,
    read_clock,
    recalibrated,
    with_peaks,
    with_remeasurements,
    with_spin_look,
)
from torchstone.lab.recording import INTERRUPTED, Recorder, StorageWarning
from torchstone.lab.request import (
    BenchRequest,
    check_settings,
    command_of,
    make_arms,
    method_of,
    vary_shapes,
)
from torchstone.lab.secrets import public_measurement, public_words, signature
from torchstone.records import (
    ArmSpec,
    Measurement,
    Method,
    Outcome,
    Result,
)
from torchstone.store.limits import now
from torchstone.workloads.target import parse_target

END_S = 1.0
"""Of a bound on everything, for evaluating and storing what there is by then."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def bench(
    request: BenchRequest, recorder: Recorder | None = None, events: Events | None = None
) -> Result:
    """Check the request, measure, compare, evaluate, save."""
    check_settings(request.settings)
    arms = vary_shapes(make_arms(request))
    command = public_words(command_of(request))
    # A gate wants to know one thing soon; what the step does is for those who look closer.
    asked = request.settings
    settings = replace(asked, count_flops=asked.does.looks_deeper and asked.until == "precise")
    return measure(arms, settings, recorder, events, command, "bench", request.label)


def measure(
    arms: Sequence[ArmSpec],
    settings: Settings,
    recorder: Recorder | None,
    events: Events | None,
    command: tuple[str, ...],
    kind: str,
    label: str = "",
    templates: Templates | None = None,
) -> Result:
    """Measure arms that are known to be sound, and keep the result."""
    if recorder is not None and recorder.saves:
        recorder.check()
    with open_templates(templates) as ready:  # libraries are imported once, whatever is measured
        result = measure_unsaved(arms, settings, recorder, events, command, kind, label, ready)
    return keep(result, recorder)


def keep(result: Result, recorder: Recorder | None) -> Result:
    """The result, saved where that was asked for; a failure to is a warning of the recorder."""
    if recorder is None or not recorder.saves or _came_to_nothing(result):
        return result
    try:
        with recorder.collect_errors("The result was not kept"):
            recorder.save(result)
    except KeyboardInterrupt:  # pressed while another program held the database
        recorder.storage_warnings.append(
            StorageWarning(f"The result may not be kept: {INTERRUPTED}.")
        )
        return interrupted(result)
    return result


def _came_to_nothing(result: Result) -> bool:
    """Interrupted before anything was known: nothing is lost by not keeping it."""
    return result.method.cut_short and all(
        arm.outcome is Outcome.NOT_RUN and arm.compile is None and arm.memory is None
        for arm in result.arms
    )


def measure_unsaved(
    arms: Sequence[ArmSpec],
    settings: Settings,
    recorder: Recorder | None,
    events: Events | None,
    command: tuple[str, ...],
    kind: str,
    label: str = "",
    templates: Templates | None = None,
) -> Result:
    """Measure and evaluate, as every command does that measures. `recorder` knows the machine."""
    until = None if settings.total_s is None else time.monotonic() + settings.total_s - END_S
    watched = aa_test.is_due(recorder, arms, settings.effort)
    specs = aa_test.with_duplicate(arms) if watched else tuple(arms)
    sources = {arm.name: source_hash(arm) for arm in specs}
    clock = read_clock()
    case = run_case(CaseSpec(specs, settings, until), events, templates)
    clocks = (*clock, *read_clock())
    if recorder is not None and watched:
        case = aa_test.observe(recorder, case)
    measured = tuple(
        _public(arm, arm.arm.name in case.constant, sources[arm.arm.name]) for arm in case.arms
    )
    name, saves = new_id(), recorder is not None and recorder.saves
    made = Result(
        id=name,
        created=now(),
        command=command,
        arms=measured,
        comparisons=(),
        checks=(),
        method=_method(case, settings),
        kind=kind,
        label=label,
        version=torchstone.__version__,
        clocks_hz=clocks,
        signature=signature(name, (arm.arm for arm in measured)) if saves else "",
    )
    result = evaluate(with_peaks(made, recorder), aa_test.aa_floor(recorder, made.arms[0]))
    result = with_spin_look(result, arms, settings, events, templates, until)
    result = recalibrated(result, recorder, events, until)
    return with_remeasurements(result, arms, settings, events, templates, until)


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
