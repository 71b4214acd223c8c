"""Was the arm watched while it was timed?"""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.records import Check, Level, Measurement
from torchstone.validate.base import FunctionRule, each_arm
from torchstone.validate.words import name_of

NAME = "profiler"
MODE = "dispatch mode"
"""How a mode that sees every op is named in the record, followed by its class."""
COUNTERS = ("FlopCounterMode", "Profil", "Logging", "Debug", "Count")
"""Parts of the names of modes that watch. A mode that computes is a part of the arm."""


def _look(arm: Measurement) -> Iterator[Check]:
    if arm.integrity is None:
        return
    found = arm.integrity.profilers
    figures, who = {"profilers": float(len(found))}, (arm.arm.name,)
    if not found:
        yield Check(NAME, Level.OK, f"Nothing watched {name_of(arm)}.", figures, who)
        return
    named = ", ".join(found)
    if any(_watches(name) for name in found):
        text = (
            f"{name_of(arm)} was timed while being watched ({named}), which costs time by itself "
            "and more in some arms than in others. Take it out; profile and count in runs of "
            "their own."
        )
        yield Check(NAME, Level.FAIL, text, figures, who)
        return
    text = (
        f"Every op of {name_of(arm)} passes through Python ({named}). Its time is in the figure; "
        "take the mode out unless it is what you measure."
    )
    yield Check(NAME, Level.WARN, text, figures, who)


def _watches(name: str) -> bool:
    return not name.startswith(MODE) or any(part in name for part in COUNTERS)


PROFILER = FunctionRule(NAME, "R8: never count or profile and time together", each_arm(_look))
