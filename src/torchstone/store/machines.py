"""What is known of machines: calibrations, the doctor's reports, A/A floors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, func, select

from torchstone.records import (
    Calibration,
    Conditions,
    DoctorReport,
    Level,
    RecordError,
    TorchstoneError,
    from_data,
    to_data,
)
from torchstone.store import schema
from torchstone.store.codec import to_json
from torchstone.store.engine import Base
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


NEWEST = 50
"""Observations of a floor that count. Older ones speak of a machine that may have changed."""
QUANTILE = 0.9
"""Nine of ten identical pairs lay below this; the maximum would only ever rise."""


@dataclass(frozen=True)
class FloorSummary:
    """An A/A floor and how many observations it rests on."""

    conditions: Conditions
    value: float
    observations: int


class MachinesPart(Base):
    """What machines can do, and how noisy they were: calibrations, the doctor's reports, and what
    two identical arms differed by, which is the smallest difference worth believing."""

    def remember_aa_floor(
        self, machine_id: str, conditions: Conditions, value: float, evidence: Any
    ) -> None:
        """Add what two identical arms differed by (relative); `evidence` is JSON-ready data."""
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"an A/A floor is a relative difference of 0 or more, not {value!r}")
        row = {"machine_id": machine_id, **conditions._asdict(), "value": float(value)}
        with self._writing() as connection:
            connection.execute(schema.aa_floor.insert().values(**row, evidence=to_json(evidence)))
            schema.revise(connection)

    def aa_floor(self, machine_id: str, conditions: Conditions) -> float | None:
        """The difference that identical arms seldom exceed here: the quantile of the newest
        observations (nearest rank); None if never observed."""
        table = schema.aa_floor
        same = {"machine_id": machine_id, **conditions._asdict()}
        newest = select(table.c.value).filter_by(**same).order_by(table.c.seq.desc()).limit(NEWEST)
        with self._reading() as connection:
            values = sorted(connection.scalars(newest))
        return float(values[math.ceil(QUANTILE * len(values)) - 1]) if values else None

    def aa_floors(self, machine_id: str) -> list[FloorSummary]:
        """Every A/A floor of a machine, by threads, allocator and step length."""
        table = schema.aa_floor
        by = [table.c[name] for name in Conditions._fields]
        query = select(*by, func.count()).where(table.c.machine_id == machine_id)
        with self._reading() as connection:
            rows = connection.execute(query.group_by(*by).order_by(*by)).all()
        found = []
        for *of, number in rows:
            value = self.aa_floor(machine_id, Conditions(*of))
            if value is not None:
                found.append(FloorSummary(Conditions(*of), value, min(number, NEWEST)))
        return found

    def save_calibration(self, calibration: Calibration) -> None:
        """Add a calibration; `ValueError` for what could not be read back."""
        self._add(schema.calibration, calibration, "id", "machine_id", "device", "created")

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest one of that device of that machine; None if there is none."""
        found = self._newest(Calibration, schema.calibration, machine_id, 1, device=device)
        return found[0] if found else None

    def calibrations(self, machine_id: str | None = None, limit: int = 20) -> list[Calibration]:
        """The newest first."""
        return self._newest(Calibration, schema.calibration, machine_id, limit)

    def save_doctor(self, report: DoctorReport) -> None:
        """Add a report of the doctor's; `ValueError` for what could not be read back."""
        self._add(schema.doctor, report, "id", "machine_id", "created")

    def doctor_reports(self, machine_id: str | None = None, limit: int = 20) -> list[DoctorReport]:
        """The newest first."""
        return self._newest(DoctorReport, schema.doctor, machine_id, limit)

    def _add(self, table: Table, record: object, *names: str) -> None:
        row = {name: getattr(record, name) for name in names}
        document = to_json(to_data(record))
        with self._writing() as connection:
            connection.execute(table.insert().values(**row, document=document))

    def _newest(
        self, kind: type[T], table: Table, machine_id: str | None, limit: int, **more: str
    ) -> list[T]:
        wanted = more if machine_id is None else {"machine_id": machine_id, **more}
        query = select(table.c.document).filter_by(**wanted).order_by(table.c.seq.desc())
        with self._reading() as connection:
            return [_read(kind, one) for one in connection.scalars(query.limit(limit))]

    def machines(self, limit: int = 200) -> list[MachineSummary]:
        """Every machine that a run, a calibration or the doctor speaks of; last seen first, and
        those that no run speaks of last."""
        seen = (func.min(run_fact.c.created_s), func.max(run_fact.c.created_s))
        with self._reading() as connection:
            rows = connection.execute(
                select(run_fact.c.machine_id, func.count(), *seen).group_by(run_fact.c.machine_id)
            )
            runs = {row[0]: tuple(row[1:]) for row in rows if row[0]}
            reports = _counted(connection, schema.doctor)
            calibrated = _counted(connection, schema.calibration)
            found = []
            for one in dict.fromkeys((*runs, *reports, *calibrated)):
                number, first, last = runs.get(one, (0, None, None))
                described = self._description(connection, one)
                counts = reports.get(one, 0), calibrated.get(one, 0)
                found.append(MachineSummary(one, described, number, first, last, *counts))
        found.sort(key=lambda machine: (-(machine.last_seen_s or 0.0), machine.id))
        return found[:limit]

    def _description(self, connection: Connection, machine_id: str) -> str:
        """As the newest run has it, else the doctor."""
        query = select(run_fact.c.machine).where(run_fact.c.machine_id == machine_id)
        found = connection.scalar(query.order_by(run_fact.c.at.desc()).limit(1))
        if found:
            return str(found)
        reports = self.doctor_reports(machine_id, 1)
        return reports[0].machine.get("model", "") if reports else ""

    def noise_history(self, machine_id: str, limit: int = 200) -> list[NoisePoint]:
        """What the doctor found the machine to be able to show: the newest reports, the oldest of
        them first."""
        return [
            NoisePoint(
                created=report.created,
                created_s=seconds_of(report.created),
                smallest_detectable=report.smallest_detectable,
                identical=report.identical.time_ratio if report.identical else None,
                fit=report.fit,
                doubts=tuple(
                    f.name for f in report.findings if f.level in (Level.WARN, Level.FAIL)
                ),
            )
            for report in reversed(self.doctor_reports(machine_id, limit))
        ]


def _counted(connection: Connection, table: Table) -> dict[str, int]:
    rows = connection.execute(select(table.c.machine_id, func.count()).group_by(table.c.machine_id))
    return {row[0]: row[1] for row in rows}


def _read(kind: type[T], document: str) -> T:
    try:
        return from_data(kind, json.loads(document))
    except (RecordError, TypeError, ValueError, RecursionError) as error:
        raise TorchstoneError(
            f"A stored {kind.__name__} cannot be read: {error}.",
            "Measure it again with `torchstone doctor --calibrate`.",
        ) from None
