"""What a calibration holds for, and how long."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import re
from datetime import datetime, timedelta, timezone

from torchstone.machine import cgroup, hardware
from torchstone.machine.environment import machine_id
from torchstone.machine.files import read_int, read_text
from torchstone.records import CALIBRATION_SCHEMA, Calibration

STALE_AFTER_DAYS = 30
"""Our choice. What the fingerprint cannot see (firmware, microcode, a driver, a guest moved to
another host) changes within months, and measuring anew takes seconds."""
_AHEAD = timedelta(days=1)
"""A calibration from further in the future than this was made under a wrong date."""
_DIGITS = 16
_CORES = "/sys/devices/system/cpu"


def allowed_cores() -> tuple[int, ...]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def threads_allowed() -> int:
    """How many threads can truly run at once: the cores allowed, or the quota if that is less."""
    quota = cgroup.cpu_quota()
    cores = len(allowed_cores())
    return max(1, cores if quota is None else min(cores, math.floor(quota)))


def fingerprint(device: str = "cpu", device_name: str = "") -> str:
    """A hash of what the roofs hold for. Equal for equal machines, and names nobody.

    For an accelerator give the name that torch has for it (`Calibration.device_name`); the
    processor's own is known.
    """
    cpu = hardware.describe_cpu()
    kind = device.split(":")[0]
    parts = [
        CALIBRATION_SCHEMA,
        cpu.get("model", ""),
        cpu.get("family", ""),
        cpu.get("architecture", ""),
        cpu.get("flags", ""),
        threads_allowed(),
        _core_kinds(),
        sorted(hardware.cache_sizes().items()),
        kind,
        "" if kind == "cpu" else device_name,
        torch_version(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def is_stale(calibration: Calibration, now: datetime, fingerprint: str) -> bool:
    """Whether the calibration is of something else, of another schema, or too old."""
    if calibration.fingerprint != fingerprint or calibration.schema != CALIBRATION_SCHEMA:
        return True
    try:
        age = _in_utc(now) - _in_utc(datetime.fromisoformat(calibration.created))
    except ValueError:
        return True
    return not -_AHEAD <= age <= timedelta(days=STALE_AFTER_DAYS)


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment


def own_machine_id() -> str:
    """The machine's id, as in the environment of a measurement."""
    return machine_id(hardware.describe_cpu(), hardware.cache_sizes(), hardware.memory_bytes())


def torch_version() -> str:
    """The version of the torch that would be imported, without importing it; empty without one."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.origin:
        return ""
    text = read_text(os.path.join(os.path.dirname(spec.origin), "version.py")) or ""
    found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.M)
    return found[1] if found else ""


def _core_kinds() -> list[int]:
    """The top speed of each allowed core, by which large and small ones differ; 0 where unknown."""
    names = ("cpufreq/cpuinfo_max_freq", "cpu_capacity")
    return sorted(
        next((n for name in names if (n := read_int(f"{_CORES}/cpu{core}/{name}"))), 0)
        for core in allowed_cores()
    )
