"""Maintenance: derived tables rebuilt, old samples pruned, sizes reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, inspect, select

from torchstone.records import Pruning, Run, UsageError
from torchstone.store import case_rows, engine, facts, profiles, results, runs, schema
from torchstone.store.case_rows import Derive
from torchstone.store.codec import BlobError
from torchstone.store.engine import Base, CorruptResultError, translated
from torchstone.store.limits import now
from torchstone.store.location import Location
from torchstone.store.results import PruneReport
from torchstone.store.schema import case_detail, case_fact, metadata

# What a case costs on disk.


FACTS = (
    *("run", "run_case", "run_fact", "machine_branch", "case_group", "series"),
    *("case_detail", "case_fact", "group_fact"),
)
"""Tables whose rows a case has whatever became of its samples."""


@dataclass(frozen=True)
class TableSize:
    """A table with its indexes."""

    name: str
    rows: int
    bytes: int | None
    """None where the database does not tell."""
    per_case: float | None


@dataclass(frozen=True)
class ResultSize:
    """Results of runs, all with their samples or all without."""

    results: int
    cases: int
    bytes: int
    """Of what they hold; a page is not filled to its end."""

    @property
    def per_case(self) -> float | None:
        """None where there is none."""
        return self.bytes / self.cases if self.cases else None


@dataclass(frozen=True)
class SizeReport:
    """What is on disk, and what of it a case takes."""

    path: str
    file_bytes: int
    free_bytes: int
    """Inside the file, for what comes next."""
    artefact_bytes: int
    """Of the files beside the database; of a server, inside it."""
    runs: int
    cases: int
    facts_per_case: float | None
    """What a case takes without its result."""
    whole: ResultSize
    """Results that have their samples, beyond the facts."""
    pruned: ResultSize
    tables: tuple[TableSize, ...]


def report(connection: Connection, location: Location) -> SizeReport:
    """Count everything. Looks at every page, so it takes a while."""
    file, free = engine.file_bytes(connection)
    known = engine.table_bytes(connection)
    there = set(inspect(connection).get_table_names())
    rows = {
        name: int(connection.scalar(select(func.count()).select_from(table)) or 0)
        for name, table in metadata.tables.items()
        if name in there
    }
    cases = rows.get("run_case", 0)
    sizes = {name: None if known is None else known.get(name, 0) for name in rows}
    facts_bytes = None if known is None else sum(known.get(name, 0) for name in FACTS)
    return SizeReport(
        path=str(location),
        file_bytes=file,
        free_bytes=free,
        artefact_bytes=_artefact_bytes(location, known or {}),
        runs=rows.get("run", 0),
        cases=cases,
        facts_per_case=_each(facts_bytes, cases),
        whole=_results(connection, pruned=False),
        pruned=_results(connection, pruned=True),
        tables=tuple(TableSize(n, rows[n], size, _each(size, cases)) for n, size in sizes.items()),
    )


def _artefact_bytes(location: Location, known: Mapping[str, int]) -> int:
    if location.url:
        return known.get(schema.artefact.name, 0)
    files = profiles.folder_of(location.path).rglob("*")
    return sum(one.stat().st_size for one in files if one.is_file())


def _each(size: int | None, cases: int) -> float | None:
    return size / cases if size is not None and cases else None


def _results(connection: Connection, *, pruned: bool) -> ResultSize:
    """Of those that belong to a run."""
    table, cases, arms = schema.result, schema.run_case, schema.measurement
    gone = select(schema.pruned.c.result).where(schema.pruned.c.result == table.c.seq).exists()
    which: ColumnElement[bool] = gone if pruned else ~gone
    of_run = select(cases.c.seq).where(cases.c.result == table.c.seq).exists()
    documents = select(func.count(), func.sum(func.length(table.c.document))).where(of_run, which)
    results, size = connection.execute(documents).one()
    blobs = select(func.sum(func.length(arms.c.samples))).join(table).where(of_run, which)
    number = select(func.count()).select_from(cases).join(table).where(which)
    total = (size or 0) + (connection.scalar(blobs) or 0)
    return ResultSize(results, int(connection.scalar(number) or 0), total)


Tell = Callable[[str, int, int], None]
"""Who wants to know how it gets on: what is done, how many of it, of how many."""

AT_ONCE = 50
"""Results changed in one transaction, so that nobody waits for long."""


def _silent(what: str, done: int, total: int) -> None:
    """Nobody asked."""


@dataclass(frozen=True)
class Rebuilt:
    """What was made again."""

    runs: int
    figures: int
    """Cases whose figures were derived from their samples."""
    summaries: int
    older: int = 0
    """Cases that keep figures of an older definition: their samples are gone or damaged."""


class MaintenancePart(Base):
    """What is done to a database now and then."""

    def rebuild(
        self, derive: Derive | None = None, *, every: bool = False, tell: Tell = _silent
    ) -> Rebuilt:
        """Make the derived tables again.

        With `derive`, figures that no definition of today was used for are derived from their
        samples, and with `every` those of all cases, and the lines that `list` shows. Cases
        without a result, or with a damaged or pruned one, keep their figures. A kill on the way
        does no harm; do it again.
        """
        self._refuse_reading_only()
        derived = older = 0
        if derive is not None:
            derived = self._derive(derive, None, stale=not every, tell=tell)
            with self._reading() as connection:
                older = sum(len(item.cases) for item in case_rows.due(connection, stale=True))
        summaries = self._rebuild_summaries(tell) if every else 0
        with self._reading() as connection:
            rows = connection.execute(select(schema.run.c.seq, schema.run.c.id)).all()
        for done, (seq, run_id) in enumerate(rows, 1):
            with self._writing() as connection:
                schema.revise(connection)
                facts.make_anew(connection, seq, _readable(connection, seq, run_id))
            tell("runs", done, len(rows))
        with self._writing() as connection:
            used = select(case_fact.c.detail).where(case_fact.c.detail.is_not(None))
            connection.execute(case_detail.delete().where(case_detail.c.seq.not_in(used)))
        return Rebuilt(len(rows), derived, summaries, older)

    def _derive(self, derive: Derive, run: int | None, *, stale: bool, tell: Tell) -> int:
        with self._reading() as connection:
            due = case_rows.due(connection, run=run, stale=stale)
        rebuilt = 0
        touched: set[int] = set()
        for done, item in enumerate(due, 1):
            with self._reading() as connection:
                derived = case_rows.derived(connection, item, derive)
            if derived:
                with self._writing() as connection:  # not held while the figures are worked out
                    schema.revise(connection)
                    touched |= case_rows.put_derived(connection, derived)
            rebuilt += len(derived)
            tell("results", done, len(due))
        for seq in sorted(touched):
            with self._writing() as connection:
                schema.revise(connection)
                facts.refresh(connection, seq, runs.read(connection, seq))
        return rebuilt

    def _rebuild_summaries(self, tell: Tell) -> int:
        with self._reading() as connection:
            rows = connection.execute(select(schema.result.c.seq, schema.result.c.id)).all()
        rebuilt = 0
        for start in range(0, len(rows), AT_ONCE):
            with self._writing() as connection:
                for seq, result_id in rows[start : start + AT_ONCE]:
                    rebuilt += _summarised(connection, seq, result_id)
            tell("lines", min(start + AT_ONCE, len(rows)), len(rows))
        return rebuilt

    def prune(
        self,
        before_s: float,
        command: Sequence[str],
        version: str,
        *,
        keep_every: int = 0,
        trial: bool = False,
        tell: Tell = _silent,
        derive: Derive | None = None,
    ) -> PruneReport:
        """Remove the samples of results of runs made before that time (UTC seconds).

        Figures, comparisons and checks stay, and each result says from then on that it was
        pruned, when and by which command. With `keep_every` one run in so many of each machine
        and branch keeps its samples. A `trial` changes nothing.

        Figures are final once their samples are gone, so those of an older definition are derived
        with `derive` before; without it, that they are there is a `UsageError`.
        """
        self._refuse_reading_only()
        with self._reading() as connection:
            aged, kept = results.aged(connection, before_s, keep_every)
            due = {run: results.due(connection, run) for run in aged}
        due = {run: rows for run, rows in due.items() if rows}
        rows = [row for of_run in due.values() for row in of_run]
        if trial:
            with self._reading() as connection:
                size_of = results.sample_bytes(connection, [seq for seq, _ in rows])
            return PruneReport(len(due), len(rows), 0, size_of, kept, True)
        left = self._not_current(due, derive, tell)
        damaged = [name for seq, name in rows if seq in left]
        rows = [row for row in rows if row[0] not in left]
        note = Pruning(now(), tuple(command), version, 0, "")
        changed = samples = saved = 0
        for start in range(0, len(rows), AT_ONCE):
            with self._writing() as connection:
                schema.revise(connection)
                for seq, name in rows[start : start + AT_ONCE]:
                    try:
                        removed, fewer = results.prune(connection, seq, note)
                    except (BlobError, TypeError):
                        damaged.append(name)
                        continue
                    changed, samples, saved = (
                        changed + bool(fewer),
                        samples + removed,
                        saved + fewer,
                    )
            tell("results", min(start + AT_ONCE, len(rows)), len(rows))
        return PruneReport(len(due), changed, samples, saved, kept, False, tuple(damaged))

    def _not_current(
        self, due: Mapping[int, Sequence[tuple[int, str]]], derive: Derive | None, tell: Tell
    ) -> set[int]:
        """The results among these whose figures are of an older definition, even after `derive`."""
        left: set[int] = set()
        for run, rows in due.items():
            if derive is not None:
                self._derive(derive, run, stale=True, tell=tell)
            with self._reading() as connection:
                stale = case_rows.due(connection, run=run, stale=True)
            left |= {item.result.seq for item in stale} & {seq for seq, _ in rows}
        if left and derive is None:
            raise UsageError(
                "Some of these results have figures of an older definition, which could not be "
                "derived again without their samples.",
                "Make the figures again first: torchstone db rebuild.",
            )
        return left

    def size(self) -> SizeReport:
        """What is on disk by table, and what a case costs with and without its samples."""
        with self._reading() as connection:
            return report(connection, self.location)

    def compact(self) -> int:
        """Give the space that pruning freed back to the file system; how many bytes."""
        self._refuse_reading_only()
        with translated(self.location):
            return engine.compact(self._engine)


def _readable(connection: Connection, seq: int, run_id: str) -> Run | None:
    try:
        return runs.read(connection, seq, run_id)
    except UsageError:  # damaged, or of a newer program
        return None


def _summarised(connection: Connection, seq: int, result_id: str) -> int:
    try:
        result = results.read(connection, seq, result_id)
    except CorruptResultError:
        return 0
    if result.pruned is not None:  # its line was made when it had its samples
        return 0
    connection.execute(schema.summary.delete().where(schema.summary.c.result == seq))
    results.insert_summary(connection, seq, result)
    return 1
