"""The machine's roofs beside a result: the calibration in force, a new one where it is beaten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

from torchstone import validate
from torchstone.conductor import Events
from torchstone.lab.judging import interrupted, judge_again
from torchstone.lab.keeping import Keeper
from torchstone.machine.calibrate import fingerprint, is_stale, run_calibration
from torchstone.machine.clock import measure_clock
from torchstone.records import Calibration, Peak, Result, TorchstoneError


def read_clock() -> tuple[float, ...]:
    """The processor's real clock now, if it can be measured here; a few milliseconds."""
    found = measure_clock().peak
    return () if found is None else (found.value,)


def with_roofs(result: Result, keeper: Keeper | None) -> Result:
    """The result with the newest calibration of its machine, as far as its arms need it.

    A stale one is left out: no roof is better than one of another torch or another year.
    """
    base = result.arms[0]
    if keeper is None or base.environment is None:
        return result
    found, stale = None, ""
    with keeper.forgiving("The machine's roofs could not be looked up"):
        found, stale = known_roofs(keeper, base.environment.machine_id, base.arm.device)
    if found is None or stale:
        return result
    return replace(result, calibration=_needed(found, result))


def known_roofs(keeper: Keeper, machine_id: str, device: str) -> tuple[Calibration | None, str]:
    """The newest calibration of a machine's device, and a sentence where it is stale."""
    kind = device.split(":")[0]
    found = keeper.calibration(machine_id, kind)
    now = datetime.now(timezone.utc)
    if found is None or not is_stale(found, now, fingerprint(kind, found.device_name)):
        return found, ""
    return found, (
        f"The roofs measured on {found.created[:10]} are stale: they are too old, or the machine "
        "or torch has changed."
    )


def _needed(calibration: Calibration, result: Result) -> Calibration:
    """Without the roofs of thread counts that no arm used: every result carries a copy."""
    used = {0}
    for arm in result.arms:
        used.add(arm.arm.threads or 0)
        used.add(arm.environment.threads.get("torch", 0) if arm.environment else 0)
    return replace(
        calibration,
        compute=tuple(peak for peak in calibration.compute if peak.threads in used),
        bandwidth=tuple(peak for peak in calibration.bandwidth if peak.threads in used),
    )


def recalibrated(result: Result, keeper: Keeper | None, events: Events | None) -> Result:
    """Where a roof was beaten: measure that roof again beside the figure, and judge by the higher.

    A peak is the best of many short samples, so on a noisy machine it may have been missed.
    """
    if result.method.stopped_by == "interrupt":
        return result
    wanted = validate.needs_recalibration(result)
    calibration = result.calibration
    if not wanted or calibration is None or keeper is None:
        return result
    if events is not None:
        events.phase("a roof was beaten: measuring it again")
    try:
        fresh = run_calibration(device=calibration.device, only=wanted)
    except TorchstoneError as error:
        return _as_it_was(result, calibration, error.message)
    except OSError as error:
        return _as_it_was(result, calibration, str(error))
    except KeyboardInterrupt:  # the measurement itself is whole and is kept
        return judge_again(interrupted(_as_it_was(result, calibration, "interrupted")))
    raised = raise_roofs(calibration, fresh)
    with keeper.forgiving("The roofs measured again were not kept"):
        whole = keeper.calibration(calibration.machine_id, calibration.device) or calibration
        raised = raise_roofs(whole, fresh)
        keeper.save_calibration(raised)
    return judge_again(replace(result, calibration=_needed(raised, result)))


def _as_it_was(result: Result, calibration: Calibration, why: str) -> Result:
    note = f"a roof could not be measured again: {why}"
    return replace(result, calibration=replace(calibration, notes=(*calibration.notes, note)))


def raise_roofs(old: Calibration, fresh: Calibration) -> Calibration:
    """The old calibration with every roof at the higher of its two figures."""
    return replace(
        old,
        id=fresh.id,
        compute=_higher(old.compute, fresh.compute),
        bandwidth=_higher(old.bandwidth, fresh.bandwidth),
        notes=(*old.notes, f"roofs measured again after a figure above them ({fresh.created})"),
    )


def _higher(old: Sequence[Peak], fresh: Sequence[Peak]) -> tuple[Peak, ...]:
    best: dict[tuple[str, int, str, bool], Peak] = {}
    for peak in (*old, *fresh):
        key = (peak.dtype, peak.threads, peak.level, peak.sparse)
        if key not in best or peak.value > best[key].value:
            best[key] = peak
    return tuple(best.values())
