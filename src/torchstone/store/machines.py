"""What is known of machines: calibrations and the doctor's reports, the newest first."""

from __future__ import annotations

import json
from typing import TypeVar

from sqlalchemy import Connection, Table, select

from torchstone.records import Calibration, DoctorReport, RecordError, TorchstoneError, from_data
from torchstone.records import to_data as as_data
from torchstone.store import schema

T = TypeVar("T")


def save_calibration(connection: Connection, calibration: Calibration) -> None:
    """Add one; `ValueError` for what could not be read back."""
    row = {
        "id": calibration.id,
        "machine_id": calibration.machine_id,
        "device": calibration.device,
        "created": calibration.created,
        "document": _text(calibration),
    }
    connection.execute(schema.calibration.insert().values(**row))


def newest_calibration(connection: Connection, machine_id: str, device: str) -> Calibration | None:
    """The last one of that device of that machine, or None."""
    found = _newest(connection, schema.calibration, machine_id, 1, device)
    return _read(Calibration, found[0]) if found else None


def calibrations(connection: Connection, machine_id: str | None, limit: int) -> list[Calibration]:
    """Of one machine or of all."""
    found = _newest(connection, schema.calibration, machine_id, limit)
    return [_read(Calibration, document) for document in found]


def save_doctor(connection: Connection, report: DoctorReport) -> None:
    """Add one; `ValueError` for what could not be read back."""
    row = {
        "id": report.id,
        "machine_id": report.machine_id,
        "created": report.created,
        "document": _text(report),
    }
    connection.execute(schema.doctor.insert().values(**row))


def doctor_reports(
    connection: Connection, machine_id: str | None, limit: int
) -> list[DoctorReport]:
    """Of one machine or of all."""
    found = _newest(connection, schema.doctor, machine_id, limit)
    return [_read(DoctorReport, document) for document in found]


def _newest(
    connection: Connection,
    table: Table,
    machine_id: str | None,
    limit: int,
    device: str | None = None,
) -> list[str]:
    if not schema.has_judging(connection):
        return []
    query = select(table.c.document).order_by(table.c.seq.desc()).limit(limit)
    if machine_id is not None:
        query = query.where(table.c.machine_id == machine_id)
    if device is not None:
        query = query.where(table.c.device == device)
    return list(connection.scalars(query))


def _text(record: object) -> str:
    return json.dumps(as_data(record), separators=(",", ":"), allow_nan=False)


def _read(kind: type[T], document: str) -> T:
    try:
        return from_data(kind, json.loads(document))
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise TorchstoneError(
            f"A stored {kind.__name__} cannot be read: {error}.",
            "Measure it anew with `torchstone doctor --calibrate`.",
        ) from None
