"""The store itself: results go in whole, and come out as they went in."""

from __future__ import annotations

import builtins
import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

from torchstone.records import RecordError, Result, TorchstoneError, UsageError, from_data
from torchstone.store import floors, limits, lookup, schema
from torchstone.store.blobs import BlobError
from torchstone.store.dates import seconds_of
from torchstone.store.document import Parcel, join, split
from torchstone.store.engine import open_engine, writing
from torchstone.store.errors import CorruptResultError, translated
from torchstone.store.location import locate
from torchstone.store.summary import Summary, headline


class Store:
    """Results on disk, append-only. Made by `open_store`; a context manager."""

    def __init__(self, engine: Engine, path: Path, *, read_only: bool) -> None:
        self._engine = engine
        self._read_only = read_only
        self.path = path

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back. The last program to close it also folds its log into it."""
        self._engine.dispose()

    def save(self, result: Result) -> int:
        """Store the result in one transaction; the bytes that its data take.

        The figure is that of the rows' content; SQLite rounds what it takes up to pages.
        """
        limits.check_id(result.id)
        try:
            parcel = split(result)
        except BlobError as error:
            raise TorchstoneError(
                f"The result {result.id} cannot be stored: {error}.",
                "This is a fault of Torchstone; please report it.",
            ) from None
        with translated(self.path), self._writing() as connection:
            _refuse_known(connection, result.id)
            return _insert(connection, result, parcel)

    def load(self, id_or_prefix: str) -> Result:
        """The result of that id, of the only id that begins so, or the newest one (`last`)."""
        with translated(self.path), self._engine.connect() as connection:
            seq, result_id = lookup.resolve(connection, id_or_prefix)
            return _read(connection, seq, result_id)

    def import_document(self, data: dict[str, Any], origin: str) -> Result:
        """Store a result from elsewhere, marked with its origin so that it is not run unasked."""
        if not origin or origin == "here" or not origin.isprintable():
            raise UsageError(
                f"{origin!r} cannot be an origin.", "Name the file or address it came from."
            )
        if not isinstance(data, dict):
            raise UsageError("The document is not a JSON object.", "Give an exported result.")
        limits.check_bounds(data)
        limits.check_schema(data)
        try:
            result = from_data(Result, data)
        except RecordError as error:
            raise UsageError(
                f"The document is not a usable result: {error}.",
                "Give a document that `torchstone export` made.",
            ) from None
        result = replace(result, origin=origin)
        limits.check_sense(result)
        self.save(result)
        return result

    def rebuild_summaries(self) -> int:
        """Derive all summaries anew from the results; how many. Damaged results keep theirs."""
        rebuilt = 0
        with translated(self.path), self._writing() as connection:
            rows = connection.execute(select(schema.result.c.seq, schema.result.c.id)).all()
            for seq, result_id in rows:
                try:
                    result = _read(connection, seq, result_id)
                except CorruptResultError:
                    continue
                connection.execute(schema.summary.delete().where(schema.summary.c.result == seq))
                _insert_summary(connection, seq, result)
                rebuilt += 1
        return rebuilt

    def remember_aa_floor(
        self, machine_id: str, threads: int, step_class: str, value: float, evidence: Any
    ) -> None:
        """Add what two identical arms differed by (relative); `evidence` is JSON-ready data."""
        with translated(self.path), self._writing() as connection:
            floors.remember(connection, machine_id, threads, step_class, value, evidence)

    def aa_floor(self, machine_id: str, threads: int, step_class: str) -> float | None:
        """The difference that identical arms seldom exceed here; None if never observed."""
        with translated(self.path), self._engine.connect() as connection:
            return floors.floor(connection, machine_id, threads, step_class)

    def list(
        self, limit: int = 20, arm: str | None = None, since: datetime | str | None = None
    ) -> builtins.list[Summary]:
        """The newest results first (in order of saving), without decoding any samples.

        `arm` keeps those with an arm of that name, `since` those created at or after that time
        (ISO 8601; without a zone, UTC).
        """
        with translated(self.path), self._engine.connect() as connection:
            return lookup.listing(connection, limit, arm, since)

    def count(self) -> int:
        """How many results there are."""
        with translated(self.path), self._engine.connect() as connection:
            found = connection.execute(select(func.count()).select_from(schema.result))
            return int(found.scalar_one())

    def _writing(self) -> AbstractContextManager[Connection]:
        if self._read_only:
            raise UsageError(
                f"The database {self.path} was opened for reading only.",
                "Open it for writing, or name another database with --db.",
            )
        return writing(self._engine)


def open_sqlite(url: str | None, *, create: bool, read_only: bool) -> Store:
    """The store at `url`; see `torchstone.store.open_store`."""
    location = locate(url)
    engine = open_engine(location, create=create, read_only=read_only)
    return Store(engine, location.path, read_only=read_only)


def _refuse_known(connection: Connection, result_id: str) -> None:
    table = schema.result
    if connection.scalar(select(table.c.seq).where(table.c.id == result_id)) is not None:
        raise UsageError(
            f"A result {result_id} is already stored; results never change.",
            f"See it with `torchstone show {result_id}`.",
        )


def _insert(connection: Connection, result: Result, parcel: Parcel) -> int:
    columns = {
        "id": result.id,
        "created": _storable(result.created),
        "kind": _storable(result.kind),
        "label": _storable(result.label),
        "origin": _storable(result.origin),
        "digest": _digest(parcel.document, parcel.samples),
    }
    arms = [(_storable(arm.arm.name), arm.outcome.value) for arm in result.arms]
    size = len(parcel.document) + sum(map(len, parcel.samples))
    size += sum(len(text.encode()) for text in columns.values())
    size += sum(len(text.encode()) for row in arms for text in row)
    done = connection.execute(
        schema.result.insert().values(
            **columns,
            bytes=size,
            created_s=seconds_of(result.created),
            document=parcel.document,
        )
    )
    (seq,) = done.inserted_primary_key or (0,)
    rows = [
        {"result": seq, "position": i, "arm": name, "outcome": outcome, "samples": samples}
        for i, ((name, outcome), samples) in enumerate(zip(arms, parcel.samples, strict=True))
    ]
    if rows:
        connection.execute(schema.measurement.insert(), rows)
    _insert_summary(connection, seq, result)
    return size


def _insert_summary(connection: Connection, seq: int, result: Result) -> None:
    connection.execute(
        schema.summary.insert().values(
            result=seq,
            definition=result.method.definition,
            headline=_storable(headline(result)),
            verdicts=json.dumps([c.verdict.value for c in result.comparisons]),
        )
    )


def _read(connection: Connection, seq: int, result_id: str) -> Result:
    results, arms = schema.result, schema.measurement
    try:
        document, digest = connection.execute(
            select(results.c.document, results.c.digest).where(results.c.seq == seq)
        ).one()
        samples: Sequence[bytes] = connection.scalars(
            select(arms.c.samples).where(arms.c.result == seq).order_by(arms.c.position)
        ).all()
        if _digest(document, samples) != digest:
            raise BlobError("its bytes are not those that were saved")
        result = join(document, samples)
        if result.id != result_id:
            raise BlobError(f"it says that its id is {result.id[:40]!r}")
        return result
    except (BlobError, TypeError) as error:  # TypeError: a number or text where bytes belong
        raise CorruptResultError(result_id, str(error)) from None
    except DBAPIError as error:
        if "malformed" in str(error.orig):
            raise CorruptResultError(result_id, str(error.orig)) from None
        raise


def _digest(document: bytes, samples: Iterable[bytes]) -> str:
    """Over everything stored of a result: also a missing or swapped arm shows."""
    total = hashlib.sha256(document)
    for blob in samples:
        total.update(hashlib.sha256(blob).digest())
    return total.hexdigest()


def _storable(text: str) -> str:
    """File names may hold bytes that are no text; a column must be text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
