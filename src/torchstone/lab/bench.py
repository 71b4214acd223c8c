"""`torchstone bench`: measure arms against each other, evaluate the numbers, keep them.

Now and then a duplicate of the baseline runs along: what identical arms differ by, here, today.

No verdict of `faster` or `slower` is given for less than that (see `stats.compare`).

`torchstone timeit`: statements, timed as `python -m timeit` times them, with evidence.
"""

from __future__ import annotations

import hashlib
import os
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
from torchstone.conductor.case import FAST, RIGOROUS, USUAL
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
    check_arm,
    check_settings,
    command_of,
    distinct,
    make_arms,
    method_of,
    repeated,
    settings_words,
    vary_shapes,
    with_effort,
)
from torchstone.lab.secrets import public_measurement, public_words, signature
from torchstone.machine.memory import usual_allocator
from torchstone.machine.redact import without_secrets
from torchstone.measure.arm import compile_statement
from torchstone.records import (
    ArmSpec,
    Conditions,
    Estimate,
    Measurement,
    Method,
    Outcome,
    Result,
    Statement,
)
from torchstone.store.limits import now
from torchstone.track.compare import DEFAULT_AA_FLOOR, step_class
from torchstone.validate.base import seconds_per_call
from torchstone.workloads.target import parse_target

EVERY = 20
"""One comparison in this many carries a duplicate: two arms then take half as long again."""
DUPLICATE = "baseline, a second time"
USELESS = 0.20
"""Ours: who cannot see a fifth cannot answer what people ask of a benchmark."""
STRICT_ALPHA = 0.01
"""Ours: "not fit" is a hard word, so one quiet machine in a hundred may hear it by chance."""
MARGIN = 0.02
"""The default one: what two identical arms differ by does not depend on what was asked."""


def is_due(recorder: Recorder | None, arms: Sequence[ArmSpec], effort: str = USUAL) -> bool:
    """Whether this case should carry a duplicate of its baseline: a rigorous one always, one that
    is to be fast never."""
    if recorder is None or not recorder.saves or len(arms) < 2 or effort == FAST:
        return False
    if effort == RIGOROUS:
        return True
    stored = recorder.read(lambda store: store.count()) or 0
    return stored % EVERY == EVERY - 1


def with_duplicate(arms: Sequence[ArmSpec]) -> tuple[ArmSpec, ...]:
    """The arms and one more, the baseline under another name."""
    return (*arms, replace(arms[0], name=DUPLICATE))


def observe(recorder: Recorder, case: CaseResult) -> CaseResult:
    """Remember what the duplicate differed by, and take it out of the case."""
    base, duplicate = case.arms[0], case.arms[-1]
    if base.outcome is duplicate.outcome is Outcome.OK and base.environment is not None:
        found = stats.ratio(base, duplicate, stats.estimator_of(base))
        if found.replicates > 1 and is_telling(base, duplicate):
            remember(recorder, base, found)
    return replace(case, arms=case.arms[:-1])


def remember(recorder: Recorder, base: Measurement, found: Estimate) -> None:
    """Keep what two identical arms differed by, if the database lets us."""
    if base.environment is not None:
        size = abs(found.time_ratio - 1)
        with recorder.collect_errors("What identical arms differ by was not kept"):
            recorder.remember_aa_floor(base.environment.machine_id, conditions(base), size, found)


def is_telling(base: Measurement, twin: Measurement) -> bool:
    """Whether what two identical arms differ by says something of the machine.

    Not where nothing could be seen at all: such a case says how loaded the machine was then, and
    would hold back verdicts on quiet days.
    """
    evaluated = stats.compare(base, twin, margin=MARGIN, alpha=0.05, aa_floor=DEFAULT_AA_FLOOR)
    least = evaluated.smallest_detectable
    return differ(base, twin) or (least is not None and least <= USELESS)


def differ(base: Measurement, twin: Measurement, margin: float = MARGIN) -> bool:
    """Whether two identical arms would be called different."""
    evaluated = stats.compare(
        base, twin, margin=margin, alpha=STRICT_ALPHA, aa_floor=DEFAULT_AA_FLOOR
    )
    return evaluated.verdict.different


def aa_floor(recorder: Recorder | None, arm: Measurement) -> float:
    """What identical arms have been seen to differ by, on this machine at this size of step."""
    known = None
    if recorder is not None and arm.environment is not None:
        with recorder.collect_errors("What identical arms differ by could not be looked up"):
            known = recorder.aa_floor(arm.environment.machine_id, conditions(arm))
    return max(DEFAULT_AA_FLOOR, known or 0.0)


def conditions(arm: Measurement) -> Conditions:
    """Thread count, allocator and order of magnitude of a step: noise depends on all three.

    The step's time is that of the samples, as for the floors of a run's cases (`track.floors`):
    statements have no compile cost to read it from.
    """
    threads = arm.environment.threads.get("torch", 1) if arm.environment else 1
    seconds = seconds_per_call(arm, stats.estimator_of(arm)) or 0.0
    return Conditions(threads, arm.arm.allocator, step_class(seconds * 1e9))


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
    # A tuning has a bound for its wall time, and the next result carries one instead.
    watched = kind != "tune" and is_due(recorder, arms, settings.effort)
    specs = with_duplicate(arms) if watched else tuple(arms)
    sources = {arm.name: source_hash(arm) for arm in specs}
    clock = read_clock()
    case = run_case(CaseSpec(specs, settings, until), events, templates)
    clocks = (*clock, *read_clock())
    if recorder is not None and watched:
        case = observe(recorder, case)
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
    result = evaluate(with_peaks(made, recorder), aa_floor(recorder, made.arms[0]))
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


BUDGET_S = 3.0
"""`python -m timeit` takes one to two seconds; fresh processes take a little more."""
_NAME_LENGTH = 40


def time_statements(
    statements: Sequence[str],
    setup: str,
    settings: Settings,
    *,
    python: str | None = None,
    clock: str = "wall",
    allocator: str = "",
    threads: int | None = None,
    recorder: Recorder | None = None,
    events: Events | None = None,
) -> Result:
    """Each statement is an arm; several are compared with the first."""
    check_settings(settings)
    # Nothing is built: what an execution may take, the first one may take too.
    longest = max(settings.build_timeout_s, settings.step_timeout_s)
    settings = replace(settings, build_timeout_s=longest)
    allocator = allocator or usual_allocator()
    common = ArmSpec(
        name="", python=python, allocator=allocator, seed=settings.seed, threads=threads
    )
    arms = distinct([_arm(Statement(stmt, setup, clock), common) for stmt in statements])
    for arm in arms:
        check_arm(arm)
    command = public_words(timeit_command(statements, setup, settings, common, clock))
    return measure(arms, settings, recorder, events, command, "timeit")


def timeit_command(
    statements: Sequence[str], setup: str, settings: Settings, common: ArmSpec, clock: str
) -> tuple[str, ...]:
    """The command line that asks for the same again."""
    plain = with_effort(settings.effort)
    said = replace(settings, budget_s=plain.budget_s, build_timeout_s=plain.build_timeout_s)
    counts: dict[str, int | str | None] = {
        "-n": settings.loops,
        "-r": settings.samples,
        "--threads": common.threads,
        "--python": common.python,
    }
    return (
        *("torchstone", "timeit"),
        *(word for flag, n in counts.items() if n is not None for word in (flag, str(n))),
        *("--allocator", common.allocator),
        *settings_words(said),
        *(("-s", setup) if setup != "pass" else ()),
        *(("-p",) if clock == "cpu" else ()),
        *(("--budget", f"{settings.budget_s:g}s") if settings.budget_s != BUDGET_S else ()),
        *repeated("--vs", statements[1:]),
        *(("--",) if statements[0].startswith("-") else ()),
        statements[0],
    )


def _arm(statement: Statement, common: ArmSpec) -> ArmSpec:
    if common.python is None:
        compile_statement(statement)  # another interpreter may know syntax that ours does not
    name = " ".join(without_secrets(statement.stmt, os.environ).split())
    name = name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 3] + "..."
    return replace(common, name=name, statement=statement)
