"""The machine itself: processor, caches, memory. Linux says most; elsewhere what there is."""

from __future__ import annotations

import math
import os
import platform
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from statistics import median

from torchstone.machine import processes
from torchstone.machine.processes import allowed_cores, read_field, read_text, read_word
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

NATIVE = {
    "bf16": ("bfloat16", ("avx512_bf16", "amx_bf16", "bf16")),
    "fp16": ("float16", ("avx512_fp16", "amx_fp16", "asimdhp")),
}
"""By precision: its type, and the flags of which one must be there to compute in it. Without, torch
converts to float32 and back around every op, or falls back to loops."""

CPUS = "/sys/devices/system/cpu"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SUFFIX = {"Data": "d", "Instruction": "i", "Unified": ""}
_MOST_CACHES = 10


def describe_cpu() -> dict[str, str]:
    """Model, vendor, family, flags that matter, cores, and what shares or governs them."""
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    quota = processes.cpu_quota()
    described = {
        "model": _model(info),
        "vendor": info.get("vendor_id") or info.get("CPU implementer", ""),
        "family": " ".join(
            info[key] for key in ("cpu family", "model", "stepping") if info.get(key)
        ),
        "architecture": platform.machine(),
        "flags": " ".join(sorted(flags & FLAGS_OF_INTEREST)),
        "logical_cores": str(os.cpu_count() or 0),
        "affinity": str(len(allowed_cores())),
        "physical_cores": str(physical_cores() or _sysctl("hw.physicalcpu")),
        "quota": "" if quota is None else f"{quota:g}",
        "governor": read_word(f"{CPUS}/cpu0/cpufreq/scaling_governor"),
        "hypervisor": _hypervisor(flags),
    }
    return {key: value for key, value in described.items() if value}


def missing_instructions(precision: str, flags: str) -> str:
    """What a CPU with these flags lacks to compute in a precision: `bfloat16 (none of
    avx512_bf16, amx_bf16, bf16)`; empty where it has it, or nobody knows."""
    short = "bf16" if precision == "amp" else precision.removeprefix("amp-")
    if short not in NATIVE or not flags:
        return ""
    name, wanted = NATIVE[short]
    known = {*flags.split()}
    return "" if known & {*wanted} else f"{name} (none of {', '.join(wanted)})"


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


def _hypervisor(flags: set[str]) -> str:
    named = read_word("/sys/hypervisor/type")
    if "hypervisor" not in flags:
        return named
    return named or read_word("/sys/class/dmi/id/sys_vendor") or "yes"


def cache_sizes() -> dict[str, int]:
    """Bytes of each cache that the first core sees, such as `{"L1d": 32768}`.

    From sysfs, because the C library's own figure for the last level is false in some guests.
    """
    found = {f"L{level}{_SUFFIX.get(kind, '')}": size for level, kind, size, _ in caches_of(0)}
    if found:
        return found
    names = {"L1d": "hw.l1dcachesize", "L1i": "hw.l1icachesize", "L2": "hw.l2cachesize"}
    said = {level: _sysctl(name) for level, name in names.items()}
    return {level: int(text) for level, text in said.items() if text.isdigit()}


def caches_of(core: int, root: str = CPUS) -> Iterator[tuple[int, str, int, str]]:
    """Level, kind (`Data`), bytes and sharing cores of each cache that a core sees."""
    for index in range(_MOST_CACHES):
        folder = os.path.join(root, f"cpu{core}", "cache", f"index{index}")
        size = re.match(r"(\d+)([KMG]?)", read_word(f"{folder}/size"))
        level = read_word(f"{folder}/level")
        if size and level.isdigit():
            shared = read_word(f"{folder}/shared_cpu_list") or str(core)
            amount = int(size[1]) * _UNITS[size[2]]
            yield int(level), read_word(f"{folder}/type"), amount, shared


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
    return processes.physical_memory() if kib is None else kib * 1024


# Which of the system's cores are physical ones: two hyper-threads share one.


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

    None where the system does not say. A quota is no core: `processes.usable_cores` knows it.
    """
    allowed = allowed_cores() if allowed is None else allowed
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
    return _best(max, rates, template)


def best_cost(seconds: Iterable[float], template: Peak) -> Peak | None:
    """The template with the lowest of the costs; None if none of them is a cost at all."""
    return _best(min, seconds, template)


def _best(
    choose: Callable[[list[float]], float], values: Iterable[float], template: Peak
) -> Peak | None:
    sound = [value for value in values if math.isfinite(value) and value > 0]
    if not sound:
        return None
    best = choose(sound)
    spread = abs(median(sound) - best) / best
    return replace(template, value=best, spread=spread, samples=len(sound))
