"""A whole calibration, in a process that may import torch."""

from __future__ import annotations

import importlib.util
import time
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

from torchstone.machine.calibrate.request import (
    CPU,
    Measured,
    Request,
    Say,
    fingerprint,
    make_request,
    own_machine_id,
    torch_version,
)
from torchstone.records import Calibration, UsageError

_ID_DIGITS = 12


def calibrate(
    device: str = CPU,
    threads: Sequence[int] | None = None,
    dtypes: Sequence[str] | None = None,
    seconds: float | None = None,
    say: Say | None = None,
    only: Sequence[tuple[str, int]] | None = None,
) -> Calibration:
    """Measure what this device can do, for about `seconds` of samples.

    `threads` are the thread counts (by default 1 and all that may run at once). `only` asks for
    single peaks, such as `("fp32", 1)` or `("DRAM", 2)`, which takes about a second; on an
    accelerator the number is 0. Imports torch and sets its threads for the time being: call
    `run_calibration` where that must not happen. `UsageError` for a device that is not there.
    """
    request = make_request(device, threads, dtypes, seconds, only)
    started = time.perf_counter()
    measured = _measure(request, say or _silent)
    return Calibration(
        id=uuid.uuid4().hex[:_ID_DIGITS],
        machine_id=own_machine_id(),
        fingerprint=fingerprint(device, measured.name),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device=device,
        device_name=measured.name,
        compute=measured.compute,
        bandwidth=measured.bandwidth,
        clock=measured.clock,
        nominal_clock_hz=measured.nominal_clock_hz,
        costs=measured.costs,
        last_level_bytes=measured.last_level_bytes,
        torch=torch_version(),
        took_s=time.perf_counter() - started,
        notes=measured.notes,
    )


def _measure(request: Request, say: Say) -> Measured:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "Calibrating needs torch, and this interpreter has none.",
            "Install it into the environment that runs torchstone: pip install torch.",
        )
    say("importing torch")
    if request.device == CPU:
        from torchstone.machine.calibrate.kernels import measure_cpu

        return measure_cpu(request, say)
    from torchstone.machine.calibrate.accelerator import measure_accelerator

    return measure_accelerator(request, say)


def _silent(_: str) -> None:
    pass
