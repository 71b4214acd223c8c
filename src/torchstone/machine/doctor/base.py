"""What a checkup looks at, what it finds, and the examination that runs them all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from torchstone.machine import processes
from torchstone.machine.doctor.window import Window
from torchstone.machine.hardware import read_cores
from torchstone.machine.processes import read_field, read_int, read_word
from torchstone.records import Finding, Level
from torchstone.records.plugins import Registry

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
        return read_word(os.path.join(self.root, path)) or None

    def number(self, path: str) -> int | None:
        """The one integer that the file holds, or None."""
        return read_int(os.path.join(self.root, path))

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
        return processes.usable_cores(self.groups("cpu"), len(self.cores))


# What it finds.


_COMMENT = "  # "
_UNDO = "; undo: "
NOTHING = "not needed"


class Checkup(Protocol):
    """Looks at one thing that may disturb a measurement, and says what it found, `ok` included.

    `source` tells where it and its thresholds come from.
    """

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def look(self) -> Callable[[View], Finding | Iterable[Finding]]: ...


@dataclass(frozen=True)
class FunctionCheckup:
    """A checkup that is one function."""

    name: str
    source: str
    look: Callable[[View], Finding | Iterable[Finding]]


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


def graded(level: Level, name: str, message: str, remedy: str, /, **figures: float) -> Finding:
    """One of these; what helps is said only where something is wrong."""
    return Finding(name, level, message, figures, "" if level is Level.OK else remedy)


def unseen(name: str, why: str) -> Finding:
    """The system does not say, which is not the same as being well."""
    return Finding(name, Level.NOTE, f"cannot be seen here: {why}")


def fix(command: str, does: str, undo: str = NOTHING) -> str:
    """A command that would help, as a line that a shell takes: what it does is a comment."""
    return f"{command}{_COMMENT}{does}{_UNDO}{undo}"


def write_file(path: str, value: str, before: str, does: str) -> list[str]:
    """The fix that puts a value into one of the kernel's files."""
    return [fix(f"echo {value} | sudo tee /{path}", does, f"echo {before} | sudo tee /{path}")]


def set_kernel(name: str, value: int, before: int, does: str) -> list[str]:
    """The fix that sets one of the kernel's parameters."""
    name = f"sudo sysctl kernel.{name}"
    return [fix(f"{name}={value}", does, f"{name}={before}")]


def split_fix(line: str) -> tuple[str, str, str]:
    """Command, what it does, how to undo it; the last two may be empty in a plug-in's line."""
    command, _, comment = line.partition(_COMMENT)
    does, _, undo = comment.partition(_UNDO)
    return command, does, undo


def cores(numbers: Iterable[int]) -> str:
    """Core numbers as `taskset` takes them: `0,2-5`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


# All checkups by name, and the examination.


_OURS = {
    "accelerator": ("accelerator",),
    "cores": (
        *("affinity", "boost", "core", "core-speed", "governor", "load", "pressure", "processes"),
        *("smt", "steal", "virtual"),
    ),
    "system": (
        *("address-layout", "allocator", "clock", "cpu-quota", "heat", "huge-pages", "memory"),
        *("perf-events", "power", "swap", "threads", "throttling", "variables"),
    ),
}
"""By module; `core-speed` is `CORE_SPEED` there."""
CHECKUPS = Registry(
    "torchstone.checkups",
    {
        name: f"torchstone.machine.doctor.checkups.{module}:{name.replace('-', '_').upper()}"
        for module, names in _OURS.items()
        for name in names
    },
)


def examine(view: View) -> tuple[Finding, ...]:
    """Every finding of every installed checkup, in a stable order. Two of one name both run: none
    is silenced."""
    findings: list[Finding] = []
    checkups: list[Checkup] = []
    for point in CHECKUPS.all():
        try:
            checkups.append(cast("Checkup", point.load()))
        except Exception as error:  # a broken plug-in must not cost the report
            findings.append(_broken(point.name, error, "could not be loaded"))
    return (*run_checkups(checkups, view), *findings)


def run_checkups(checkups: Iterable[Checkup], view: View) -> tuple[Finding, ...]:
    """The findings in order; a checkup that raises becomes a warning and keeps what it found."""
    findings: list[Finding] = []
    for checkup in checkups:
        try:
            found = checkup.look(view)
            for finding in (found,) if isinstance(found, Finding) else found:
                if not isinstance(finding, Finding):
                    raise TypeError(f"gave a {type(finding).__name__} instead of a Finding")
                findings.append(finding)
        except Exception as error:  # whatever a plug-in does wrong
            findings.append(_broken(getattr(checkup, "name", repr(checkup)), error, "failed"))
    return tuple(findings)


def _broken(name: str, error: Exception, what: str) -> Finding:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return warn(
        str(name),
        f"this checkup {what} ({said}), so what it looks for was not looked at",
        "Report it to its author, or remove the plug-in.",
    )
