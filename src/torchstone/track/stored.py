"""Runs out of the store, as comparisons want them: the one place that asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchstone.records import RunHead
from torchstone.track.sides import Side

if TYPE_CHECKING:
    from torchstone.store import Store

MOST_RUNS = 20_000
"""Newest runs among which a word is looked for: fifty years of nightlies, or one busy team's."""


def stored_heads(store: Store) -> list[RunHead]:
    """Every run, newest first, without its cases."""
    return store.run_heads(limit=MOST_RUNS)


def stored_side(store: Store, run_id: str) -> Side:
    """One run with the figures of its cases, all of one state of the store."""
    with store.snapshot():
        run = store.load_run(run_id, plan=False)
        return Side(
            store.run_head(run_id),
            store.planned_cases(run_id),
            run.method,
            run.version,
            tuple(store.run_groups(run_id)),
        )
