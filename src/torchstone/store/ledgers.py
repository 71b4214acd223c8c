"""Ledgers: where the time of a step went, one compressed document each."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, select

from torchstone.records import (
    ArmSpec,
    Ledger,
    RecordError,
    TorchstoneError,
    UsageError,
    from_data,
    to_data,
)
from torchstone.store import lookup, schema
from torchstone.store.codec import compress, decompress

LOOKED_AT = 10
"""Ledgers of one target among which one with the same threads and settings is looked for."""
LARGEST = 1 << 26
"""Bytes of a ledger when unpacked: a row that says more was not written by us."""


@dataclass(frozen=True)
class LedgerSummary:
    """One line of a list of ledgers."""

    id: str
    created: str
    target: str
    variant: str
    mode: str
    precision: str
    device: str
    machine_id: str
    wall_s: float
    findings: int
    bytes: int


def insert(connection: Connection, ledger: Ledger) -> int:
    """Add a ledger; the bytes that it takes."""
    table = schema.ledger
    if connection.scalar(select(table.c.seq).where(table.c.id == ledger.id)) is not None:
        raise UsageError(f"A ledger {ledger.id} is already stored; ledgers never change.")
    text = json.dumps(to_data(ledger), separators=(",", ":"), allow_nan=False)
    packed = compress(text.encode())
    arm, environment = ledger.arm, ledger.environment
    connection.execute(
        table.insert().values(
            id=ledger.id,
            created=ledger.created,
            **lookup.key_of(arm),
            machine_id=environment.machine_id if environment else "",
            wall_s=ledger.wall_s,
            findings=len(ledger.findings),
            bytes=len(packed),
            document=packed,
        )
    )
    return len(packed)


def summaries(connection: Connection, limit: int) -> list[LedgerSummary]:
    """The newest first."""
    table = schema.ledger
    columns = [table.c[name] for name in LedgerSummary.__dataclass_fields__]
    query = select(*columns).order_by(table.c.seq.desc()).limit(limit)
    return [LedgerSummary(*row) for row in connection.execute(query)]


def load(connection: Connection, wanted: str) -> Ledger:
    """The ledger of that id, or of the only one that begins so; `last` is the newest."""
    return _read(connection, *lookup.resolve_ledger(connection, wanted))


def newest_of(connection: Connection, arm: ArmSpec, machine_id: str) -> Ledger | None:
    """The newest ledger of the same work on the same machine; see `lookup.same_work`."""
    table = schema.ledger
    same = (*lookup.matching(table, arm), table.c.machine_id == machine_id)
    query = select(table.c.seq, table.c.id).where(*same)
    for row in connection.execute(query.order_by(table.c.seq.desc()).limit(LOOKED_AT)).all():
        ledger = _read(connection, row.seq, row.id)
        if lookup.same_work(ledger.arm, arm):
            return ledger
    return None


def _read(connection: Connection, seq: int, name: str) -> Ledger:
    table = schema.ledger
    packed = connection.scalar(select(table.c.document).where(table.c.seq == seq))
    try:
        return from_data(Ledger, json.loads(decompress(packed or b"", LARGEST)))
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise TorchstoneError(f"The ledger {name} cannot be read: {error}.") from None
