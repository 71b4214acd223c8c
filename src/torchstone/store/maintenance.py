"""Maintenance: derived tables rebuilt, old samples pruned, sizes reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, inspect, select

from torchstone.records import Pruning, Run, UsageError
from torchstone.store import (
    case_facts,
    engine,
    facts,
    lookup,
    metrics,
    profiles,
    results,
    runs,
    schema,
)
from torchstone.store.codec import BlobError
from torchstone.store.engine import Base, CorruptResultError, translated
from torchstone.store.limits import now
from torchstone.store.metrics import Derive
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
    """Of the files beside the database."""
    runs: int
    cases: int
    facts_per_case: float | None
    """What a case takes without its result."""
    whole: ResultSize
    """Results that have their samples, beyond the facts."""
    pruned: ResultSize
    tables: tuple[TableSize, ...]


def report(connection: Connection, path: Path) -> SizeReport:
    """Count everything. Looks at every page, so it takes a while."""
    file, free = engine.file_bytes(connection)
    known = engine.table_bytes(connection)
    rows = {name: _rows(connection, name) for name in _tables(connection)}
    cases = rows.get("run_case", 0)
    tables = tuple(
        TableSize(name, number, size, _each(size, cases))
        for name, number in rows.items()
        for size in (None if known is None else known.get(name, 0),)
    )
    facts = None if known is None else sum(known.get(name, 0) for name in FACTS)
    return SizeReport(
        path=str(path),
        file_bytes=file,
        free_bytes=free,
        artefact_bytes=_folder_bytes(profiles.folder_of(path)),
        runs=rows.get("run", 0),
        cases=cases,
        facts_per_case=_each(facts, cases),
        whole=_results(connection, pruned=False),
        pruned=_results(connection, pruned=True),
        tables=tables,
    )


def _each(size: int | None, cases: int) -> float | None:
    return size / cases if size is not None and cases else None


def _tables(connection: Connection) -> list[str]:
    there = set(inspect(connection).get_table_names())
    return [name for name in metadata.tables if name in there]


def _rows(connection: Connection, name: str) -> int:
    query = select(func.count()).select_from(metadata.tables[name])
    return int(connection.execute(query).scalar_one())


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


def _folder_bytes(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


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
        without samples keep their figures. A kill on the way does no harm; do it again.
        """
        self._refuse_reading_only()
        derived = older = 0
        if derive is not None:
            derived = self._derive(derive, None, stale=not every, tell=tell)
            with self._reading() as connection:
                left = metrics.due(connection, None, stale=True)
            older = sum(len(item.cases) for item in left)
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

    def rebuild_figures(self, derive: Derive, wanted: str | None = None) -> int:
        """Derive the figures of all cases (or of one run's) again from their results; how many.

        For a new definition. Cases without a result, or with a damaged or pruned one, keep
        theirs. A kill on the way leaves some cases with the old figures; doing it again mends that.
        """
        found = None
        if wanted is not None:
            with self._reading() as connection:
                found = lookup.resolve_run(connection, wanted).seq
        return self._derive(derive, found, stale=False, tell=_silent)

    def rebuild_summaries(self) -> int:
        """Derive all summaries again from the results; how many. Damaged results keep theirs."""
        return self._rebuild_summaries(_silent)

    def _derive(self, derive: Derive, run: int | None, *, stale: bool, tell: Tell) -> int:
        self._refuse_reading_only()
        with self._reading() as connection:
            due = metrics.due(connection, run, stale=stale)
        rebuilt = 0
        touched: dict[int, None] = {}
        for done, item in enumerate(due, 1):
            with self._reading() as connection:
                derived = metrics.derived(connection, item, derive)
            with self._writing() as connection:  # not held while the figures are worked out
                if derived:
                    schema.revise(connection)
                for case, new in derived:
                    if not new.command:
                        new = replace(new, command=metrics.command_of(connection, case))
                    place = case_facts.place_of(connection, case.run)
                    case_facts.put(connection, place, [(case.position, new)])
                    touched[case.run] = None
            rebuilt += len(derived)
            tell("results", done, len(due))
        for seq in touched:
            with self._writing() as connection:
                schema.revise(connection)
                facts.refresh(
                    connection, seq, runs.read(connection, seq, runs.id_of(connection, seq))
                )
        return rebuilt

    def _rebuild_summaries(self, tell: Tell) -> int:
        self._refuse_reading_only()
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
            aged = results.aged(connection, before_s, keep_every)
            due = {run: results.due(connection, run) for run in aged.runs}
        due = {run: rows for run, rows in due.items() if rows}
        rows = [row for of_run in due.values() for row in of_run]
        if trial:
            with self._reading() as connection:
                size_of = results.sample_bytes(connection, [seq for seq, _ in rows])
            return PruneReport(len(due), len(rows), 0, size_of, aged.kept, True)
        left = self._not_current(due, derive, tell)
        told = Pruning(now(), tuple(command), version, 0, "")
        done = list(self._thinned([row for row in rows if row[0] not in left], told, tell))
        damaged = tuple(name for seq, name in rows if seq in left)
        damaged += tuple(name for name, _, _ in done if name)
        changed = [(samples, saved) for name, samples, saved in done if not name and saved]
        samples, saved = (sum(part) for part in zip(*changed, strict=True)) if changed else (0, 0)
        return PruneReport(len(due), len(changed), samples, saved, aged.kept, False, damaged)

    def _not_current(
        self, due: Mapping[int, Sequence[tuple[int, str]]], derive: Derive | None, tell: Tell
    ) -> set[int]:
        """The results among these whose figures are of an older definition, even after `derive`."""
        left: set[int] = set()
        for run, rows in due.items():
            if derive is not None:
                self._derive(derive, run, stale=True, tell=tell)
            with self._reading() as connection:
                stale = {item.result.seq for item in metrics.due(connection, run, stale=True)}
            left |= stale & {seq for seq, _ in rows}
        if left and derive is None:
            raise UsageError(
                "Some of these results have figures of an older definition, which could not be "
                "derived again without their samples.",
                "Make the figures again first: torchstone db rebuild.",
            )
        return left

    def _thinned(
        self, rows: Sequence[tuple[int, str]], told: Pruning, tell: Tell
    ) -> Iterator[tuple[str, int, int]]:
        """Of each result: its id if it is damaged, the samples removed and the bytes saved."""
        for start in range(0, len(rows), AT_ONCE):
            with self._writing() as connection:
                schema.revise(connection)
                for seq, result_id in rows[start : start + AT_ONCE]:
                    try:
                        yield "", *_thin(connection, seq, told)
                    except (BlobError, TypeError):
                        yield result_id, 0, 0
            tell("results", min(start + AT_ONCE, len(rows)), len(rows))

    def size(self) -> SizeReport:
        """What is on disk by table, and what a case costs with and without its samples."""
        with self._reading() as connection:
            return report(connection, self.path)

    def compact(self) -> int:
        """Give the space that pruning freed back to the file system; how many bytes."""
        self._refuse_reading_only()
        with translated(self.path):
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


def _thin(connection: Connection, seq: int, told: Pruning) -> tuple[int, int]:
    """The samples removed and the bytes saved; nothing where another program was quicker."""
    whole, digest = results.read_encoded(connection, seq)
    if results.of_result(connection, seq, digest) is not None:
        return 0, 0
    if results.digest_of(whole) != digest:
        raise BlobError("its bytes are not those that were saved")
    found = results.left_of(whole)
    if found is None:
        return 0, 0
    left, removed = found
    note = Pruning(told.created, told.command, told.version, removed, digest)
    return removed, results.prune(connection, seq, whole, left, note, results.digest_of(left))
