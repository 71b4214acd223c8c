"""The peaks of an accelerator, written against `torch.accelerator`.

Products and copies as on the processor; time by the device's own events where it has them and they
agree with the clock on the wall. What is not known is absent: no table of devices stands behind it.
Tested with a stand-in; it has not run on hardware yet.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter_ns as _now
from typing import Any

import torch

from torchstone.machine.calibrate.kernels import (
    DRAM_TIMES,
    MEMORY_SHARE,
    Cache,
    Gemm,
    full_precision,
    label,
    product,
)
from torchstone.machine.calibrate.request import (
    NOBODY,
    Job,
    Repeated,
    Request,
    Say,
    Timer,
    run_jobs,
    why,
)
from torchstone.machine.clock import hz_from
from torchstone.records import DRAM, Calibration, Peak, UsageError

# The clocks of an NVIDIA device, asked of the driver's own library.
#
# Written from the library's published interface; it has not run on hardware yet.


LIBRARY = "libnvidia-ml.so.1"
CLOCK_SM = 1
"""NVML_CLOCK_SM: the clock of the multiprocessors. The library answers in MHz."""
SUCCESS = 0


class NvmlUnknown(Exception):
    """The library is not there or does not say; the message is the reason."""


@dataclass(frozen=True)
class SmClocks:
    """Of the multiprocessors: at this moment, and the highest that the device allows."""

    current_hz: float
    highest_hz: float


def sm_clocks(uuid: str, library: Any = None) -> SmClocks:
    """The clocks of the device with this UUID (`GPU-…`), which no renumbering touches."""
    if not uuid:
        raise NvmlUnknown("torch does not tell the device's UUID")
    nvml = _load() if library is None else library
    _ask_nvml(nvml, "nvmlInit_v2")
    try:
        handle = ctypes.c_void_p()
        _ask_nvml(nvml, "nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return SmClocks(
            _clock_nvml(nvml, "nvmlDeviceGetClockInfo", handle),
            _clock_nvml(nvml, "nvmlDeviceGetMaxClockInfo", handle),
        )
    finally:
        with contextlib.suppress(NvmlUnknown):
            _ask_nvml(nvml, "nvmlShutdown")


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        raise NvmlUnknown(f"{LIBRARY} is not on this machine") from None


def _clock_nvml(nvml: Any, name: str, handle: ctypes.c_void_p) -> float:
    mhz = ctypes.c_uint()
    _ask_nvml(nvml, name, handle, CLOCK_SM, ctypes.byref(mhz))
    try:
        return hz_from(mhz.value, "MHz")
    except ValueError as error:
        raise NvmlUnknown(f"{name}: {error}") from None


def _ask_nvml(nvml: Any, name: str, *arguments: Any) -> None:
    function = getattr(nvml, name, None)
    if function is None:
        raise NvmlUnknown(f"the library has no {name}")
    code = function(*arguments)
    if code != SUCCESS:
        raise NvmlUnknown(f"{name} failed with code {code}")


COPY = "copy, target.copy_(source): two words an element"
LEAST_COPY = 256 << 20
"""Bytes of each array, so that a copy takes long against its launch."""
EVENTS_OVER = 1.05
"""Time by events beyond that on the wall, waiting included, cannot be: a unit is wrong."""
_CHECK_SIDE = 1024
_HALVES = 2


@dataclass(frozen=True)
class Tools:
    """What measuring needs of a device, so that a stand-in can take its place."""

    name: str
    place: str
    """Where tensors are made, as torch names it."""
    synchronize: Callable[[], None]
    make_event: Callable[[], Any] | None = None
    cache_bytes: int = 0
    free_bytes: int = 0
    clocks: Callable[[], SmClocks] | None = None
    has_tf32: bool = False


def measure_accelerator(request: Request, say: Say) -> Calibration:
    """Find the device and measure it; `UsageError` where it is not there."""
    return measure_with(find_tools(request.device, torch), request, say)


def find_tools(device: str, library: Any) -> Tools:
    """The tools for a device of this torch. Anything that it does not tell is left unknown."""
    kind, _, number = device.partition(":")
    accelerator: Any = getattr(library, "accelerator", None)
    there = accelerator is not None and accelerator.is_available()
    current = accelerator.current_accelerator() if there else None
    if current is None or current.type != kind:
        has = f"has {current.type}" if current is not None else "finds no accelerator"
        raise UsageError(
            f"There is no device {device} here: this torch {has}.",
            "Name a device that torch can use, or calibrate the processor: --device cpu.",
        )
    index = int(number or 0)
    if index >= accelerator.device_count():
        raise UsageError(
            f"There is no device {device} here: torch counts {accelerator.device_count()}.",
            f"Name one from {kind}:0 up.",
        )
    accelerator.set_device_index(index)
    module: Any = getattr(library, kind, None)
    properties = _ask_accelerator(lambda: module.get_device_properties(index))
    uuid = getattr(properties, "uuid", "")
    memory = _ask_accelerator(lambda: module.mem_get_info(index))
    return Tools(
        name=str(_ask_accelerator(lambda: module.get_device_name(index)) or kind),
        place=f"{kind}:{index}",
        synchronize=accelerator.synchronize,
        make_event=lambda: library.Event(f"{kind}:{index}", enable_timing=True),
        cache_bytes=int(getattr(properties, "L2_cache_size", 0) or 0),
        free_bytes=int(memory[0]) if memory else 0,
        clocks=(lambda: sm_clocks(f"GPU-{uuid}" if uuid else "")) if kind == "cuda" else None,
        has_tf32=bool(getattr(getattr(library, "version", None), "cuda", None)),
    )


def _ask_accelerator(question: Callable[[], Any]) -> Any:
    """The answer, or None: kinds of device differ in what they tell."""
    try:
        return question()
    except (AttributeError, RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


def measure_with(tools: Tools, request: Request, say: Say) -> Calibration:
    """All peaks that the request asks for and the device has."""
    with full_precision():
        timer, notes = choose_timer(tools)
        jobs: list[Job] = [
            (TensorFloat if dtype == "tf32" else Gemm)(dtype, 0, tools.place, timer)
            for dtype in request.dtypes
            if request.wants(dtype, 0) and (dtype != "tf32" or tools.has_tf32)
        ]
        if request.wants(DRAM, 0):
            copy, absent = copy_job(tools, timer)
            jobs += copy
            notes += absent
        found, failed = run_jobs(jobs, request.seconds, lambda _: None, say)
        clock, highest, unknown = _clock_accelerator(tools)
    return replace(
        NOBODY,
        device_name=tools.name,
        compute=tuple(peak for peak in found if peak.dtype),
        bandwidth=tuple(peak for peak in found if peak.level),
        clock=clock,
        nominal_clock_hz=highest,
        last_level_bytes=tools.cache_bytes,
        notes=(*notes, *failed, *unknown),
    )


class TensorFloat(Gemm):
    """Products of fp32 in which the device may round the factors to TF32."""

    def sample_for(self, seconds: float) -> None:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            super().sample_for(seconds)
        finally:
            torch.set_float32_matmul_precision(before)


def choose_timer(tools: Tools) -> tuple[Timer, list[str]]:
    """Events if they work and never say more than the clock on the wall; else that clock."""
    wall = wall_timer_of(tools.synchronize)
    if tools.make_event is None:
        return wall, ["time by the clock on the wall: this device has no events"]
    events = event_timer_of(tools.make_event, tools.synchronize)
    call = product("fp32", _CHECK_SIDE, tools.place)
    try:
        events(call)
        start = _now()
        by_events = events(call)
        by_wall = (_now() - start) / 1e9
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
        return wall, [f"time by the clock on the wall: events do not work; {why(error)}"]
    if not 0 < by_events <= EVENTS_OVER * by_wall:
        return wall, [
            f"time by the clock on the wall: events said {by_events:.3g} s of {by_wall:.3g} s"
        ]
    return events, []


def wall_timer_of(synchronize: Callable[[], None]) -> Timer:
    """Waits before and after, so that a call's own work is timed and all of it."""

    def timed(call: Callable[[], object]) -> float:
        synchronize()
        start = _now()
        call()
        synchronize()
        return (_now() - start) / 1e9

    return timed


def event_timer_of(make_event: Callable[[], Any], synchronize: Callable[[], None]) -> Timer:
    """Time between two events in the device's own queue."""

    def timed(call: Callable[[], object]) -> float:
        start, end = make_event(), make_event()
        start.record()
        call()
        end.record()
        synchronize()
        return seconds_from_ms(start.elapsed_time(end))

    return timed


def seconds_from_ms(milliseconds: float) -> float:
    """Events answer in milliseconds."""
    return milliseconds / 1e3


def copy_job(tools: Tools, timer: Timer) -> tuple[list[Job], list[str]]:
    """Copying between two arrays that lie in the device's memory for certain, or why not."""
    if tools.cache_bytes <= 0:
        why = "the device's cache is not known, so no array is certain to lie outside"
        return [], [f"{DRAM}: absent; {why}"]
    size = max(LEAST_COPY, DRAM_TIMES * tools.cache_bytes)
    if tools.free_bytes and _HALVES * size > MEMORY_SHARE * tools.free_bytes:
        mib = size >> 20
        return [], [f"{DRAM}: absent; two arrays of {mib} MiB need more than half of its memory"]
    arrays: list[torch.Tensor] = []

    def sample() -> float:
        if not arrays:
            arrays.extend(torch.ones(size, dtype=torch.uint8, device=tools.place) for _ in "ab")
        seconds = timer(lambda: arrays[0].copy_(arrays[1]))
        return _HALVES * size / seconds if seconds > 0 else 0.0

    level = label([size, size], [Cache(2, tools.cache_bytes)])
    template = Peak(0.0, level=level, array_bytes=size, note=COPY)
    return [Repeated(f"{level} copy", sample, template, weight=2.0)], []


def _clock_accelerator(tools: Tools) -> tuple[Peak | None, float | None, list[str]]:
    """The clock just after the work, and the highest there is."""
    if tools.clocks is None:
        return None, None, ["clock: unknown; this kind of device does not tell"]
    try:
        clocks = tools.clocks()
    except NvmlUnknown as error:
        return None, None, [f"clock: unknown; {error}"]
    note = "multiprocessors, read from NVML just after the products"
    return Peak(clocks.current_hz, samples=1, note=note), clocks.highest_hz, []
