"""The one error root: `cli` catches it once, prints sentence and remedy, exits with its code.

And the user's data directory, which every command asks for."""

from __future__ import annotations

import os
from pathlib import Path


class TorchstoneError(Exception):
    """Something went wrong that a person can act on: one sentence, one remedy, one exit code."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Both, for whoever sees it as an exception: the remedy is the useful half."""
        return f"{self.message} {self.remedy}".rstrip()


class UsageError(TorchstoneError):
    """The request itself cannot be carried out; nothing was measured and nothing written."""

    exit_code = 2


class NotRunError(TorchstoneError):
    """The request is sound and could not be carried out: a build failed, a target is missing in a
    revision. Never mistaken for an answer."""

    exit_code = 4


class NotSupported(Exception):
    """This arm cannot run here, for a reason that is not its fault; becomes `not_supported`."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line; empty where it says nothing or cannot even be written."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # an error that cannot be written must not hide itself
        return ""
    return lines[0] if lines else ""


def in_a_line(error: BaseException) -> str:
    """Its kind and what it says: `ValueError: too long`, or `AssertionError` alone."""
    return f"{type(error).__name__}: {first_line(error)}".rstrip(": ")


def data_directory() -> Path:
    """The user's own, where nothing else is said; it need not exist yet."""
    base = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(base):  # a relative one is to be ignored, says the XDG specification
        return Path(base) / "torchstone"
    try:
        return Path.home() / ".local" / "share" / "torchstone"
    except RuntimeError:
        raise UsageError(
            "No home directory is known, so there is no place for the database.",
            "Give --db PATH or set TORCHSTONE_DB; of a monitor, set TORCHSTONE_MONITORS.",
        ) from None
