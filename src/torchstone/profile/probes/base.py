"""The shape of a probe, and what it may be asked for."""

from __future__ import annotations

import bisect
import dis
import linecache
import os
import platform
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from types import CodeType
from typing import Any, Protocol, cast, runtime_checkable

from torchstone import __version__
from torchstone.records import (
    WAYS,
    Bytecode,
    Instruction,
    LineTable,
    Profile,
    TorchstoneError,
    UsageError,
)
from torchstone.records.plugins import Registry

RATE_HZ = 100.0
"""Samples a second, py-spy's own default: three seconds of them tell a share to about six points.
Twice as many could be told from none (decision 28)."""
CLOCKS = ("wall", "cpu", "gil")

Step = Callable[[], object]


@dataclass(frozen=True)
class ProbeOptions:
    """What was asked for; a probe takes what concerns it."""

    rate_hz: float = RATE_HZ
    clock: str = "wall"
    native: bool = False
    """Samples show functions of native code too."""
    functions: tuple[str, ...] = ()
    """Names of functions that are looked at line by line: `forward` or `Net.forward`."""
    files: tuple[str, ...] = ()
    """Where no function is named: all functions of these files."""
    device: str = "cpu"
    eager: bool = True
    """The work is plain code, not compiled: its ops can be seen one by one."""


class ProbeFailed(TorchstoneError):
    """A probe that seemed usable could not begin, or brought nothing."""


class Probe(Protocol):
    """Takes one profile. Found by entry point, whose value makes a probe of `ProbeOptions`."""

    @property
    def name(self) -> str:
        """Who takes it, as its entry point is called: `sampler`, `py-spy`."""

    @property
    def how(self) -> str:
        """`count`, `sample`, `trace` or `memory`."""

    def unavailable(self) -> str:
        """Why it cannot be used here; empty if it can. Quick, and changes nothing."""

    def start(self) -> None:
        """Begin. What runs from here on is profiled. `ProbeFailed` where it cannot after all."""

    def stop(self) -> Profile:
        """End, and give what was seen."""

    def discard(self) -> None:
        """End, and give nothing: only the time between was wanted."""


@runtime_checkable
class Repeats(Protocol):
    """A probe that needs passes of its own, where the work can be repeated."""

    def again(self, profile: Profile, step: Step, /) -> Profile:
        """The profile with what one more step, looked at in other ways, has shown."""


@runtime_checkable
class Marks(Protocol):
    """A probe that can show where a step begins and ends."""

    def around(self, step: Step, /) -> Step:
        """The same step, marked."""


def new_profile(how: str, tool: str, **parts: Any) -> Profile:
    """A profile taken here and now."""
    return Profile(
        id=uuid.uuid4().hex[:12],
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        how=how,
        tool=tool,
        facts=facts(),
        version=__version__,
        **parts,
    )


def facts() -> dict[str, str]:
    """What this process is: interpreter, whether it has a GIL, torch and its threads."""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "GIL": "yes" if has_gil else "no",
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found["torch"] = str(torch.__version__)
        found["torch threads"] = str(torch.get_num_threads())
    return found


# The source and the bytecode of what took most, for looking at beside the figures.


MOST_FUNCTIONS = 12
"""Hottest functions whose bytecode is kept."""
MOST_INSTRUCTIONS = 2_000
MOST_FILES = 8
MOST_FILE_BYTES = 512 * 1024
_ARGUMENT = 80
"""Characters of an argument that are kept."""


def text_of(file: str) -> tuple[str, ...]:
    """The lines of a Python file that ran; nothing if it is no such file, or too large."""
    try:
        if not file.endswith(".py") or os.stat(file).st_size > MOST_FILE_BYTES:
            return ()
    except (OSError, ValueError):
        return ()
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


def line_tables(rows: Mapping[tuple[str, int], Sequence[Any]], *columns: str) -> list[LineTable]:
    """Figures by file and line, each row in the order of the columns, as a table a file; those that
    took most come first, and with their source."""
    by_file: dict[str, list[int]] = {}
    for file, line in rows:
        by_file.setdefault(file, []).append(line)
    tables = []
    for file, lines in by_file.items():
        lines.sort()
        figures = zip(*(rows[file, line] for line in lines), strict=True)
        tables.append(LineTable(file, tuple(lines), **dict(zip(columns, figures, strict=True))))
    tables.sort(key=lambda table: -sum(table.seconds) - sum(map(abs, table.increment)))
    hottest = [replace(table, text=text_of(table.file)) for table in tables[:MOST_FILES]]
    return hottest + tables[MOST_FILES:]


def bytecode_of(code: CodeType, frame: int) -> Bytecode:
    """The instructions of a function, and what the interpreter has made of each since."""
    plain = list(dis.get_instructions(code))[:MOST_INSTRUCTIONS]
    adapted: dict[int, str] = {}
    if sys.version_info >= (3, 11):
        adapted = {one.offset: one.opname for one in dis.get_instructions(code, adaptive=True)}
    starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line]
    offsets = [offset for offset, _ in starts]
    found = []
    for one in plain:
        place = bisect.bisect_right(offsets, one.offset) - 1
        now = adapted.get(one.offset, one.opname)
        found.append(
            Instruction(
                offset=one.offset,
                line=starts[place][1] if place >= 0 else 0,
                name=one.opname,
                argument=str(one.argrepr)[:_ARGUMENT],
                specialised=now if now != one.opname else "",
                jump_target=bool(one.is_jump_target),
            )
        )
    return Bytecode(frame, tuple(found))


def hottest(weights: Mapping[int, float], codes: Mapping[int, CodeType]) -> tuple[Bytecode, ...]:
    """Bytecode of the functions that took most; weights and codes are by frame."""
    known = [frame for frame in weights if frame in codes and weights[frame] > 0]
    known.sort(key=lambda frame: -weights[frame])
    return tuple(bytecode_of(codes[frame], frame) for frame in known[:MOST_FUNCTIONS])


# Probes by name or by way, through entry points.


PROBES = Registry(
    "torchstone.probes",
    {
        "cprofile": "torchstone.profile.probes.count:CountProbe",
        "memory": "torchstone.profile.probes.memory:MemoryProbe",
        "memray": "torchstone.profile.probes.memory:AllocatorProbe",
        "py-spy": "torchstone.profile.probes.pyspy:PySpyProbe",
        "sampler": "torchstone.profile.probes.sample:SampleProbe",
        "torch": "torchstone.profile.probes.trace:TraceProbe",
    },
)
PREFERRED = ("sampler", "py-spy", "cprofile", "torch", "memory")
"""Of several that go the same way, the first of these that can be used; then others by name. The
sampler costs about a per cent; py-spy stops the process for each look."""


@cache
def known_probes() -> dict[str, metadata.EntryPoint]:
    """Installed probes by name; nothing is imported."""
    return PROBES.by_name()


def choose_probe(how: str, options: ProbeOptions) -> Probe:
    """The probe of that name, or the best of that way that can be used here; else a `UsageError`
    that says why none can."""
    known = known_probes()
    if how in known:
        probes = [_make(how, options)]
    elif how in WAYS:
        probes = [probe for name in _in_order() if (probe := _make(name, options)).how == how]
    else:
        names = ", ".join((*WAYS, *sorted(known)))
        raise UsageError(f"There is no way to profile called {how!r}.", f"Choose from {names}.")
    reasons = []
    for probe in probes:
        reason = probe.unavailable()
        if not reason:
            return probe
        reasons.append(f"{probe.name}: {reason}")
    said = "; ".join(reasons) or "no probe is installed that could"
    raise UsageError(f"This cannot be profiled with --how {how} ({said}).", "Choose another way.")


def _make(name: str, options: ProbeOptions) -> Probe:
    return cast("Probe", known_probes()[name].load()(options))


def _in_order() -> list[str]:
    known = known_probes()
    first = [name for name in PREFERRED if name in known]
    return first + sorted(set(known) - set(first))
