"""Where a measurement is made: one record of machine, system, interpreter and libraries."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace

from torchstone.machine import hardware, software
from torchstone.machine.redact import hidden_variables, redact_text, visible_variables
from torchstone.machine.repository import git_state
from torchstone.records import Environment, GitState

MACHINE_ID_DIGITS = 12
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
    return Environment(
        machine_id=machine_id(cpu, caches, memory),
        cpu=_clean(cpu, env),
        caches=caches,
        memory_bytes=memory,
        os=_clean(software.describe_os(), env),
        python=_clean(software.describe_python(), env),
        torch=_clean(software.describe_torch(), env),
        threads=dict(threads),
        allocator=allocator,
        variables=visible_variables(env),
        hidden_variables=hidden_variables(arm_env, salt or os.urandom(_SALT_BYTES)),
        packages=_clean(software.package_versions(), env),
        git=_clean_git(git_state(target_dir) if target_dir else None, env),
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


def _clean(described: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    return {key: redact_text(value, env) for key, value in described.items()}


def _clean_git(git: GitState | None, env: Mapping[str, str]) -> GitState | None:
    return git and replace(git, branch=redact_text(git.branch, env))
