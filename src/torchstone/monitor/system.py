"""The process and the machine, looked at twice a second from the monitor's thread; and what
`torch.compile` did."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter_ns as _now
from typing import Any

from torchstone.machine.memory import resident_and_peak
from torchstone.machine.noise import make_probe, some_pressure_ns
from torchstone.monitor.clock import Span
from torchstone.records.monitoring import MonitorLevel, Process

LATEST = 3
"""Looks that the probe and the wait for the GIL are taken from."""
GIL_NAP_S = 0.0002
MOST_BYTES = 8192
"""Of a file of counters: /proc/self/status has 1,500."""
MOST_SEEN = 1000
REASON_LENGTH = 200
FEW_RECOMPILES = 5
"""So many are said one by one."""


class Counters:
    """A file of the kernel's counters, kept open.

    Each call into the system lets go of the interpreter, which the training has to give back
    again: 30 of them a look made up half of what a monitor cost it. This is one.
    """

    def __init__(self, path: str) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError:  # another system, or a kernel without it
            self._file = -1

    def read(self) -> str:
        """What it says now; nothing where it cannot be read."""
        try:
            return os.pread(self._file, MOST_BYTES, 0).decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Nothing more is read."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


class ProcessWatch:
    """Counters since the last look."""

    def __init__(self, device: Any = None) -> None:
        self._probe = make_probe()
        self._status = Counters("/proc/self/status")
        self._cpu = Counters("/proc/pressure/cpu")
        self._pressure = some_pressure_ns(self._cpu.read())
        self._device = device
        self._thread: tuple[int, int] | None = None
        self._probes: deque[int] = deque(maxlen=LATEST)
        self._naps: deque[int] = deque(maxlen=LATEST)

    def look(self, thread: tuple[int, int] | None = None) -> Process:
        """What happened since; `thread` are the counters of the watched one (CPU, waiting)."""
        pressure, grown = some_pressure_ns(self._cpu.read()), None
        if pressure is not None and self._pressure is not None:
            grown = max(0, pressure - self._pressure)
        cpu = delay = None
        if thread is not None and self._thread is not None:
            cpu, delay = thread[0] - self._thread[0], thread[1] - self._thread[1]
        self._pressure = pressure
        self._thread = thread or self._thread
        device, device_peak = self._device_memory()
        resident, peak = resident_and_peak(self._status.read())
        self._probes.append(self._probe())
        self._naps.append(_gil_delay())
        return Process(
            rss_bytes=resident,
            peak_bytes=peak,
            device_bytes=device,
            device_peak_bytes=device_peak,
            cpu_ns=cpu,
            delay_ns=delay,
            pressure_ns=grown,
            gil_delay_ns=round(median(self._naps)),
            probe_ns=min(self._probes),
        )

    def close(self) -> None:
        """Nothing more is looked at."""
        self._status.close()
        self._cpu.close()

    def _device_memory(self) -> tuple[int | None, int | None]:
        """Of the allocator's own counters, which cost no synchronisation."""
        if self._device is None:
            return None, None
        try:
            return int(self._device.memory_allocated()), int(self._device.max_memory_allocated())
        except Exception:  # not every accelerator counts
            return None, None


def _gil_delay() -> int:
    """How long this thread waits for the interpreter after a nap."""
    began = _now()
    time.sleep(GIL_NAP_S)
    return max(0, _now() - began - round(GIL_NAP_S * 1e9))


class CompileWatch:
    """Compilations, from the metrics that torch keeps of the last 64."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._seen: dict[tuple[Any, ...], None] = {}
        self._offset = time.time_ns() - _now()
        self.recompiles = 0
        self._limit_said: set[str] = set()
        self._names: dict[str, str] = {}
        """Of functions, by the number that torch gave them."""
        for one in self._metrics():  # what was compiled before the monitor
            self._seen[_key(one)] = None

    @staticmethod
    def _metrics() -> Iterable[Any]:
        module = sys.modules.get("torch._dynamo.utils")
        if module is None:
            return ()
        try:
            return list(module.get_compilation_metrics())
        except Exception:  # underscored in torch, so it may go
            return ()

    def look(self, step_at: Callable[[int], int]) -> list[Span]:
        """Compilations since the last look, as spans; `step_at` finds the step of a moment."""
        spans = []
        for one in self._metrics():
            key = _key(one)
            if key in self._seen:
                continue
            self._seen[key] = None
            if len(self._seen) > MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            begin, end = (_moment(one, name, self._offset) for name in ("start", "end"))
            if begin is None or end is None:
                continue
            reason = str(getattr(one, "recompile_reason", None) or "")
            spans.append(Span("compile", begin, end, reason))
            if reason:
                self._recompiled(one, step_at(end), reason, (end - begin) / 1e9)
        return spans

    def _recompiled(self, one: Any, step: int, reason: str, seconds: float) -> None:
        self.recompiles += 1
        frame = str(getattr(one, "compile_id", "")).partition("/")[0]
        name = str(getattr(one, "co_name", "") or self._names.get(frame, "a function"))
        self._names[frame] = name
        short = " ".join(reason.split())[:REASON_LENGTH]
        if "Limit" in str(getattr(one, "fail_type", "")) or _is_limit(one):
            if name not in self._limit_said:
                self._limit_said.add(name)
                self._say(
                    step,
                    "recompile-limit",
                    f"{name} passed the recompile limit at step {step:,}: "
                    "it runs eager from now on wherever no compiled version fits.",
                    MonitorLevel.WARN,
                    cause="compile",
                    remedy=f"Last reason: {short}",
                )
            return
        if self.recompiles <= FEW_RECOMPILES:
            self._say(
                step,
                "recompile",
                f"{name} was compiled again at step {step:,}, in {seconds:.2g} s: {short}",
                cause="compile",
                figures={"seconds": seconds},
            )


def _is_limit(one: Any) -> bool:
    return "recompile_limit" in str(getattr(one, "fail_reason", "") or "")


def _key(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, name, None) for name in ("compile_id", "start_time_us", "is_forward"))


def _moment(one: Any, which: str, offset: int) -> int | None:
    found = getattr(one, f"{which}_time_us", None)
    return None if found is None else int(found) * 1000 - offset
