"""What runs on the machine: system, interpreter, torch and other packages of this process."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from torchstone.machine.files import read_text

PACKAGES = ("torch", "numpy", "numba", "transformers", "timm", "torchvision", "triton", "scipy")
"""Packages whose version decides speed; the import name is the same for all of them."""

_TORCH_FACTS = {
    "version": "__version__",
    "git": "version.git_version",
    "debug": "version.debug",
    "cuda": "version.cuda",
    "hip": "version.hip",
    "cpu_capability": "backends.cpu.get_cpu_capability",
    "openmp": "backends.openmp.is_available",
    "mkl": "backends.mkl.is_available",
    "mkldnn": "backends.mkldnn.is_available",
    "deterministic": "are_deterministic_algorithms_enabled",
    "cudnn_deterministic": "backends.cudnn.deterministic",
    "cudnn_benchmark": "backends.cudnn.benchmark",
    "float32_matmul_precision": "get_float32_matmul_precision",
}
_BUILD_KEYS = ("BLAS_INFO", "BUILD_TYPE", "LAPACK_INFO", "USE_CUDA", "USE_MKLDNN", "USE_OPENMP")
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
_MAX_FLAGS = 300


def describe_os() -> dict[str, str]:
    """System, kernel, C library, allocator that is truly loaded, container."""
    libc, libc_version = platform.libc_ver()
    described = {
        "system": platform.system(),
        "kernel": platform.release(),
        "libc": f"{libc} {libc_version}".strip(),
        "malloc": loaded_allocator(),
        "container": _container(),
        "huge_pages": _chosen(read_text("/sys/kernel/mm/transparent_hugepage/enabled")),
        "clock": (
            read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource") or ""
        ).strip(),
    }
    return {key: value for key, value in described.items() if value}


def _chosen(text: str | None) -> str:
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else ""


def loaded_allocator() -> str:
    """The allocator library mapped into this process, `system` if none, empty if unknown."""
    maps = read_text("/proc/self/maps")
    if maps is None:
        return ""
    libraries = {line.rpartition("/")[2] for line in maps.splitlines() if ".so" in line}
    for name in _ALLOCATORS:
        if any(library.startswith(f"lib{name}") for library in libraries):
            return name
    return "system"


def _container() -> str:
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    found = re.search(r"docker|kubepods|lxc|containerd", read_text("/proc/1/cgroup") or "")
    return found[0] if found else ""


def describe_python() -> dict[str, str]:
    """Version, build and switches of this interpreter; of its path only the last part."""
    gil = getattr(sys, "_is_gil_enabled", None)
    build, built_on = platform.python_build()
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": f"{build} {built_on}".strip(),
        "compiler": platform.python_compiler(),
        "gil": "on" if gil is None or gil() else "off",
        "hash_randomization": "on" if sys.flags.hash_randomization else "off",
        "optimize": str(sys.flags.optimize),
        "dev_mode": "on" if sys.flags.dev_mode else "off",
        "executable": os.path.basename(sys.executable or ""),
    }


def describe_torch() -> dict[str, str]:
    """Version, build and determinism of torch, if this process has imported it; else nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "__version__"):
        return {}
    described = {name: _ask(torch, place) for name, place in _TORCH_FACTS.items()}
    described.update(_build_settings(_ask(torch, "__config__.show")))
    return {key: value for key, value in described.items() if value}


def _ask(module: object, place: str) -> str:
    """What stands at a dotted place, called if it can be; empty if this version has no such."""
    value: Any = module
    try:
        for part in place.split("."):
            value = getattr(value, part)
        value = value() if callable(value) else value
    except Exception:  # a broken or partly imported torch must not cost the record
        return ""
    return "" if value is None else str(value)


def _build_settings(config: str) -> dict[str, str]:
    """The telling parts of torch's own build summary, without warnings flags and paths."""
    found = {}
    for key in _BUILD_KEYS:
        match = re.search(rf"\b{key}=([^,\n]*)", config)
        if match:
            found[key.lower()] = match[1].strip()
    compiler = re.search(r"- ((?:GCC|clang|Clang|MSVC)[^\n]*)", config)
    if compiler:
        found["compiler"] = compiler[1].strip()
    openmp = re.search(r"- (OpenMP [^\n]*)", config)
    if openmp:
        found["openmp_version"] = openmp[1].strip()
    flags = re.search(r"\bCXX_FLAGS=([^,\n]*)", config)
    if flags:
        kept = [f for f in flags[1].split() if re.match(r"-(?:O|m|f|g|std|DNDEBUG)", f)]
        found["cxx_flags"] = " ".join(f for f in kept if "/" not in f)[:_MAX_FLAGS]
    return found


def package_versions() -> dict[str, str]:
    """Every package installed for this interpreter, so that the environment can be rebuilt.

    A module that is loaded is asked first: it is the one that runs.
    """
    found = dict(_installed())
    for name in PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    return dict(sorted(found.items()))


def _installed() -> Iterator[tuple[str, str]]:
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # metadata can be missing or damaged in many ways
            continue
        if name and version and name != "torchstone":  # ours in the payload is not installed
            yield name.lower().replace("_", "-"), version
