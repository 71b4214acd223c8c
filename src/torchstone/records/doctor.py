"""What the doctor found about a machine as a place to measure on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records.check import Level
from torchstone.records.comparison import Estimate

DOCTOR_SCHEMA = 1


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, its figure, and what would help.

    `level` is ok, note (worth knowing, or not to be seen here), warn or fail. `fixes` are commands
    that would help; the doctor prints them and never runs them.
    """

    name: str
    level: Level
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    remedy: str = ""
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DoctorReport:
    """All findings at one time. `identical` is the ratio of two identical arms measured for a few
    seconds; `smallest_detectable` is the smallest difference that such a run could have shown."""

    id: str
    machine_id: str
    created: str
    findings: tuple[Finding, ...]
    identical: Estimate | None = None
    smallest_detectable: float | None = None
    calibration: str = ""
    """The id of the calibration in force, empty where there is none."""
    machine: Mapping[str, str] = field(default_factory=dict)
    schema: int = DOCTOR_SCHEMA

    @property
    def fit(self) -> bool:
        """Whether figures measured here, now, can be believed."""
        return all(finding.level is not Level.FAIL for finding in self.findings)
