"""The machine itself: processor, caches, memory. Linux says most; elsewhere what there is."""

from __future__ import annotations

import os
import platform
import re
import subprocess

from torchstone.machine import cgroup, cores
from torchstone.machine.files import read_field, read_text

FLAGS_OF_INTEREST = frozenset(
    (
        *("avx", "avx2", "fma", "f16c", "avx_vnni"),
        *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
        *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
        *("asimd", "asimdhp", "asimddp", "sve", "sve2", "sme", "bf16", "i8mm"),
    )
)
"""Instruction sets that decide which kernel a library picks."""

_CPU0 = "/sys/devices/system/cpu/cpu0"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SUFFIX = {"Data": "d", "Instruction": "i", "Unified": ""}


def describe_cpu() -> dict[str, str]:
    """Model, vendor, family, flags that matter, cores, and what shares or governs them."""
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    described = {
        "model": _model(info),
        "vendor": info.get("vendor_id") or info.get("CPU implementer", ""),
        "family": " ".join(
            info[key] for key in ("cpu family", "model", "stepping") if info.get(key)
        ),
        "architecture": platform.machine(),
        "flags": " ".join(sorted(flags & FLAGS_OF_INTEREST)),
        "logical_cores": str(os.cpu_count() or 0),
        "affinity": str(_affinity()),
        "physical_cores": _physical_cores(),
        "quota": _optional(cgroup.cpu_quota()),
        "governor": (read_text(f"{_CPU0}/cpufreq/scaling_governor") or "").strip(),
        "hypervisor": _hypervisor(flags),
    }
    return {key: value for key, value in described.items() if value}


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries; later ones repeat them."""
    info: dict[str, str] = {}
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            info.setdefault(key.strip(), value.strip())
    return info


def _model(info: dict[str, str]) -> str:
    part = info.get("CPU part", "")
    arm = f"implementer {info.get('CPU implementer', '?')} part {part}" if part else ""
    name = info.get("model name") or info.get("Model") or arm
    return name or _sysctl("machdep.cpu.brand_string") or platform.processor() or "unknown"


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _physical_cores() -> str:
    """Among those that this process is bound to; empty where nobody says."""
    return str(cores.physical_cores() or _sysctl("hw.physicalcpu"))


def _hypervisor(flags: set[str]) -> str:
    named = (read_text("/sys/hypervisor/type") or "").strip()
    vendor = (read_text("/sys/class/dmi/id/sys_vendor") or "").strip()
    if "hypervisor" not in flags:
        return named
    return named or vendor or "yes"


def cache_sizes() -> dict[str, int]:
    """Bytes of each cache that the first core sees, such as `{"L1d": 32768}`.

    From sysfs, because the C library's own figure for the last level is false in some guests.
    """
    sizes: dict[str, int] = {}
    for index in range(10):
        folder = f"{_CPU0}/cache/index{index}"
        size = re.match(r"(\d+)([KMG]?)", read_text(f"{folder}/size") or "")
        level = (read_text(f"{folder}/level") or "").strip()
        kind = _SUFFIX.get((read_text(f"{folder}/type") or "").strip(), "")
        if size and level:
            sizes[f"L{level}{kind}"] = int(size[1]) * _UNITS[size[2]]
    return sizes or _sysctl_caches()


def _sysctl_caches() -> dict[str, int]:
    names = {"L1d": "hw.l1dcachesize", "L1i": "hw.l1icachesize", "L2": "hw.l2cachesize"}
    found = {level: _sysctl(name) for level, name in names.items()}
    return {level: int(text) for level, text in found.items() if text.isdigit()}


def _sysctl(name: str) -> str:
    if platform.system() != "Darwin":
        return ""
    try:
        done = subprocess.run(
            ["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def memory_bytes() -> int:
    """All the memory of the machine; 0 where the system does not say."""
    kib = read_field("/proc/meminfo", "MemTotal")
    if kib is not None:
        return kib * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0
