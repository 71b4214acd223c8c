"""`torchstone explain`: a ledger of a target, its findings, and predictions put to the test."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torchstone
from torchstone.conductor import Events, Settings
from torchstone.explain import Roofline, roofline
from torchstone.explain.differences import difference
from torchstone.explain.findings.base import apply_remedy, untested, verdict, with_findings
from torchstone.explain.ledger import make_ledger, run_passes_of
from torchstone.explain.passes.report import Plan
from torchstone.explain.roofline import CALIBRATE
from torchstone.lab.bench import bench, measure, new_id
from torchstone.lab.peaks import known_peaks
from torchstone.lab.recording import Recorder, this_machine
from torchstone.lab.request import (
    BenchRequest,
    check_arm,
    check_settings,
    distinct,
    env_words,
    make_arms,
    option_words,
)
from torchstone.lab.secrets import public_ledger, public_words
from torchstone.records import (
    ArmSpec,
    Calibration,
    Difference,
    Ledger,
    Prediction,
    Result,
    RunView,
    UsageError,
    Verification,
)
from torchstone.store import open_store
from torchstone.store.limits import now

EAGER = "eager"
VERIFY_BUDGET_S = 10.0
TEST_REPLICATES = 6
"""Processes of each arm in the test of a prediction. With three of them an interval reaches from a
third of the time to one and a half times, where pages cost now this and now that."""
INTERRUPTED = "Not tested: interrupted."
KEPT = (
    "Memory is kept from step to step here; a program with the system's own allocator may take it "
    'fresh in every step. What that costs: `torchstone bench` with --arm "name=system '
    'allocator=default".'
)


@dataclass(frozen=True)
class ExplainRequest:
    """A target under a variant, and how long to look at it; `vs` asks for a second ledger beside
    the first."""

    bench: BenchRequest
    vs: str = ""
    budget_s: float = 6.0
    verify: bool = False
    verify_budget_s: float = VERIFY_BUDGET_S
    variant: str = EAGER


def explain_target(
    request: ExplainRequest, recorder: Recorder | None = None, events: Events | None = None
) -> Ledger:
    """The ledger of one arm, with findings; each tested if asked for."""
    _check(request, recorder)
    (arm,) = _arms(request, request.variant)
    return _explained(arm, request, recorder, events, verify=request.verify)


def explain_difference(
    request: ExplainRequest, recorder: Recorder | None = None, events: Events | None = None
) -> Difference:
    """The ledgers of the target under its variant and under `vs`, side by side. The findings under
    `vs` are the ones that are shown, and so the ones that are tested."""
    _check(request, recorder)
    if not request.vs:
        raise UsageError("There is nothing to compare with.", "Name a variant: --vs inductor.")
    first, second = _arms(request, request.variant, request.vs)
    base = _explained(first, request, recorder, events, verify=False)
    return difference(base, _explained(second, request, recorder, events, verify=request.verify))


def _explained(
    arm: ArmSpec,
    request: ExplainRequest,
    recorder: Recorder | None,
    events: Events | None,
    *,
    verify: bool,
) -> Ledger:
    """The ledger of an arm as it may be shown; kept at once, because the next may fail."""
    ledger = _ledger(arm, request, recorder, events)
    if verify:
        ledger = _verified(ledger, arm, request, recorder, events)
    ledger = public_ledger(ledger, arm)
    if recorder is not None and recorder.saves:
        with recorder.collect_errors("The ledger was not kept"):
            recorder.write(lambda store: store.save_ledger(ledger))
            recorder.ids_kept.append(ledger.id)
    return ledger


def _arms(request: ExplainRequest, *variants: str) -> list[ArmSpec]:
    """The target under each of these, which need not begin with eager as those of `bench` do."""
    plain = make_arms(replace(request.bench, vs=()))[0]
    arms = distinct([replace(plain, name=one, variant=one) for one in variants])
    for arm in arms:
        check_arm(arm)
    return arms


def _check(request: ExplainRequest, recorder: Recorder | None) -> None:
    """What can be known to fail is found before time is spent on measuring."""
    check_settings(request.bench.settings)
    if recorder is not None and recorder.saves:
        recorder.check()


def _ledger(
    arm: ArmSpec, request: ExplainRequest, recorder: Recorder | None, events: Events | None
) -> Ledger:
    if events is not None:
        events.phase(f"{arm.name}: looking at its steps")
    passes = run_passes_of(arm, Plan(budget_s=request.budget_s), request.bench.settings)
    calibration, stale = _calibration_explain(arm, recorder)
    ledger = with_findings(make_ledger(arm, passes, calibration))
    kept = KEPT if arm.allocator == "keep" and ledger.share("allocator") > 0 else ""
    return replace(
        ledger,
        notes=(*ledger.notes, *filter(None, (stale, kept))),
        id=new_id(),
        created=now(),
        version=torchstone.__version__,
    )


def _calibration_explain(arm: ArmSpec, recorder: Recorder | None) -> tuple[Calibration | None, str]:
    """The peaks, and a sentence where they are there and cannot be used."""
    found, stale = None, ""
    if recorder is not None:
        with recorder.collect_errors("The machine's peaks could not be looked up"):
            found, stale = known_peaks(recorder, this_machine(), arm.device)
    return (None, f"{stale} They are not used. {CALIBRATE}") if stale else (found, "")


def _verified(
    ledger: Ledger,
    arm: ArmSpec,
    request: ExplainRequest,
    recorder: Recorder | None,
    events: Events | None,
) -> Ledger:
    """Ctrl-C ends the testing; what was found until then is kept."""
    settings = replace(request.bench.settings, budget_s=request.verify_budget_s)
    found: list[Verification] = []
    stopped = False
    for prediction in ledger.findings:
        if not prediction.remedy.applicable:
            found.append(untested(prediction))
            continue
        tested = Verification(prediction.name, prediction.time_ratio, sentence=INTERRUPTED)
        if not stopped:
            try:
                if events is not None:
                    events.phase(f"testing: {prediction.title}")
                tested = put_to_test(arm, prediction, settings, recorder, events)
            except KeyboardInterrupt:
                stopped = True
        found.append(tested)
    return replace(ledger, verifications=tuple(found))


def was_interrupted(found: Ledger | Difference) -> bool:
    """Whether Ctrl-C ended the tests of the findings."""
    ledger = found.new if isinstance(found, Difference) else found
    return any(one.sentence == INTERRUPTED for one in ledger.verifications)


def put_to_test(
    arm: ArmSpec,
    prediction: Prediction,
    settings: Settings,
    recorder: Recorder | None = None,
    events: Events | None = None,
) -> Verification:
    """Apply the remedy, measure both arms in turns, and hold the result against the range.

    Half a test decides nothing: Ctrl-C ends it as a `KeyboardInterrupt`, and the number of
    processes does not depend on how long they take to start.
    """
    settings = replace(settings, replicates=settings.replicates or TEST_REPLICATES)
    remedied = apply_remedy(prediction.remedy, arm, prediction.name)
    base = replace(arm, name="as it is")
    command = public_words(verify_command(arm, settings))
    try:
        result = measure((base, remedied), settings, recorder, events, command, "verify")
    except UsageError as error:
        said = f"Not tested: {error.message}"
        return Verification(prediction.name, prediction.time_ratio, sentence=said)
    if result.method.stopped_by == "interrupt":
        raise KeyboardInterrupt
    return verdict(prediction, result)


def verify_command(arm: ArmSpec, settings: Settings) -> tuple[str, ...]:
    """The command line that looks at the same arm and tests its predictions again."""
    names = ("variant", "mode", "precision", "device", "threads", "python")
    return (
        *("torchstone", "explain", arm.target),
        *option_words(arm, ArmSpec("", ""), *names),
        *("--allocator", arm.allocator),
        *env_words(arm.env),
        *("--budget", f"{settings.budget_s:g}s", "--verify"),
    )


# `torchstone explain --roofline`: a stored result, or a target measured now, under its peaks.


def is_target(text: str) -> bool:
    """Whether it names code (`path.py:make`, `timm:resnet18`) and not a stored result."""
    return ":" in text or text.endswith(".py")


def roofline_of_stored(name: str, arm: str = "", db: str | None = None) -> Roofline:
    """From the record alone; nothing is measured."""
    with open_store(db, create=False, read_only=True) as store:
        found = store.find(name)
    if isinstance(found, RunView):
        raise UsageError(
            f"{name} is a run of many results.",
            "Name one of them: `torchstone show` lists them with `--csv`, in `result_id`.",
        )
    calibration, stale = _calibration_roofline(found, Recorder(db))
    return _noted(roofline(found, calibration, arm), stale)


def roofline_of_target(
    request: BenchRequest, recorder: Recorder, events: Events | None = None
) -> tuple[Result, Roofline]:
    """Measure the target as `bench` does, then look at it."""
    here = this_machine()
    known, stale = known_peaks(recorder, here, request.device)
    if known is None or stale:
        missing = "This machine has not been calibrated, so its peaks are not known."
        raise UsageError(stale or missing, CALIBRATE)
    result = bench(request, recorder, events)
    if result.method.stopped_by == "interrupt" and not result.arms[0].turns:
        raise KeyboardInterrupt  # without a sample there is nothing to draw
    calibration: Calibration | None = known
    with recorder.collect_errors("The machine's peaks could not be looked up"):
        calibration, stale = _calibration_roofline(result, recorder)
    return result, _noted(roofline(result, calibration), stale)


def _calibration_roofline(result: Result, recorder: Recorder) -> tuple[Calibration | None, str]:
    """The peaks in force when the result was evaluated, else the newest of its machine, and whether
    they are stale. Of another machine's nothing here can tell."""
    if result.calibration is not None or not result.arms:
        return result.calibration, ""
    base = result.arms[0]
    if base.environment is None:
        return None, ""
    found, stale = known_peaks(recorder, base.environment.machine_id, base.arm.device)
    here = this_machine()
    return found, stale if base.environment.machine_id == here else ""


def _noted(found: Roofline, stale: str) -> Roofline:
    return replace(found, notes=(*found.notes, f"{stale} {CALIBRATE}")) if stale else found
