"""`torchstone explain --roofline`: a stored result, or a target measured now, under its roofs."""

from __future__ import annotations

from dataclasses import replace

from torchstone.conductor import Events
from torchstone.explain import Roofline, roofline
from torchstone.explain.roofline import CALIBRATE
from torchstone.lab.bench import bench
from torchstone.lab.keeping import Keeper
from torchstone.lab.request import BenchRequest
from torchstone.lab.roofs import known_roofs
from torchstone.machine.environment import machine_id
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.records import Calibration, Result, RunView, UsageError
from torchstone.store import open_store


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
    calibration, stale = _calibration(found, Keeper(db))
    return _noted(roofline(found, calibration, arm), stale)


def roofline_of_target(
    request: BenchRequest, keeper: Keeper, save: bool, events: Events | None = None
) -> tuple[Result, Roofline]:
    """Measure the target as `bench` does, then look at it."""
    here = machine_id(describe_cpu(), cache_sizes(), memory_bytes())
    known, stale = known_roofs(keeper, here, request.device)
    if known is None or stale:
        missing = "This machine has not been calibrated, so its roofs are not known."
        raise UsageError(stale or missing, CALIBRATE)
    result = bench(request, keeper if save else None, events)
    if result.method.stopped_by == "interrupt" and not result.arms[0].turns:
        raise KeyboardInterrupt  # without a sample there is nothing to draw
    calibration: Calibration | None = known
    with keeper.forgiving("The machine's roofs could not be looked up"):
        calibration, stale = _calibration(result, keeper)
    return result, _noted(roofline(result, calibration), stale)


def _calibration(result: Result, keeper: Keeper) -> tuple[Calibration | None, str]:
    """The roofs in force when the result was judged, else the newest of its machine, and whether
    they are stale. Of another machine's nothing here can tell."""
    if result.calibration is not None or not result.arms:
        return result.calibration, ""
    base = result.arms[0]
    if base.environment is None:
        return None, ""
    found, stale = known_roofs(keeper, base.environment.machine_id, base.arm.device)
    here = machine_id(describe_cpu(), cache_sizes(), memory_bytes())
    return found, stale if base.environment.machine_id == here else ""


def _noted(found: Roofline, stale: str) -> Roofline:
    return replace(found, notes=(*found.notes, f"{stale} {CALIBRATE}")) if stale else found
