"""What names, ids and plans may be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from torchstone.records import Run, UsageError

MAX_NAME = 500
"""Characters in a name that lists and headlines repeat."""
MAX_ID = 100
MAX_CASES = 100_000
"""Cases of one run: every model of the four suites under a hundred settings."""
LAST = "last"
"""The word that means the newest; nothing may be called so."""
HERE = "here"
"""The origin of what this database's own programs measured."""
MAX_PARAMETERS = 500
"""Of one query; SQLite allows twice as many."""


def checked_limit(limit: int) -> int:
    """How many of a list are wanted; a negative number cannot be."""
    if limit < 0:
        raise UsageError(f"A list of {limit} cannot be made.", "Give 1 or more.")
    return limit


def in_parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """What is asked for, in parts that one query can name."""
    for start in range(0, len(rows), MAX_PARAMETERS):
        yield rows[start : start + MAX_PARAMETERS]


def storable(text: str) -> str:
    """File names may hold bytes that are no text, and crashes NUL; a column must be text."""
    if text.isascii():
        return text.replace("\0", "\\x00")
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def check_origin(origin: str) -> None:
    """What comes from elsewhere must say from where, so that it is not run unasked."""
    if not origin or origin == HERE or len(origin) > MAX_NAME or not origin.isprintable():
        raise UsageError(
            f"{origin[:40]!r} cannot be an origin.", "Name the file or address it came from."
        )


def check_id(result_id: str) -> None:
    """Refuse an id that could not be typed or would be mistaken for a word of the commands."""
    if not _is_id(result_id):
        raise UsageError(
            f"{result_id[:40]!r} cannot be the id of a result.", "Leave it to Torchstone."
        )


def _is_id(text: str) -> bool:
    if not text or len(text) > MAX_ID or text == LAST:
        return False
    return text.isprintable() and not any(c.isspace() for c in text)


def check_run(run: Run) -> None:
    """Refuse a run that could not be found again, shown safely, or told apart case by case."""
    if not _is_id(run.id):
        raise UsageError(f"{run.id[:40]!r} cannot be the id of a run.", "Leave it to Torchstone.")
    if run.label == LAST:
        raise UsageError(f"A run cannot be labelled {LAST!r}.", "It means the newest run.")
    if not 1 <= len(run.plan) <= MAX_CASES:
        raise UsageError(
            f"A run of {len(run.plan)} cases cannot be stored.", f"1 to {MAX_CASES} can be."
        )
    keys = [case.key for case in run.plan]
    names = (part for key in keys for part in (key.suite, key.model, key.variant, key.device))
    for text in (run.label, run.created, run.origin, *names):
        if len(text) > MAX_NAME or not text.isprintable():
            raise UsageError(
                f"The name {text[:40]!r} is too long or not printable.",
                f"Use at most {MAX_NAME} printable characters.",
            )
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise UsageError(
            f"The case {twice[0].name} is in the plan {keys.count(twice[0])} times.",
            "Name each model once.",
        )


# ISO 8601 times: as seconds, so that they can be compared across zones, and of this moment.


def seconds_of(moment: datetime | str) -> float | None:
    """UTC seconds since 1970; None if it is not a time. Without a zone, UTC is meant."""
    if isinstance(moment, str):
        text = moment.strip()
        if text.endswith(("Z", "z")):  # Python 3.10 does not read it
            text = text[:-1] + "+00:00"
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        return moment.timestamp()
    except (OverflowError, ValueError):
        return None


def now() -> str:
    """This moment, to the second, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# One line of a listing: here, because whoever only names the type should not load SQLAlchemy.


@dataclass(frozen=True)
class Summary:
    """One line of a listing. `bytes` is what the case takes in the store."""

    id: str
    created: str
    kind: str
    label: str
    origin: str
    arms: tuple[str, ...]
    outcomes: tuple[str, ...]
    headline: str
    bytes: int


@dataclass(frozen=True)
class RunSummary:
    """One line of a list of runs. `outcomes` counts the `done` cases; the rest was not run yet."""

    id: str
    created: str
    label: str
    origin: str
    planned: int
    done: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    suites: tuple[str, ...] = ()
