"""What later rules said of a result; the newest word is the one that is shown."""

from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy import Connection, select

from torchstone.records import Judgement, RecordError, Result, from_data, to_data
from torchstone.store import schema
from torchstone.store.errors import CorruptResultError


def insert(connection: Connection, seq: int, judgement: Judgement) -> None:
    """Add one for the result in that row."""
    document = json.dumps(to_data(judgement), separators=(",", ":"), allow_nan=False)
    from_data(Judgement, json.loads(document))  # what could not be read back is not written
    row = {
        "result": seq,
        "created": judgement.created,
        "version": judgement.version,
        "document": document,
    }
    connection.execute(schema.judgement.insert().values(**row))


def judged(connection: Connection, seq: int, result: Result) -> Result:
    """The result with the newest checks and verdicts there are of it."""
    table = schema.judgement
    query = select(table.c.document).where(table.c.result == seq)
    document = connection.scalar(query.order_by(table.c.seq.desc()).limit(1))
    if document is None:
        return result
    try:
        newest = from_data(Judgement, json.loads(document))
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise CorruptResultError(result.id, f"its judgement: {error}") from None
    return replace(result, checks=newest.checks, comparisons=newest.comparisons)
