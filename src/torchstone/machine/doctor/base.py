"""The shape of a checkup, and the making of what it finds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torchstone.machine import processes
from torchstone.machine.doctor.window import Window
from torchstone.machine.hardware import read_cores
from torchstone.machine.processes import read_field, read_text
from torchstone.records import Finding, Level

# Words and numbers for a finding's sentence.


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(amount: float) -> str:
    """`7.8 GiB`."""
    unit = 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.{1 if unit and amount < 100 else 0}f} {_UNITS[unit]}"


def cores(numbers: Iterable[int]) -> str:
    """Core numbers as `taskset` takes them: `0,2-5`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


# What a checkup may look at: files under a root, variables, and the second that was watched.


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
        return processes.folders(controller, "" if root == "/" else root)

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
        quota = processes.cpu_quota(self.groups("cpu"))
        return len(self.cores) if quota is None else max(1, min(len(self.cores), int(quota)))


def allowed_cores() -> frozenset[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


_COMMENT = "  # "
_UNDO = "; undo: "
NOTHING = "not needed"


class Checkup(Protocol):
    """Looks at one thing that may disturb a measurement, and says what it found, `ok` included.

    `source` tells where it and its thresholds come from.
    """

    @property
    def name(self) -> str:
        """The name that it is found by."""

    @property
    def source(self) -> str:
        """Where it comes from."""

    def look(self, view: View, /) -> Iterable[Finding]:
        """What it found."""


@dataclass(frozen=True)
class FunctionCheckup:
    """A checkup that is one function."""

    name: str
    source: str
    look: Callable[[View], Iterable[Finding]]


def ok(name: str, message: str, /, **figures: float) -> Finding:
    """Nothing that would disturb."""
    return Finding(name, Level.OK, message, figures)


def note(
    name: str, message: str, remedy: str = "", fixes: Sequence[str] = (), /, **figures: float
) -> Finding:
    """Worth knowing."""
    return Finding(name, Level.NOTE, message, figures, remedy, tuple(fixes))


def warn(
    name: str, message: str, remedy: str, fixes: Sequence[str] = (), /, **figures: float
) -> Finding:
    """Figures measured here will be wider, or hold for less than one thinks."""
    return Finding(name, Level.WARN, message, figures, remedy, tuple(fixes))


def fail(
    name: str, message: str, remedy: str, fixes: Sequence[str] = (), /, **figures: float
) -> Finding:
    """Figures measured here, now, are not to be believed."""
    return Finding(name, Level.FAIL, message, figures, remedy, tuple(fixes))


def unseen(name: str, why: str) -> Finding:
    """The system does not say, which is not the same as being well."""
    return Finding(name, Level.NOTE, f"cannot be seen here: {why}")


def fix(command: str, does: str, undo: str = NOTHING) -> str:
    """A command that would help, as a line that a shell takes: what it does is a comment."""
    return f"{command}{_COMMENT}{does}{_UNDO}{undo}"


def split_fix(line: str) -> tuple[str, str, str]:
    """Command, what it does, how to undo it; the last two may be empty in a plug-in's line."""
    command, _, comment = line.partition(_COMMENT)
    does, _, undo = comment.partition(_UNDO)
    return command, does, undo
