"""The store's part on results: they go in whole, and come out as they went in."""

from __future__ import annotations

import builtins
from dataclasses import replace
from datetime import datetime

from sqlalchemy import func, select

from torchstone.records import Judgement, Result, RunView, UsageError
from torchstone.store import (
    case_facts,
    facts,
    figures,
    judgements,
    listing,
    lookup,
    results,
    runs,
    schema,
)
from torchstone.store.base import Base
from torchstone.store.figures import Derive
from torchstone.store.summary import Summary


class ResultsPart(Base):
    """Results, with every sample, and what rules said of them later."""

    def save(self, result: Result) -> int:
        """Store the result in one transaction; the bytes that its data take.

        The figure is that of the rows' content; SQLite rounds what it takes up to pages.
        """
        parcel = results.parcel_of(result)
        with self._writing() as connection:
            results.refuse_known(connection, result.id)
            return results.insert(connection, result, parcel)[1]

    def load(self, id_or_prefix: str) -> Result:
        """The result of that id, of the only id that begins so, or the newest one (`last`).

        Where its samples were removed meanwhile, its `thinned` says so.
        """
        with self._reading() as connection:
            return results.read(connection, *lookup.resolve(connection, id_or_prefix))

    def find(self, wanted: str) -> Result | RunView:
        """The result or the run of that id, beginning of an id, or (a run) label.

        `last` is what was stored last; a case's result stands for its run.
        """
        with self._reading() as connection:
            found = lookup.resolve_any(connection, wanted)
            if isinstance(found, lookup.RunRow):
                return figures.view(connection, found)
            return results.read(connection, *found)

    def add_judgement(self, result: Result, judgement: Judgement, derive: Derive) -> None:
        """Add what rules say of a stored result now; what is derived from it follows."""
        with self._writing() as connection:
            seq = results.find(connection, result.id)
            if seq is None:
                raise UsageError(f"There is no result {result.id}.", "See `torchstone list`.")
            if results.read(connection, seq, result.id).thinned:
                raise UsageError(
                    f"The samples of {result.id} were removed, so it cannot be judged anew.",
                    "What was said of it while it had them stands.",
                )
            schema.revise(connection)
            judgements.insert(connection, seq, judgement)
            judged = results.read(connection, seq, result.id)
            results.insert_summary(connection, seq, judged)
            for item in figures.due_of_result(connection, seq):
                for case, new in figures.derived(connection, item, derive):
                    kept = replace(new, command=figures.command_of(connection, case))
                    place = case_facts.place_of(connection, case.run)
                    case_facts.put(connection, place, [(case.position, kept)])
                for run in {case.run for case in item.cases}:
                    run_id = runs.id_of(connection, run)
                    facts.refresh(connection, run, runs.read(connection, run, run_id))

    def list(
        self, limit: int = 20, arm: str | None = None, since: datetime | str | None = None
    ) -> builtins.list[Summary]:
        """The newest results first (in order of saving), without decoding any samples.

        `arm` keeps those with an arm of that name, `since` those created at or after that time
        (ISO 8601; without a zone, UTC).
        """
        with self._reading() as connection:
            return listing.list_results(connection, limit, arm, since)

    def count(self) -> int:
        """How many results there are."""
        with self._reading() as connection:
            found = connection.execute(select(func.count()).select_from(schema.result))
            return int(found.scalar_one())
