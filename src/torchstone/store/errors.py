"""The store's errors, and the translation of the database's own into sentences with a remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, IntegrityError

from torchstone.records import TorchstoneError, UsageError
from torchstone.store.location import cannot_open

MAX_NAMED = 8
"""Ids or cases named in an error; more would bury the sentence."""


class StoreBusyError(TorchstoneError):
    """Another program held the database for longer than we wait."""


class CorruptResultError(UsageError):
    """A stored result can no longer be read; the others can."""

    def __init__(self, result_id: str, reason: str) -> None:
        super().__init__(
            f"The stored result {result_id} is damaged and cannot be read: {reason}.",
            "Other results are not affected (`torchstone list`); restore this one from a backup.",
        )
        self.result_id = result_id


class CorruptRunError(UsageError):
    """A stored run, or the figures of one of its cases, can no longer be read."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"The stored run {run_id} is damaged and cannot be read: {reason}.",
            "Other runs are not affected (`torchstone list runs`); restore this one from a backup.",
        )
        self.run_id = run_id


class AlreadyStored(TorchstoneError):
    """Another process was quicker with these cases of the run; nothing of the second is kept."""

    def __init__(self, run_id: str, positions: Sequence[int]) -> None:
        cases = ", ".join(str(position) for position in positions[:MAX_NAMED])
        more = ", ..." if len(positions) > MAX_NAMED else ""
        super().__init__(
            f"Already stored in run {run_id}: case {cases}{more} (counted from 0).",
            "A case is stored once; see it with `torchstone show`.",
        )
        self.run_id = run_id
        self.positions = tuple(positions)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn database errors into the house's own; anything else passes as it is."""
    try:
        yield
    except DBAPIError as error:
        refused = isinstance(error, IntegrityError)
        raise _translate(path, str(error.orig), refused=refused) from error
    except sqlite3.Error as error:
        refused = isinstance(error, sqlite3.IntegrityError)
        raise _translate(path, str(error), refused=refused) from error


def _translate(path: Path, reason: str, *, refused: bool) -> TorchstoneError:
    # By text, because Python 3.10 gives no error code.
    text = reason.lower()
    if refused and "append-only" not in text:  # before the rest: it quotes names of columns
        return TorchstoneError(
            f"The database {path} refused the change: {reason}. Nothing of it was stored.",
            "This is a fault of Torchstone's, or the file was changed by another program: "
            "report it, with the command.",
        )
    if "locked" in text or "busy" in text:
        return StoreBusyError(
            f"The database {path} is held by another program.",
            "Wait for it to end and try again, or name another database with --db.",
        )
    if "append-only" in text:
        return UsageError(
            f"The database {path} refused the change: {reason}.", "Save a new result instead."
        )
    if "not a database" in text:
        return not_a_database(path)
    if "malformed" in text or "corrupt" in text:
        return UsageError(
            f"The database {path} is damaged ({reason}).",
            "Restore it from a backup, or name another database with --db.",
        )
    if "full" in text:
        return TorchstoneError(
            f"The database {path} cannot grow: the disk is full.",
            "Free some space, or name another database with --db.",
        )
    if "readonly" in text or "read-only" in text:
        return cannot_open(path, "it may not be written")
    return cannot_open(path, reason)


def not_a_database(path: Path) -> UsageError:
    """The error for a file of another kind."""
    return UsageError(
        f"{path} is not a database; it was left as it is.",
        "Give the path of a Torchstone database, or of a file that does not exist yet.",
    )
