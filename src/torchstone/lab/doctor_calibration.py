"""The doctor and the calibration: make one, or say which is in force and whether it still holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from torchstone.conductor import Events
from torchstone.lab.keeping import Keeper
from torchstone.machine.instructions import ILLEGAL_REMEDY
from torchstone.records import DRAM, Calibration, Finding, Level, Peak, TorchstoneError

NAME = "calibration"
COMMAND = "torchstone doctor --calibrate"
_HOUR, _DAY = 3600.0, 86400.0


def calibrate(
    device: str,
    keeper: Keeper,
    events: Events,
    run_calibration: Callable[..., Calibration] | None = None,
) -> tuple[Calibration | None, Finding]:
    """Measure the roofs anew and keep them."""
    events.phase("calibrating")
    try:
        made = (run_calibration or _runner())(device=device, say=events.phase)
    except (TorchstoneError, ImportError) as error:
        return None, Finding(
            NAME,
            Level.WARN,
            f"could not be measured: {getattr(error, 'message', error)}",
            remedy=getattr(error, "remedy", "") or "Install torch, then try again.",
        )
    with keeper.forgiving("The calibration was not kept"):
        keeper.save_calibration(made)
    return made, _said(made, f"measured just now: {_roofs(made)}")


def _said(known: Calibration, said: str) -> Finding:
    """What is in force; a warning where part of it ends any program here."""
    for note in known.notes:
        if ILLEGAL_REMEDY in note:
            said += f"; {note.partition(';')[0]}: an illegal instruction"
            return Finding(NAME, Level.WARN, said, _figures(known), ILLEGAL_REMEDY)
    return Finding(NAME, Level.OK, said, _figures(known))


def _runner() -> Callable[..., Calibration]:
    from torchstone.machine.calibrate import run_calibration

    return run_calibration


def in_force(machine_id: str, device: str, keeper: Keeper) -> tuple[Calibration | None, Finding]:
    """The newest of this machine and device."""
    known = keeper.calibration(machine_id, device.split(":")[0])
    if known is None:
        return None, Finding(
            NAME,
            Level.NOTE,
            "none yet, so no figure can be held against what this machine can do",
            remedy=f"Run `{_command(device)}`; it takes about half a minute.",
        )
    said = f"made {_age(known.created)}: {_roofs(known)}"
    if _is_stale(known, device):
        return known, Finding(
            NAME,
            Level.NOTE,
            f"stale, {said}",
            _figures(known),
            f"Run `{_command(device)}`: it is too old, or the machine or torch has changed.",
        )
    return known, _said(known, said)


def _command(device: str) -> str:
    return COMMAND if device == "cpu" else f"{COMMAND} --device {device}"


def _is_stale(known: Calibration, device: str) -> bool:
    try:
        from torchstone.machine.calibrate import fingerprint, is_stale
    except ImportError:  # a part of it is missing: then nothing can be said against it
        return False
    return is_stale(known, datetime.now(timezone.utc), fingerprint(device, known.device_name))


def _age(created: str) -> str:
    """`12 minutes ago`, `3 hours ago`, `2 days ago`; the date as it is where it cannot be read."""
    try:
        then = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return created
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    seconds = max(0.0, (datetime.now(timezone.utc) - then).total_seconds())
    for length, word in ((_DAY, "day"), (_HOUR, "hour"), (60.0, "minute")):
        if seconds >= length:
            amount = int(seconds // length)
            return f"{amount} {word}{'' if amount == 1 else 's'} ago"
    return "just now"


def _roofs(calibration: Calibration) -> str:
    """The best of each kind, in a few words."""
    parts = []
    compute = _best(calibration.compute)
    if compute is not None:
        parts.append(f"{compute.dtype} {compute.value / 1e9:.3g} GFLOP/s{_threads(compute)}")
    memory = _best(tuple(peak for peak in calibration.bandwidth if peak.level == DRAM))
    if memory is not None:
        parts.append(f"memory {memory.value / 1e9:.3g} GB/s{_threads(memory)}")
    if calibration.clock is not None:
        parts.append(f"clock {calibration.clock.value / 1e9:.3g} GHz")
    return ", ".join(parts) or "its peaks are unknown"


def _threads(peak: Peak) -> str:
    return f" on {peak.threads} thread{'' if peak.threads == 1 else 's'}" if peak.threads else ""


def _best(peaks: tuple[Peak, ...]) -> Peak | None:
    dense = [peak for peak in peaks if not peak.sparse]
    return max(dense, key=lambda peak: peak.value, default=None)


def _figures(calibration: Calibration) -> dict[str, float]:
    known = {
        "compute": _best(calibration.compute),
        "memory": _best(tuple(peak for peak in calibration.bandwidth if peak.level == DRAM)),
        "clock": calibration.clock,
    }
    return {name: peak.value for name, peak in known.items() if peak is not None}
