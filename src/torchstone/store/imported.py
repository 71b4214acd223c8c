"""Histories of other tools in the store, and what people said about changes."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from torchstone.records import (
    ImportedHistory,
    ImportReport,
    SeriesKey,
    SeriesRun,
    UsageError,
)
from torchstone.store.engine import Base
from torchstone.store.limits import in_parts, now, storable
from torchstone.store.schema import (
    SERIES_KEY,
    case_fact,
    change_note,
    imported_run,
    imported_series,
    imported_values,
    run_case,
)

_RUN = ("machine", "environment", "branch", "source")
_COLUMNS = tuple(imported_series.c[name] for name in SERIES_KEY)


class PackedSeries(NamedTuple):
    """One imported series: numbers of its runs (32 bits) and its values (64 bits), packed."""

    seq: int
    key: SeriesKey
    runs: bytes
    data: bytes


class ChangeNote(NamedTuple):
    """What was said of a change, and of which: `document` holds series, place and direction."""

    change: str
    action: str
    reason: str
    created: str
    until: str
    document: dict[str, Any]


class ImportedPart(Base):
    """What other tools measured, as series of single values."""

    def add_history(self, history: ImportedHistory) -> ImportReport:
        """Store what is new in it, in one transaction; files that are there are passed over."""
        with self._writing() as connection:
            numbers, known = _add_runs(connection, history)
            new = [
                (key, *_kept(runs, values, numbers))
                for key, (runs, values) in history.series.items()
            ]
            new = [(key, runs, values) for key, runs, values in new if runs]
            series = _add_series(connection, [key for key, _, _ in new])
            rows = [
                {"series": series[key], "runs": runs.tobytes(), "data": values.tobytes()}
                for key, runs, values in new
            ]
            if rows:
                connection.execute(imported_values.insert(), rows)
        added = sum(number is not None for number in numbers)
        return ImportReport(added, known, len(rows), sum(len(values) for _, _, values in new))

    def imported_runs(self) -> dict[int, SeriesRun]:
        """Every imported run by its number."""
        names = ("seq", "source", "at", "revision", "machine", "branch")
        query = select(*(imported_run.c[name] for name in names))
        with self._reading() as connection:
            return {
                row.seq: SeriesRun(row.source, row.at, row.revision, "", row.machine, row.branch)
                for row in connection.execute(query)
            }

    def imported_keys(
        self, text: str = "", tool: str = "", limit: int = 1000, start: int = 0
    ) -> list[tuple[int, SeriesKey]]:
        """Imported series whose name or parameters contain the text, by name."""
        query = select(imported_series.c.seq, *_COLUMNS)
        for condition in _asked(text, tool):
            query = query.where(condition)
        query = query.order_by(imported_series.c.name, imported_series.c.seq)
        with self._reading() as connection:
            rows = connection.execute(query.limit(limit).offset(start)).all()
        return [(row[0], SeriesKey(*row[1:])) for row in rows]

    def imported_count(self, text: str = "", tool: str = "") -> int:
        """How many such series there are."""
        query = select(func.count()).select_from(imported_series)
        for condition in _asked(text, tool):
            query = query.where(condition)
        with self._reading() as connection:
            return connection.scalar(query) or 0

    def imported_packed(self, wanted: Sequence[int] | None = None) -> Iterator[PackedSeries]:
        """The values of these series, of all by default; each import's after the one before it."""
        query = (
            select(imported_values.c.series, imported_values.c.runs, imported_values.c.data)
            .add_columns(*_COLUMNS)
            .join(imported_series, imported_series.c.seq == imported_values.c.series)
            .order_by(imported_values.c.series, imported_values.c.seq)
        )
        parts: Iterator[Sequence[int] | None] = iter([None])
        if wanted is not None:
            parts = in_parts(wanted)
        with self._reading() as connection:
            for part in parts:
                asked = query if part is None else query.where(imported_values.c.series.in_(part))
                waiting: PackedSeries | None = None
                for row in connection.execute(asked):
                    if waiting is not None and waiting.seq == row[0]:
                        joined = (waiting.runs + row[1], waiting.data + row[2])
                        waiting = waiting._replace(runs=joined[0], data=joined[1])
                        continue
                    if waiting is not None:
                        yield waiting
                    waiting = PackedSeries(row[0], SeriesKey(*row[3:]), row[1], row[2])
                if waiting is not None:
                    yield waiting

    def imported_bytes(self) -> int:
        """What all imported values take."""
        query = select(func.sum(func.length(imported_values.c.data)))
        with self._reading() as connection:
            return connection.scalar(query) or 0

    def series_state(self) -> tuple[int, ...]:
        """Other numbers whenever a case ends, a history is imported or a change is spoken of."""
        seqs = (run_case.c.seq, imported_values.c.seq, change_note.c.seq, case_fact.c.seq)
        with self._reading() as connection:
            return tuple(connection.scalar(select(func.max(seq))) or 0 for seq in seqs)

    # What people said about changes.

    def add_change_note(
        self, change: str, action: str, reason: str, until: str, document: dict[str, Any]
    ) -> None:
        """Say something of a change; the last word counts."""
        row = {
            "change": change,
            "action": action,
            "reason": storable(reason),
            "created": now(),
            "until": until,
            "document": json.dumps(document),
        }
        with self._writing() as connection:
            connection.execute(change_note.insert().values(**row))

    def change_notes(self) -> list[ChangeNote]:
        """All that was said, the oldest first."""
        names = ("change", "action", "reason", "created", "until", "document")
        query = select(*(change_note.c[name] for name in names)).order_by(change_note.c.seq)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        try:
            return [ChangeNote(**{**row._mapping, "document": json.loads(row[5])}) for row in rows]
        except ValueError:
            raise UsageError("What was stored about changes is damaged.") from None


def _asked(text: str, tool: str) -> list[Any]:
    found: list[Any] = []
    if tool:
        found.append(imported_series.c.tool == tool)
    if text:
        title = imported_series.c.name + "(" + imported_series.c.parameters + ")"
        found.append(func.lower(title).contains(storable(text).lower(), autoescape=True))
    return found


def _add_runs(connection: Connection, history: ImportedHistory) -> tuple[list[int | None], int]:
    """The number of each run that is new, None of one that is there; how many are there."""
    digests = [run.digest for run in history.runs]
    there: set[bytes] = set()
    for part in in_parts(digests):
        query = select(imported_run.c.digest).where(imported_run.c.digest.in_(part))
        there.update(connection.scalars(query))
    first = (connection.scalar(select(func.max(imported_run.c.seq))) or 0) + 1
    numbers: list[int | None] = []
    rows: list[dict[str, Any]] = []
    for run in history.runs:
        if run.digest in there:
            numbers.append(None)
            continue
        there.add(run.digest)
        numbers.append(first + len(rows))
        row: dict[str, Any] = {name: storable(getattr(run, name)) for name in _RUN}
        row |= {"seq": numbers[-1], "tool": history.tool, "project": storable(history.project)}
        rows.append(row | {"revision": storable(run.commit), "at": run.at, "digest": run.digest})
    if rows:
        connection.execute(imported_run.insert(), rows)
    return numbers, len(history.runs) - len(rows)


def _kept(
    runs: array[int], values: array[float], numbers: Sequence[int | None]
) -> tuple[array[int], array[float]]:
    """Those of new runs, by the runs' numbers in the store."""
    if None not in numbers:
        return array("i", [numbers[place] or 0 for place in runs]), values
    found = [numbers[place] for place in runs]
    pairs = [(n, v) for n, v in zip(found, values, strict=True) if n is not None]
    return array("i", [n for n, _ in pairs]), array("d", [v for _, v in pairs])


def _digest(key: SeriesKey) -> bytes:
    text = "\0".join(astuple(key)).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(text, digest_size=16).digest()


def _add_series(connection: Connection, keys: Sequence[SeriesKey]) -> dict[SeriesKey, int]:
    """The number of each series, added where it is not there."""
    digests = {_digest(key): key for key in keys}
    found: dict[SeriesKey, int] = {}
    for part in in_parts(list(digests)):
        query = select(imported_series.c.key, imported_series.c.seq)
        for digest, seq in connection.execute(query.where(imported_series.c.key.in_(part))):
            found[digests[digest]] = seq
    seq = connection.scalar(select(func.max(imported_series.c.seq))) or 0
    rows = []
    for digest, key in digests.items():
        if key not in found:
            seq += 1
            found[key] = seq
            texts = (storable(text) for text in astuple(key))
            rows.append({"seq": seq, "key": digest, **dict(zip(SERIES_KEY, texts, strict=True))})
    if rows:
        connection.execute(imported_series.insert(), rows)
    return found
