"""What a case costs on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, inspect, select

from torchstone.store import artefacts, dialect, schema
from torchstone.store.schema import metadata

FACTS = (
    *("run", "run_case", "run_fact", "lane", "case_group", "series"),
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
    thinned: ResultSize
    tables: tuple[TableSize, ...]


def report(connection: Connection, path: Path) -> SizeReport:
    """Count everything. Looks at every page, so it takes a while."""
    file, free = dialect.file_bytes(connection)
    known = dialect.table_bytes(connection)
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
        artefact_bytes=_folder_bytes(artefacts.folder_of(path)),
        runs=rows.get("run", 0),
        cases=cases,
        facts_per_case=_each(facts, cases),
        whole=_results(connection, thinned=False),
        thinned=_results(connection, thinned=True),
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


def _results(connection: Connection, *, thinned: bool) -> ResultSize:
    """Of those that belong to a run."""
    table, cases, arms = schema.result, schema.run_case, schema.measurement
    gone = select(schema.thinned.c.result).where(schema.thinned.c.result == table.c.seq).exists()
    which: ColumnElement[bool] = gone if thinned else ~gone
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
