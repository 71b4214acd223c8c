"""The shape of a checkup, and the making of what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torchstone.machine.doctor.view import View
from torchstone.records import Finding, Level

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
