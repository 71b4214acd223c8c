"""`torchstone db`: what the database weighs, what of it may go, and what can be made anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torchstone
from torchstone.lab.figures import figures_of
from torchstone.records import CaseFigures, PlannedCase, Result, UsageError
from torchstone.store import Rebuilt, SizeReport, ThinReport, open_store

Tell = Callable[[str, int, int], None]
LEAST_AGE_S = 86_400.0
"""A run of today may still go on."""


def thin(
    db: str | None,
    older_than_s: float,
    keep_every: int,
    command: Sequence[str],
    tell: Tell,
    *,
    trial: bool = False,
    compact: bool = False,
) -> tuple[ThinReport, int]:
    """Remove the raw samples of old results of runs; and, if asked to, shrink the file.

    Figures of an older definition are derived anew before: afterwards they could not be. What is
    removed, and the bytes that the file got smaller by.
    """
    if older_than_s < LEAST_AGE_S:
        raise UsageError(
            "Samples of less than a day ago are not removed.", "Give --older-than 1d or more."
        )
    before = time.time() - older_than_s
    with open_store(db, create=False) as store:
        report = store.thin(
            before,
            command,
            torchstone.__version__,
            keep_every=keep_every,
            trial=trial,
            tell=tell,
            derive=_derive,
        )
        return report, store.compact() if compact and not trial else 0


def size(db: str | None) -> SizeReport:
    """What is on disk, by table and by case."""
    with open_store(db, create=False, read_only=True) as store:
        return store.size()


def rebuild(db: str | None, tell: Tell, *, every: bool = False) -> Rebuilt:
    """Make the derived tables anew; with `every`, figures from the samples of all cases, too."""
    with open_store(db, create=False) as store:
        return store.rebuild(_derive, every=every, tell=tell)


def _derive(result: Result, planned: PlannedCase, arm: str) -> CaseFigures:
    """The store puts back the command that was printed."""
    return figures_of(result, planned, arm, ())
