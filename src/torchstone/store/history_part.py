"""The store's part on history: runs as lists, axes and tables show them, without their plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from torchstone.records import (
    CaseFigures,
    CaseKey,
    CasePoint,
    Choices,
    FailureSpan,
    GroupPoint,
    RunHead,
    Selection,
    SuiteSummary,
)
from torchstone.store import (
    case_facts,
    facts,
    group_facts,
    history,
    lookup,
    runs,
    schema,
    selecting,
)
from torchstone.store.base import Base
from torchstone.store.derived import case_group
from torchstone.store.lookup import RunRow

EVERYTHING = Selection()


class HistoryPart(Base):
    """Questions over many runs. Each answer is bounded by its `limit`."""

    def run_heads(
        self, selection: Selection = EVERYTHING, limit: int = 200, before: str = ""
    ) -> list[RunHead]:
        """The newest runs first, by when they were made; with `before`, those older than that run.

        A selection of a suite, mode or the like leaves the runs that planned such cases; one of a
        model, those in which such a case has ended.
        """
        with self._reading() as connection:
            return history.heads(connection, self.path, selection, limit, before)

    def run_head(self, wanted: str) -> RunHead:
        """The run of that id or label, of the only id that begins so, or the newest (`last`)."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, wanted)
            return history.head(connection, self.path, row.seq)

    def find_heads(self, word: str, limit: int = 20) -> list[RunHead]:
        """Runs of that label or branch, or of a commit that begins so; the newest first."""
        with self._reading() as connection:
            return history.named(connection, self.path, word, limit)

    def revision(self) -> int:
        """Another number whenever stored figures, samples or thresholds are no longer the same."""
        with self._reading() as connection:
            return schema.revision(connection)

    def newest(self) -> tuple[int, int]:
        """Another pair whenever a run, or a kind of case, is added."""
        with self._reading() as connection:
            return history.newest(connection)

    def state_until(self, until_s: float) -> tuple[int, int]:
        """Another pair whenever a run made until then is added, a case of one ends, or stored
        figures are no longer the same."""
        with self._reading() as connection:
            return schema.revision(connection), history.state_until(connection, until_s)

    def choices(self) -> Choices:
        """Every value that occurs in stored runs."""
        with self._reading() as connection:
            return history.choices(connection)

    def group_points(
        self,
        selection: Selection,
        limit: int = 5000,
        every_s: float = 0.0,
        without: Collection[str] = (),
    ) -> list[GroupPoint]:
        """Suites over time, the oldest first; of more than `limit` the newest.

        With `every_s`, only the newest run with such a suite of each machine and branch in every
        so many seconds; weeks begin on Mondays. `without`: not of the runs of these ids.

        Each is summed up by the newest definitions that it was summed up by and that this program
        knows; a model in the selection does not matter, because a suite has many.
        """
        with self._reading() as connection:
            return history.group_points(connection, self.path, selection, limit, every_s, without)

    def run_groups(self, wanted: str, selection: Selection = EVERYTHING) -> list[SuiteSummary]:
        """The suites of one run, in the plan's order."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, wanted)
            return group_facts.of_run(connection, row.seq, selecting.of_key(selection, case_group))

    def case_points(
        self,
        key: CaseKey,
        selection: Selection = EVERYTHING,
        limit: int = 5000,
        every_s: float = 0.0,
    ) -> list[CasePoint]:
        """A case over time, the oldest first; of more than `limit` the newest.

        With `every_s`, only the newest run with it of each machine and branch in every so many
        seconds.
        """
        with self._reading() as connection:
            return history.case_points(connection, self.path, key, selection, limit, every_s)

    def cases(self, run_id: str, selection: Selection = EVERYTHING) -> tuple[CaseFigures, ...]:
        """The stored cases of a run, in the plan's order, by the newest definition known here."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, run_id)
            found = case_facts.of_run(connection, row.seq, row.id, selection)
            return tuple(found.values())

    def planned_keys(self, run_id: str) -> tuple[CaseKey, ...]:
        """The cases of a run's plan in its order; a plan never changes."""
        with self._reading() as connection:
            row = lookup.resolve_run(connection, run_id)
            return tuple(runs.read_keys(connection, row.seq, row.id))

    def planned_cases(
        self,
        run_id: str,
        selection: Selection = EVERYTHING,
        keys: Callable[[], Sequence[CaseKey]] | None = None,
    ) -> tuple[CaseFigures, ...]:
        """The same with one entry for every planned case; those that never ran as `not_run`.

        `keys` gives the run's `planned_keys` to whoever has kept them.
        """
        with self._reading() as connection:
            row = lookup.resolve_run(connection, run_id)
            found = case_facts.of_run(connection, row.seq, row.id, selection)
            head = history.head(connection, self.path, row.seq)
            if head.done >= head.planned:
                return tuple(found.values())
            plan = keys() if keys else runs.read_keys(connection, row.seq, row.id)
        return facts.completed(plan, found, selecting.matcher(selection))

    def failures(
        self, run_id: str, selection: Selection = EVERYTHING, limit: int = 5000
    ) -> list[FailureSpan]:
        """What fails in a run, in the plan's order, and since when.

        Only runs of the same machine and branch are lined up, by when they were made.
        """
        with self._reading() as connection:
            row: RunRow = lookup.resolve_run(connection, run_id)
            return history.failures(connection, self.path, row.seq, selection, limit)
