"""How long a worker may take for what it is at."""

from __future__ import annotations

from collections.abc import Callable

from torchstone.conductor.case import Settings

_BUILDING = ("start", "import", "build", "first call", "reference", "contract")


def patience(settings: Settings, slack_s: float = 0.0) -> Callable[[str], float]:
    """The time-out of a phase: building and compiling have one, steps another."""

    def of_phase(phase: str) -> float:
        if phase in _BUILDING:
            return settings.build_timeout_s
        return settings.step_timeout_s + slack_s

    return of_phase
