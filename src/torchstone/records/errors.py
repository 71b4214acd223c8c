"""The one error root: `cli` catches it once, prints sentence and remedy, exits with its code."""

from __future__ import annotations


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
