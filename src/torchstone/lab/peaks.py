"""The machine's peaks beside a result: the calibration in force, a new one where it is beaten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from statistics import median

from torchstone import stats, validate
from torchstone.conductor import CaseResult, CaseSpec, Events, Settings, Templates, run_case
from torchstone.conductor.calibration import run_calibration
from torchstone.conductor.run import OUT_OF_TIME
from torchstone.lab.recording import Recorder
from torchstone.lab.secrets import public_measurement
from torchstone.machine.calibrate import fingerprint, is_stale
from torchstone.machine.clock import measure_clock
from torchstone.records import (
    ArmSpec,
    Calibration,
    Comparison,
    Integrity,
    Method,
    Peak,
    Remeasurement,
    Result,
    TorchstoneError,
)
from torchstone.validate.base import estimator

# Evaluating: from what was measured to comparisons and checks. Samples in, words out.


def evaluate(result: Result, aa_floor: float) -> Result:
    """The result with its comparisons and checks made again; an arm that fails has no verdict."""
    method = result.method
    name = estimator(result) if result.arms else None
    comparisons = stats.compare_all(result.arms, method.margin, method.alpha, aa_floor, name)
    spent = spent_budget(method)
    if spent is not None:
        comparisons = tuple(stats.with_budget(found, spent) for found in comparisons)
    bare = replace(result, comparisons=comparisons, checks=())
    checks = validate.evaluate(bare)
    return replace(bare, checks=checks, comparisons=validate.withhold(comparisons, checks))


def evaluate_again(result: Result) -> Result:
    """The same with the A/A floor that was in force."""
    return evaluate(result, max((c.aa_floor for c in result.comparisons), default=0.0))


def spent_budget(method: Method) -> float | None:
    """The budget that the data stands for; None where another one would not have given more: it
    ended before the budget did, or its samples were counted."""
    whole = method.stopped_by in ("budget", "replicates") and method.asked_samples is None
    return method.budget_s if whole else None


def interrupted(result: Result) -> Result:
    """The same, ended by Ctrl-C while something was measured beside it."""
    return replace(result, method=replace(result.method, stopped_by="interrupt"))


def read_clock() -> tuple[float, ...]:
    """The processor's real clock now, if it can be measured here; a few milliseconds."""
    found = measure_clock().peak
    return () if found is None else (found.value,)


def with_peaks(result: Result, recorder: Recorder | None) -> Result:
    """The result with the newest calibration of its machine, as far as its arms need it.

    A stale one is left out: no peak is better than one of another torch or another year.
    """
    base = result.arms[0]
    if recorder is None or base.environment is None:
        return result
    found, stale = None, ""
    with recorder.collect_errors("The machine's peaks could not be looked up"):
        found, stale = known_peaks(recorder, base.environment.machine_id, base.arm.device)
    if found is None or stale:
        return result
    return replace(result, calibration=_needed(found, result))


def known_peaks(recorder: Recorder, machine_id: str, device: str) -> tuple[Calibration | None, str]:
    """The newest calibration of a machine's device, and a sentence where it is stale."""
    kind = device.split(":")[0]
    found = recorder.calibration(machine_id, kind)
    now = datetime.now(timezone.utc)
    if found is None or not is_stale(found, now, fingerprint(kind, found.device_name)):
        return found, ""
    return found, (
        f"The peaks measured on {found.created[:10]} are stale: they are too old, or the machine "
        "or torch has changed."
    )


def _needed(calibration: Calibration, result: Result) -> Calibration:
    """Without the peaks of thread counts that no arm used: every result carries a copy."""
    used = {0, *(arm.arm.threads for arm in result.arms)}
    used |= {arm.environment.threads.get("torch", 0) for arm in result.arms if arm.environment}
    compute = tuple(peak for peak in calibration.compute if peak.threads in used)
    bandwidth = tuple(peak for peak in calibration.bandwidth if peak.threads in used)
    return replace(calibration, compute=compute, bandwidth=bandwidth)


def recalibrated(
    result: Result,
    recorder: Recorder | None,
    events: Events | None,
    until: float | None = None,
) -> Result:
    """Where a peak was beaten: measure that peak again beside the figure; the higher counts.

    A peak is the best of many short samples, so on a noisy machine it may have been missed. That
    takes as long as it takes, so it is left alone where everything must be over at a time.
    """
    if result.method.cut_short:
        return result
    wanted = validate.needs_recalibration(result)
    calibration = result.calibration
    if not wanted or calibration is None or recorder is None:
        return result
    if until is not None:
        return _as_it_was(result, calibration, "--total leaves no time for it")
    if events is not None:
        events.phase("a peak was beaten: measuring it again")
    try:
        fresh = run_calibration(device=calibration.device, only=wanted)
    except (TorchstoneError, OSError) as error:
        return _as_it_was(result, calibration, getattr(error, "message", str(error)))
    except KeyboardInterrupt:  # the measurement itself is whole and is kept
        return evaluate_again(interrupted(_as_it_was(result, calibration, "interrupted")))
    raised = merge_peaks(calibration, fresh)
    with recorder.collect_errors("The peaks measured again were not kept"):
        whole = recorder.calibration(calibration.machine_id, calibration.device) or calibration
        raised = merge_peaks(whole, fresh)
        if recorder.saves:
            recorder.save_calibration(raised)
    return evaluate_again(replace(result, calibration=_needed(raised, result)))


def _as_it_was(result: Result, calibration: Calibration, why: str) -> Result:
    note = f"a peak could not be measured again: {why}"
    return replace(result, calibration=replace(calibration, notes=(*calibration.notes, note)))


def merge_peaks(old: Calibration, fresh: Calibration) -> Calibration:
    """The old calibration with every peak at the higher of its two figures."""
    return replace(
        old,
        id=fresh.id,
        compute=_higher(old.compute, fresh.compute),
        bandwidth=_higher(old.bandwidth, fresh.bandwidth),
        notes=(*old.notes, f"peaks measured again after a figure above them ({fresh.created})"),
    )


def _higher(old: Sequence[Peak], fresh: Sequence[Peak]) -> tuple[Peak, ...]:
    best: dict[tuple[str, int, str, bool], Peak] = {}
    for peak in (*old, *fresh):
        key = (peak.dtype, peak.threads, peak.level, peak.sparse)
        if key not in best or peak.value > best[key].value:
            best[key] = peak
    return tuple(best.values())


# Measure again what is too good to be taken on trust: new processes, other inputs.


SEED_APART = 7_919
"""Added to the seed: other inputs and, where the factory is seeded, other weights."""
SHARE = 0.5
"""Of the first look's budget: an effect of two times needs no fine interval to be seen again."""
RunPair = Callable[[Sequence[ArmSpec], Settings], CaseResult]
"""How two arms are measured again where that is not in fresh processes."""
SHORTEST_S = 3.0
REPLICATES = 3


def with_remeasurements(
    result: Result,
    arms: Sequence[ArmSpec],
    settings: Settings,
    events: Events | None,
    templates: Templates | None = None,
    until: float | None = None,
    run: RunPair | None = None,
) -> Result:
    """Measure each suspicious comparison again and evaluate the result by both looks.

    One that cannot be had (a file is gone, the disk is full) says why, and costs nothing of the
    first.
    """
    if result.method.cut_short or settings.screening:
        return result
    wanted = validate.needs_remeasuring(result)
    if not wanted:
        return result
    by_name = {arm.name: arm for arm in arms}
    try:
        looks = tuple(
            look_again(by_name[c.base], by_name[c.new], c, settings, events, templates, until, run)
            for c in wanted
        )
    except KeyboardInterrupt:  # the first look is whole and is kept
        return evaluate_again(interrupted(result))
    except (TorchstoneError, OSError) as error:
        seed, why = settings.seed + SEED_APART, f"it failed: {error}"
        looks = tuple(
            Remeasurement(c.base, c.new, seed, c.speedup or 0.0, None, reason=why) for c in wanted
        )
    return evaluate_again(replace(result, remeasurements=looks))


def look_again(
    base: ArmSpec,
    new: ArmSpec,
    first: Comparison,
    settings: Settings,
    events: Events | None,
    templates: Templates | None = None,
    until: float | None = None,
    run: RunPair | None = None,
) -> Remeasurement:
    """The same two arms from another seed, in processes of their own, or as `run` does it.

    Half a look says nothing, so Ctrl-C ends it as a `KeyboardInterrupt`.
    """
    seed = settings.seed + SEED_APART
    if events is not None:
        events.phase(f"{new.name}: measuring again, too good to be taken on trust")
    again = replace(
        settings,
        seed=seed,
        budget_s=max(SHORTEST_S, SHARE * settings.budget_s),
        replicates=REPLICATES,
        count_flops=False,
    )
    pair = tuple(replace(arm, seed=seed) for arm in (base, new))
    if run is not None:
        case = run(pair, again)
    else:
        case = run_case(CaseSpec(pair, again, until), events, templates)
    if case.stopped_by == OUT_OF_TIME:
        raise TorchstoneError("the time of --total was over")
    if case.stopped_by == "interrupt":
        raise KeyboardInterrupt
    made = Remeasurement(first.base, first.new, seed, first.speedup or 0.0, None)
    failed = next((arm for arm in case.arms if not arm.outcome.comparable), None)
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


# CPU time after the turns: idle threads that spin, or work left to a thread? Spinning can be
# switched off, and work cannot.


SPIN_LOOK_S = 0.3
"""Two turns decide it: the work of a cheat comes late in every turn."""


def with_spin_look(
    result: Result,
    arms: Sequence[ArmSpec],
    settings: Settings,
    events: Events | None,
    templates: Templates | None = None,
    until: float | None = None,
) -> Result:
    """Look again at arms with CPU time after their turns, their idle threads put to sleep."""
    wanted = () if result.method.cut_short else validate.needs_spin_off(result)
    found: dict[str, int] = {}
    for spec in (arm for arm in arms if arm.name in wanted):
        if events is not None:
            events.phase(f"{spec.name}: looking again with idle threads asleep")
        try:
            late = _late_asleep(spec, settings, templates, until)
        except (TorchstoneError, OSError):
            late = None
        except KeyboardInterrupt:  # the measurement itself is whole and is kept
            return evaluate_again(interrupted(result))
        if late is not None:
            found[spec.name] = late
    if not found:
        return result
    looked = tuple(
        replace(arm, integrity=replace(arm.integrity or Integrity(), late_without_spin_ns=late))
        if (late := found.get(arm.arm.name)) is not None
        else arm
        for arm in result.arms
    )
    return evaluate_again(replace(result, arms=looked))


def _late_asleep(
    spec: ArmSpec, settings: Settings, templates: Templates | None, until: float | None
) -> int | None:
    """CPU time after a turn where no idle thread spins, the median; None without a turn."""
    quick = replace(
        settings,
        budget_s=SPIN_LOOK_S,
        replicates=1,
        check_outputs=False,
        count_flops=False,
        total_s=None,
        extra_checks=(),
    )
    env = tuple({**dict(spec.env), **dict(validate.SPIN_OFF)}.items())
    case = run_case(CaseSpec((replace(spec, env=env),), quick, until), None, templates)
    if case.stopped_by == "interrupt":
        raise KeyboardInterrupt
    late = [turn.noise.late_cpu_ns for turn in case.arms[0].turns]
    known = [one for one in late if one is not None]
    return round(median(known)) if known else None
