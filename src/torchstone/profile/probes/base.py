"""The shape of a probe, and what it may be asked for."""

from __future__ import annotations

import platform
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol, runtime_checkable

from torchstone import __version__
from torchstone.records import Profile, TorchstoneError

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
