"""The machine itself: processor, caches, memory. Linux says most; elsewhere what there is."""

from __future__ import annotations

import math
import os
import platform
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from statistics import median

from torchstone.machine import processes
from torchstone.machine.processes import read_field, read_text
from torchstone.records import Peak

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
        "quota": _optional(processes.cpu_quota()),
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
    return str(physical_cores() or _sysctl("hw.physicalcpu"))


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


# Which of the system's cores are physical ones: two hyper-threads share one.


CPUS = "/sys/devices/system/cpu"
SIBLINGS = "topology/thread_siblings_list"
"""Under each core's folder: the cores that share its physical one, itself among them."""


def read_cores(text: str) -> frozenset[int]:
    """The numbers in `0,2-5`; what cannot be read is left out."""
    found: set[int] = set()
    for part in text.strip().split(","):
        low, dash, high = part.partition("-")
        if low.isdigit() and (not dash or high.isdigit()):
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def one_each(siblings: Mapping[int, Set[int]]) -> frozenset[int]:
    """Of these cores with their siblings: one of each physical core."""
    return frozenset(min(others & siblings.keys()) for others in siblings.values())


def physical_cores(allowed: Iterable[int] | None = None, folder: str = CPUS) -> int | None:
    """How many physical cores there are among those that this process is bound to (or these).

    None where the system does not say. A quota is no core: `cgroup.usable_cores` knows it.
    """
    if allowed is None:
        if not hasattr(os, "sched_getaffinity"):
            return None
        allowed = os.sched_getaffinity(0)
    said = {core: read_text(f"{folder}/cpu{core}/{SIBLINGS}") or "" for core in allowed}
    found = {core: read_cores(text) | {core} for core, text in said.items()}
    return len(one_each(found)) if any(said.values()) else None


# Instructions that the processor announces and does not carry out.


ILLEGAL = signal.SIGILL
LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_FP16"
"""All that oneDNN uses but the tiles of AMX."""
ILLEGAL_REMEDY = (
    "A library used an instruction that the processor, or the virtual machine around it, announces "
    "and does not carry out. It is often AMX, in products of bf16, fp16 or int8: "
    f"set {LIMIT}={WITHOUT_AMX} for this command, and for your own programs here."
)
"""Seen on a virtual machine whose processor names the flag `amx_tile`, while CPUID's leaf 0x1D,
which says how large the tiles are, is empty: torch's first bf16 product there ends the program."""


# The best of many samples, and how far the usual one lies from it.
#
# On a shared machine noise only ever takes speed away, so the best of many short samples is what
# the machine can do, and the median is what its neighbours left of it.


def best_rate(rates: Iterable[float], template: Peak) -> Peak | None:
    """The template with the highest of the rates; None if none of them is a rate at all."""
    sound = _sound(rates)
    if not sound:
        return None
    best = max(sound)
    spread = (best - median(sound)) / best
    return replace(template, value=best, spread=spread, samples=len(sound))


def best_cost(seconds: Iterable[float], template: Peak) -> Peak | None:
    """The template with the lowest of the costs; None if none of them is a cost at all."""
    sound = _sound(seconds)
    if not sound:
        return None
    best = min(sound)
    spread = (median(sound) - best) / best
    return replace(template, value=best, spread=spread, samples=len(sound))


def _sound(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]
