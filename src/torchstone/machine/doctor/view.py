"""What a checkup may look at: files under a root, variables, and the second that was watched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchstone.machine import cgroup
from torchstone.machine.cores import read_cores
from torchstone.machine.doctor.window import Window
from torchstone.machine.files import read_field, read_text

CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class View:
    """The machine as it is now. Paths are relative to the root: `proc/loadavg`.

    `torch` has `version` and `threads` of the torch that a worker would meet; it is empty where
    there is none. `malloc` is the allocator that is loaded.
    """

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] = frozenset({0})
    device: str = "cpu"
    window: Window = field(default_factory=Window)
    torch: Mapping[str, str] = field(default_factory=dict)
    malloc: str = ""
    administrator: bool = False

    def text(self, path: str) -> str | None:
        """The file's text without blanks around it; None where it is not there, or is empty."""
        return (read_text(os.path.join(self.root, path)) or "").strip() or None

    def number(self, path: str) -> int | None:
        """The one integer that the file holds, or None."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def field(self, path: str, name: str) -> int | None:
        """The integer after `name` on the line that starts with it, or None."""
        return read_field(os.path.join(self.root, path), name)

    def has(self, path: str) -> bool:
        """Whether the file or folder is there."""
        return os.path.exists(os.path.join(self.root, path.lstrip("/")))

    def find(self, pattern: str) -> list[str]:
        """The paths that match a shell pattern, in order."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def groups(self, controller: str) -> tuple[str, ...]:
        """The folders of this process's control group and its ancestors, from the root on."""
        root = str(self.root)
        return cgroup.folders(controller, "" if root == "/" else root)

    @property
    def online(self) -> int:
        """How many cores the machine has; at least those that may be used."""
        known = read_cores(self.text(f"{CPU}/online") or "")
        return max(len(known), len(self.cores), 1)

    @property
    def virtual(self) -> bool:
        """Whether a hypervisor says that it is there."""
        info = self.text("proc/cpuinfo") or ""
        flags = next((line for line in info.splitlines() if line.startswith("flags")), "")
        return "hypervisor" in flags.split() or self.text("sys/hypervisor/type") is not None

    def thread_budget(self) -> int:
        """Threads that can run at once: cores allowed, less where a quota grants less."""
        quota = cgroup.cpu_quota(self.groups("cpu"))
        return len(self.cores) if quota is None else max(1, min(len(self.cores), int(quota)))


def allowed_cores() -> frozenset[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
