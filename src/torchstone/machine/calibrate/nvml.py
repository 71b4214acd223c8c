"""The clocks of an NVIDIA device, asked of the driver's own library.

Written from the library's published interface; it has not run on hardware yet.
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any

from torchstone.machine.clock import hz_from_mhz

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
    _ask(nvml, "nvmlInit_v2")
    try:
        handle = ctypes.c_void_p()
        _ask(nvml, "nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return SmClocks(
            _clock(nvml, "nvmlDeviceGetClockInfo", handle),
            _clock(nvml, "nvmlDeviceGetMaxClockInfo", handle),
        )
    finally:
        with contextlib.suppress(NvmlUnknown):
            _ask(nvml, "nvmlShutdown")


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        raise NvmlUnknown(f"{LIBRARY} is not on this machine") from None


def _clock(nvml: Any, name: str, handle: ctypes.c_void_p) -> float:
    mhz = ctypes.c_uint()
    _ask(nvml, name, handle, CLOCK_SM, ctypes.byref(mhz))
    try:
        return hz_from_mhz(mhz.value)
    except ValueError as error:
        raise NvmlUnknown(f"{name}: {error}") from None


def _ask(nvml: Any, name: str, *arguments: Any) -> None:
    function = getattr(nvml, name, None)
    if function is None:
        raise NvmlUnknown(f"the library has no {name}")
    code = function(*arguments)
    if code != SUCCESS:
        raise NvmlUnknown(f"{name} failed with code {code}")
