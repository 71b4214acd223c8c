"""What is known of machines: calibrations and the doctor's reports, the newest first."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, func, inspect, select

from torchstone.records import (
    Calibration,
    Conditions,
    DoctorReport,
    Level,
    RecordError,
    TorchstoneError,
    from_data,
)
from torchstone.records import to_data as as_data
from torchstone.store import schema
from torchstone.store.limits import seconds_of
from torchstone.store.schema import run_fact

T = TypeVar("T")


@dataclass(frozen=True)
class MachineSummary:
    """A machine that something stored speaks of. Times are UTC seconds, None if no run has one."""

    id: str
    description: str
    runs: int
    first_seen_s: float | None
    last_seen_s: float | None
    reports: int
    """The doctor's."""
    calibrations: int


@dataclass(frozen=True)
class NoisePoint:
    """What the doctor found at one time."""

    created: str
    created_s: float | None
    smallest_detectable: float | None
    identical: float | None
    """The time ratio of two identical arms."""
    fit: bool
    doubts: tuple[str, ...]
    """Names of the findings worse than a note."""


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


def summaries(connection: Connection, limit: int) -> list[MachineSummary]:
    """Last seen first; those that no run speaks of come last."""
    seen = (func.min(run_fact.c.created_s), func.max(run_fact.c.created_s))
    rows = connection.execute(
        select(run_fact.c.machine_id, func.count(), *seen).group_by(run_fact.c.machine_id)
    )
    runs = {row[0]: row[1:] for row in rows if row[0]}
    reports = _counted(connection, schema.doctor)
    calibrated = _counted(connection, schema.calibration)
    ids = list(dict.fromkeys((*runs, *reports, *calibrated)))
    found = [
        MachineSummary(
            id=one,
            description=_description(connection, one),
            runs=runs.get(one, (0, None, None))[0],
            first_seen_s=runs.get(one, (0, None, None))[1],
            last_seen_s=runs.get(one, (0, None, None))[2],
            reports=reports.get(one, 0),
            calibrations=calibrated.get(one, 0),
        )
        for one in ids
    ]
    found.sort(key=lambda machine: (-(machine.last_seen_s or 0.0), machine.id))
    return found[:limit]


def _counted(connection: Connection, table: Table) -> dict[str, int]:
    rows = connection.execute(select(table.c.machine_id, func.count()).group_by(table.c.machine_id))
    return {row[0]: row[1] for row in rows}


def _description(connection: Connection, machine_id: str) -> str:
    """As the newest run has it, else the doctor."""
    query = select(run_fact.c.machine).where(run_fact.c.machine_id == machine_id)
    found = connection.scalar(query.order_by(run_fact.c.at.desc()).limit(1))
    if found:
        return str(found)
    reports = doctor_reports(connection, machine_id, 1)
    return reports[0].machine.get("model", "") if reports else ""


def noise_history(connection: Connection, machine_id: str, limit: int) -> list[NoisePoint]:
    """The newest reports, the oldest of them first."""
    return [
        NoisePoint(
            created=report.created,
            created_s=seconds_of(report.created),
            smallest_detectable=report.smallest_detectable,
            identical=report.identical.time_ratio if report.identical else None,
            fit=report.fit,
            doubts=tuple(f.name for f in report.findings if f.level in (Level.WARN, Level.FAIL)),
        )
        for report in reversed(doctor_reports(connection, machine_id, limit))
    ]


def _newest(
    connection: Connection,
    table: Table,
    machine_id: str | None,
    limit: int,
    device: str | None = None,
) -> list[str]:
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
            "Measure it again with `torchstone doctor --calibrate`.",
        ) from None


# What two identical arms differed by on a machine: the smallest difference worth believing.


NEWEST = 50
"""Observations that count. Older ones speak of a machine that may have changed."""

QUANTILE = 0.9
"""Nine of ten identical pairs lay below this; the maximum would only ever rise."""


@dataclass(frozen=True)
class FloorSummary:
    """An A/A floor and how many observations it rests on."""

    conditions: Conditions
    value: float
    observations: int


def remember(
    connection: Connection,
    machine_id: str,
    conditions: Conditions,
    value: float,
    evidence: Any,
) -> None:
    """Add one observation."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"an A/A floor is a relative difference of 0 or more, not {value!r}")
    row = {
        "machine_id": machine_id,
        **conditions._asdict(),
        "value": float(value),
        "evidence": json.dumps(evidence, separators=(",", ":"), allow_nan=False),
    }
    connection.execute(schema.aa_floor.insert().values(**row))


def floor(connection: Connection, machine_id: str, conditions: Conditions) -> float | None:
    """The quantile of the newest observations (nearest rank), None if there are none."""
    table = schema.aa_floor
    wanted = conditions._asdict()
    # Where nothing says so, all there is was measured with the system's own.
    if not _says_allocators(connection) and wanted.pop("allocator") != "default":
        return None
    same = [table.c[name] == value for name, value in wanted.items()]
    newest = (
        select(table.c.value)
        .where(table.c.machine_id == machine_id, *same)
        .order_by(table.c.seq.desc())
        .limit(NEWEST)
    )
    values = sorted(connection.scalars(newest))
    if not values:
        return None
    return float(values[math.ceil(QUANTILE * len(values)) - 1])


def _says_allocators(connection: Connection) -> bool:
    """False for a database of version 6 or less that is open for reading only."""
    columns = inspect(connection).get_columns(schema.aa_floor.name)
    return any(column["name"] == "allocator" for column in columns)


def of_machine(connection: Connection, machine_id: str) -> list[FloorSummary]:
    """Every floor of a machine, by threads, allocator and step length."""
    table = schema.aa_floor
    by = [table.c[name] for name in Conditions._fields]
    query = (
        select(*by, func.count())
        .where(table.c.machine_id == machine_id)
        .group_by(*by)
        .order_by(*by)
    )
    found = []
    for *of, number in connection.execute(query).all():
        value = floor(connection, machine_id, Conditions(*of))
        if value is not None:
            found.append(FloorSummary(Conditions(*of), value, min(number, NEWEST)))
    return found
