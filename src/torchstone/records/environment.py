"""Where a measurement was made. Made so that no secret can land in it (see `machine/redact`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GitState:
    """The commit of the target's repository, and whether files differ from it."""

    commit: str
    branch: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class Environment:
    """The machine, the interpreter and the libraries of one arm.

    `machine_id` is a hash of the parts that decide speed. `variables` holds allow-listed
    environment variables by value; `hidden_variables` the arm's other ones by salted hash only.
    `source` is a hash of the target's file; empty where the target is none, and in older records.
    """

    machine_id: str
    cpu: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    os: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    torch: Mapping[str, str] = field(default_factory=dict)
    threads: Mapping[str, int] = field(default_factory=dict)
    allocator: str = "default"
    variables: Mapping[str, str] = field(default_factory=dict)
    hidden_variables: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    git: GitState | None = None
    source: str = ""
