"""A result as rows: how it is written, and how it is read back and checked."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from sqlalchemy import Connection, and_, select
from sqlalchemy.exc import DBAPIError

from torchstone.records import Result, TorchstoneError, UsageError
from torchstone.store import judgements, limits, schema, thinnings
from torchstone.store.blobs import BlobError
from torchstone.store.dates import seconds_of
from torchstone.store.document import Parcel, join, split
from torchstone.store.errors import CorruptResultError
from torchstone.store.summary import headline


def parcel_of(result: Result) -> Parcel:
    """The result as bytes, made before the write lock is taken; what cannot be read back fails."""
    limits.check_id(result.id)
    try:
        return split(result)
    except BlobError as error:
        raise TorchstoneError(
            f"The result {result.id} cannot be stored: {error}.",
            "This is a fault of Torchstone; please report it.",
        ) from None


def find(connection: Connection, result_id: str) -> int | None:
    """The row of the result with exactly that id."""
    table = schema.result
    return connection.scalar(select(table.c.seq).where(table.c.id == result_id))


def refuse_known(connection: Connection, result_id: str) -> None:
    """Results never change, so an id is taken once."""
    if find(connection, result_id) is not None:
        raise UsageError(
            f"A result {result_id} is already stored; results never change.",
            f"See it with `torchstone show {result_id}`.",
        )


def insert(connection: Connection, result: Result, parcel: Parcel) -> tuple[int, int]:
    """Add the rows of a result; its row number, and the bytes that its data take."""
    columns = {
        "id": result.id,
        "created": storable(result.created),
        "kind": storable(result.kind),
        "label": storable(result.label),
        "origin": storable(result.origin),
        "digest": digest_of(parcel),
    }
    arms = [(storable(arm.arm.name), arm.outcome.value) for arm in result.arms]
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
    insert_summary(connection, seq, result)
    return seq, size


def insert_summary(connection: Connection, seq: int, result: Result) -> None:
    """Add what `list` shows of a result, in the place of an older one of the same definition."""
    table = schema.summary
    connection.execute(
        table.delete().where(
            and_(table.c.result == seq, table.c.definition == result.method.definition)
        )
    )
    connection.execute(
        schema.summary.insert().values(
            result=seq,
            definition=result.method.definition,
            headline=storable(headline(result)),
            verdicts=json.dumps([c.verdict.value for c in result.comparisons]),
        )
    )


def read(connection: Connection, seq: int, result_id: str) -> Result:
    """The result of that row; `CorruptResultError` if it is not what was saved."""
    try:
        parcel, digest = read_parcel(connection, seq)
        thinned = thinnings.of_result(connection, seq, digest)
        if digest_of(parcel) != (thinned.left if thinned else digest):
            raise BlobError("its bytes are not those that were saved")
        result = join(parcel.document, parcel.samples)
        if result.id != result_id:
            raise BlobError(f"it says that its id is {result.id[:40]!r}")
        if thinned:
            result = replace(result, thinned=thinned.told)
        return judgements.judged(connection, seq, result)
    except (BlobError, TypeError) as error:  # TypeError: a number or text where bytes belong
        raise CorruptResultError(result_id, str(error)) from None
    except DBAPIError as error:
        if "malformed" in str(error.orig):
            raise CorruptResultError(result_id, str(error.orig)) from None
        raise


def read_parcel(connection: Connection, seq: int) -> tuple[Parcel, str]:
    """The bytes of a result as they are stored, and the digest of what was saved."""
    results, arms = schema.result, schema.measurement
    document, digest = connection.execute(
        select(results.c.document, results.c.digest).where(results.c.seq == seq)
    ).one()
    samples = connection.scalars(
        select(arms.c.samples).where(arms.c.result == seq).order_by(arms.c.position)
    )
    return Parcel(document, tuple(samples)), digest


def digest_of(parcel: Parcel) -> str:
    """Over everything stored of a result: also a missing or swapped arm shows."""
    total = hashlib.sha256(parcel.document)
    for blob in parcel.samples:
        total.update(hashlib.sha256(blob).digest())
    return total.hexdigest()


def storable(text: str) -> str:
    """File names may hold bytes that are no text; a column must be text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
