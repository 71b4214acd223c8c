"""What runs on the machine: system, interpreter, torch and other packages of this process."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from typing import Any

from torchstone.machine import hardware
from torchstone.machine.processes import read_text, read_word
from torchstone.machine.redact import hidden_variables, redact_text, visible_variables
from torchstone.records import Environment, GitState

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
    chosen = re.search(r"\[(\w+)\]", read_word("/sys/kernel/mm/transparent_hugepage/enabled"))
    described = {
        "system": platform.system(),
        "kernel": platform.release(),
        "libc": f"{libc} {libc_version}".strip(),
        "malloc": loaded_allocator(),
        "container": _container(),
        "huge_pages": chosen[1] if chosen else "",
        "clock": read_word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
    return {key: value for key, value in described.items() if value}


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
    found = re.search(r"docker|kubepods|lxc|containerd", read_word("/proc/1/cgroup"))
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
    patterns = {key.lower(): rf"\b{key}=([^,\n]*)" for key in _BUILD_KEYS}
    patterns["compiler"] = r"- ((?:GCC|clang|Clang|MSVC)[^\n]*)"
    patterns["openmp_version"] = r"- (OpenMP [^\n]*)"
    patterns["cxx_flags"] = r"\bCXX_FLAGS=([^,\n]*)"
    matches = {key: re.search(pattern, config) for key, pattern in patterns.items()}
    found = {key: match[1].strip() for key, match in matches.items() if match}
    if "cxx_flags" in found:
        flags = found["cxx_flags"].split()
        kept = [f for f in flags if re.match(r"-(?:O|m|f|g|std|DNDEBUG)", f) and "/" not in f]
        found["cxx_flags"] = " ".join(kept)[:_MAX_FLAGS]
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


# The commit of a folder's git repository, and whether its files differ from it.


GIT_TIMEOUT_S = 10.0
_SOURCES = (".py", ".pyx", ".pyi", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".so", ".toml")


def git_state(folder: str) -> GitState | None:
    """Commit, branch and dirty flag; None without git, a repository or a commit.

    Dirty: a tracked file was changed, or source code is there that git does not know (other
    untracked files, such as logs, do not change what was measured).
    """
    text = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z")
    if text is None:
        return None
    headers, dirty = {}, False
    for entry in text.split("\0"):
        if entry.startswith("# "):
            key, _, value = entry[2:].partition(" ")
            headers[key] = value
        elif entry.startswith(("1 ", "2 ", "u ")):
            dirty = True
        elif entry.startswith("? "):
            dirty = dirty or entry.endswith(_SOURCES) or _holds(folder, entry[2:])
    commit = headers.get("branch.oid", "")
    if not commit or commit == "(initial)":
        return None
    branch = headers.get("branch.head", "")
    return GitState(commit, "" if branch == "(detached)" else branch, dirty)


_JOBS = ("CI_JOB_URL", "BUILD_URL", "BUILDKITE_BUILD_URL", "CIRCLE_BUILD_URL")
"""GitLab, Jenkins, Buildkite and CircleCI say where a job is; GitHub says its parts."""
_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|[^@/:]+@)([\w.-]+)(?::\d+)?[:/](.+)")
_PULL = re.compile(r"refs/pull/(\d+)/")


def run_links(folder: str, env: Mapping[str, str]) -> dict[str, str]:
    """Where people find the repository, the pull request and the CI job of what is measured in a
    folder; nothing that holds a password."""
    found = {"repository": web_address(_git(folder, "remote", "get-url", "origin") or "")}
    server, name = env.get("GITHUB_SERVER_URL", ""), env.get("GITHUB_REPOSITORY", "")
    if server and name:
        here = web_address(f"{server}/{name}")
        pull = _PULL.match(env.get("GITHUB_REF", ""))
        found["pull_request"] = f"{here}/pull/{pull[1]}" if pull and here else ""
        job = env.get("GITHUB_RUN_ID", "")
        found["job"] = f"{here}/actions/runs/{job}" if job.isdigit() and here else ""
    project, merge = env.get("CI_PROJECT_URL", ""), env.get("CI_MERGE_REQUEST_IID", "")
    if project and merge.isdigit():
        found["pull_request"] = f"{web_address(project)}/-/merge_requests/{merge}"
    for variable in _JOBS:
        found["job"] = found.get("job") or web_address(env.get(variable, ""))
    return {name: address for name, address in found.items() if address.startswith("https://")}


def web_address(remote: str) -> str:
    """`https://host/owner/name` of a remote's URL; empty for a path on this machine."""
    match = _REMOTE.fullmatch(remote.strip())
    if match is None or not all(part.isprintable() for part in match.groups()):
        return ""
    return f"https://{match[1]}/{match[2].rstrip('/').removesuffix('.git')}"


def _holds(folder: str, untracked: str) -> bool:
    """Whether the target's folder lies inside an untracked one, which git lists as a whole."""
    if not untracked.endswith("/"):
        return False
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return False
    outer = os.path.realpath(os.path.join(top.strip(), untracked))
    return (os.path.realpath(folder) + os.sep).startswith(outer + os.sep)


def _git(folder: str, *arguments: str) -> str | None:
    # GIT_DIR and the like would make git answer for another repository, as inside a hook.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env.update(GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0", GIT_ASKPASS="", LC_ALL="C")
    env.pop("LD_PRELOAD", None)  # the arm's allocator is not meant for git
    command = ["git", "-c", "core.fsmonitor=false", "-C", folder, *arguments]
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


# Where a measurement is made: one record of machine, system, interpreter and libraries.


MACHINE_ID_DIGITS = 12
NODE_VARIABLE = "TORCHSTONE_NODE"
"""What a cluster calls the node that a worker runs on."""
_GIB = 1 << 30
_SALT_BYTES = 16


def describe_environment(
    arm_env: Mapping[str, str],
    target_dir: str | None,
    threads: Mapping[str, int],
    allocator: str,
    salt: bytes | None = None,
) -> Environment:
    """The environment of this process, to be called inside the worker.

    `arm_env` are the variables set for this arm. Their hashes can be compared between arms that
    were given the same secret `salt`; without one they say only that the variable was set.
    """
    env = {**os.environ, **arm_env}
    cpu, caches, memory = hardware.describe_cpu(), hardware.cache_sizes(), hardware.memory_bytes()
    git = git_state(target_dir) if target_dir else None

    def clean(described: Mapping[str, str]) -> dict[str, str]:
        return {key: redact_text(value, env) for key, value in described.items()}

    return Environment(
        machine_id=machine_id(cpu, caches, memory),
        cpu=clean(cpu),
        caches=caches,
        memory_bytes=memory,
        os=clean(describe_os()),
        python=clean(describe_python()),
        torch=clean(describe_torch()),
        threads=dict(threads),
        allocator=allocator,
        variables=visible_variables(env),
        hidden_variables=hidden_variables(arm_env, salt or os.urandom(_SALT_BYTES)),
        packages=clean(package_versions()),
        git=git and replace(git, branch=redact_text(git.branch, env)),
        node=os.environ.get(NODE_VARIABLE, ""),
    )


def machine_id(cpu: Mapping[str, str], caches: Mapping[str, int], memory: int) -> str:
    """A short hash of what decides speed, equal for equal machines. Names nobody."""
    parts = [
        cpu.get("model", ""),
        cpu.get("logical_cores", ""),
        sorted(caches.items()),
        round(memory / _GIB),  # the kernel keeps a little more or less for itself at each boot
        cpu.get("architecture", ""),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:MACHINE_ID_DIGITS]
