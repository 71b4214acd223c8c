"""The store's part on machines: what they can do, and how noisy they were."""

from __future__ import annotations

from typing import Any

from torchstone.records import Calibration, Conditions, DoctorReport
from torchstone.store import floors, machines, schema
from torchstone.store.base import Base
from torchstone.store.floors import FloorSummary
from torchstone.store.machines import MachineSummary, NoisePoint


class MachinesPart(Base):
    """Calibrations, the doctor's reports, A/A floors."""

    def remember_aa_floor(
        self, machine_id: str, conditions: Conditions, value: float, evidence: Any
    ) -> None:
        """Add what two identical arms differed by (relative); `evidence` is JSON-ready data."""
        with self._writing() as connection:
            floors.remember(connection, machine_id, conditions, value, evidence)
            schema.revise(connection)

    def aa_floor(self, machine_id: str, conditions: Conditions) -> float | None:
        """The difference that identical arms seldom exceed here; None if never observed."""
        with self._reading() as connection:
            return floors.floor(connection, machine_id, conditions)

    def aa_floors(self, machine_id: str) -> list[FloorSummary]:
        """Every A/A floor of a machine, by threads, allocator and step length."""
        with self._reading() as connection:
            return floors.of_machine(connection, machine_id)

    def save_calibration(self, calibration: Calibration) -> None:
        """Add a calibration."""
        with self._writing() as connection:
            machines.save_calibration(connection, calibration)

    def calibration(self, machine_id: str, device: str = "cpu") -> Calibration | None:
        """The newest one of that device of that machine; None if there is none."""
        with self._reading() as connection:
            return machines.newest_calibration(connection, machine_id, device)

    def calibrations(self, machine_id: str | None = None, limit: int = 20) -> list[Calibration]:
        """The newest first."""
        with self._reading() as connection:
            return machines.calibrations(connection, machine_id, limit)

    def save_doctor(self, report: DoctorReport) -> None:
        """Add a report of the doctor's."""
        with self._writing() as connection:
            machines.save_doctor(connection, report)

    def doctor_reports(self, machine_id: str | None = None, limit: int = 20) -> list[DoctorReport]:
        """The newest first."""
        with self._reading() as connection:
            return machines.doctor_reports(connection, machine_id, limit)

    def machines(self, limit: int = 200) -> list[MachineSummary]:
        """Every machine that a run, a calibration or the doctor speaks of; last seen first."""
        with self._reading() as connection:
            return machines.summaries(connection, limit)

    def noise_history(self, machine_id: str, limit: int = 200) -> list[NoisePoint]:
        """What the doctor found the machine to be able to show, the oldest first."""
        with self._reading() as connection:
            return machines.noise_history(connection, machine_id, limit)
