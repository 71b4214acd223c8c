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
    from_data,
    to_data,
)
from torchstone.store import lookup, schema
from torchstone.store.codec import compress, decompress, to_json
from torchstone.store.engine import Base

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


class LedgersPart(Base):
    """Ledgers: a row each."""

    def save_ledger(self, ledger: Ledger) -> int:
        """Keep a ledger; the bytes that it takes."""
        table, environment = schema.ledger, ledger.environment
        with self._writing() as connection:
            lookup.refuse_known(connection, lookup.LEDGER, ledger.id)
            packed = compress(to_json(to_data(ledger)).encode())
            connection.execute(
                table.insert().values(
                    id=ledger.id,
                    created=ledger.created,
                    **lookup.key_of(ledger.arm),
                    machine_id=environment.machine_id if environment else "",
                    wall_s=ledger.wall_s,
                    findings=len(ledger.findings),
                    bytes=len(packed),
                    document=packed,
                )
            )
        return len(packed)

    def load_ledger(self, wanted: str) -> Ledger:
        """The ledger of that id, of the only id that begins so, or the newest one (`last`)."""
        with self._reading() as connection:
            row = lookup.resolve(connection, wanted, lookup.LEDGER)
            return _read(connection, row.seq, row.id)

    def ledger_of(self, arm: ArmSpec, machine_id: str) -> Ledger | None:
        """The newest ledger of the same work on the same machine; see `lookup.same_work`."""
        table = schema.ledger
        same = (*lookup.matching(table, arm), table.c.machine_id == machine_id)
        query = select(table.c.seq, table.c.id).where(*same).order_by(table.c.seq.desc())
        with self._reading() as connection:
            rows = connection.execute(query.limit(LOOKED_AT)).all()
            found = (_read(connection, row.seq, row.id) for row in rows)
            return next((one for one in found if lookup.same_work(one.arm, arm)), None)

    def list_ledgers(self, limit: int = 20) -> list[LedgerSummary]:
        """The newest first."""
        table = schema.ledger
        columns = [table.c[name] for name in LedgerSummary.__dataclass_fields__]
        query = select(*columns).order_by(table.c.seq.desc()).limit(limit)
        with self._reading() as connection:
            return [LedgerSummary(*row) for row in connection.execute(query)]


def _read(connection: Connection, seq: int, name: str) -> Ledger:
    table = schema.ledger
    packed = connection.scalar(select(table.c.document).where(table.c.seq == seq))
    try:
        return from_data(Ledger, json.loads(decompress(packed or b"", LARGEST)))
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise TorchstoneError(f"The ledger {name} cannot be read: {error}.") from None
