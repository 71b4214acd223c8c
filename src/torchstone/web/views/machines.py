"""Machines that measured: what they can do, and how noisy they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.records import Calibration, DoctorReport, Peak, Selection
from torchstone.records.format import format_percent, format_seconds
from torchstone.show.rows import processor_name
from torchstone.show.svg import format_si
from torchstone.show.table import sanitise
from torchstone.store.machines import NoisePoint
from torchstone.web.cells import (
    LEVEL_MARKS,
    commit_cell,
    cut,
    number_cell,
    run_cell,
    state_cell,
    text_cell,
    when,
    when_s,
)
from torchstone.web.page import (
    Cell,
    Chart,
    Code,
    Column,
    Facts,
    Group,
    Link,
    Notice,
    Page,
    Point,
    Section,
    Series,
    Table,
)
from torchstone.web.query import NotFound, Query, shown
from torchstone.web.sources import DataAccess

NEWEST_RUNS = 20
NEWEST_REPORTS = 200
"""Of the doctor, in the charts of noise."""
MACHINES = (
    Column("machine", "Machine"),
    Column("id", "Id"),
    Column("runs", "Runs", True),
    Column("first_seen", "First seen"),
    Column("last_seen", "Last seen"),
    Column("calibrations", "Calibrations", True),
    Column("reports", "Doctor's reports", True),
)
ROOFS = (
    Column("roof", "Roof"),
    Column("value", "Measured", True),
    Column("threads", "Threads", True),
    Column("spread", "Spread", True, help="How far the median lies under the best"),
    Column("source", "DataAccess"),
)
FINDINGS = (
    Column("level", "Level"),
    Column("name", "Looked at"),
    Column("message", "Found"),
    Column("remedy", "What helps"),
)
FLOORS = (
    Column("step", "Step"),
    Column("threads", "Threads", True),
    Column("allocator", "Allocator"),
    Column("value", "Identical programs differ by", True),
    Column("observations", "Observations", True),
)
RUNS = (Column("run", "Run"), Column("state", "State"), Column("commit", "Commit"))
CALIBRATE = "torchstone doctor --calibrate"


def machines(source: DataAccess, query: Query) -> Page:
    """Last seen first."""
    rows = tuple(
        (
            text_cell(processor_name(one.description) or "?", Link("machine", one.id)),
            text_cell(one.id, longest=20),
            number_cell(one.runs),
            Cell(one.first_seen_s, when_s(one.first_seen_s)),
            Cell(one.last_seen_s, when_s(one.last_seen_s)),
            number_cell(one.calibrations),
            number_cell(one.reports),
        )
        for one in source.store.machines()
    )
    empty = "No machine is known yet. Run `torchstone doctor`, or a suite."
    table = Table("machines", "", MACHINES, rows, empty=empty, total=len(rows))
    return Page("machines", "Machines", (table,), params=query.params)


def machine(source: DataAccess, query: Query, ident: str) -> Page:
    """One machine: peaks, what its noise lets be seen, and the doctor's last report."""
    known = {one.id: one for one in source.store.machines()}
    if ident not in known:
        raise NotFound(f"There is no machine {shown(ident)} in this database.")
    one = known[ident]
    calibrations = source.store.calibrations(ident)
    reports = source.store.doctor_reports(ident, 1)
    items = (
        ("Id", text_cell(one.id)),
        ("Described as", text_cell(one.description, longest=160)),
        ("Runs", number_cell(one.runs)),
        ("First seen", Cell(one.first_seen_s, when_s(one.first_seen_s))),
        ("Last seen", Cell(one.last_seen_s, when_s(one.last_seen_s))),
    )
    sections: list[Section] = [
        Facts("machine", "", items),
        *_noise(source.store.noise_history(ident, NEWEST_REPORTS + 1)),
        _floors(source, ident),
        *_doctor(reports),
        *_calibration(calibrations),
        _runs(source, ident),
    ]
    return Page(
        "machine",
        cut(sanitise(processor_name(one.description) or one.id), 80),
        tuple(sections),
        ident=ident,
        crumbs=(("Machines", Link("machines")),),
        params=query.params,
    )


def _noise(found: Sequence[NoisePoint]) -> Iterable[Section]:
    points = found[-NEWEST_REPORTS:]
    left = len(found) > len(points)
    note = f"Only the newest {NEWEST_REPORTS} reports are drawn." if left else ""
    seen = tuple(
        Point(point.created_s, point.smallest_detectable, note=when(point.created))
        for point in points
        if point.created_s is not None
    )
    identical = tuple(
        Point(point.created_s, point.identical, note=when(point.created))
        for point in points
        if point.created_s is not None
    )
    empty = "The doctor has not looked yet: torchstone doctor."
    charts = (
        Chart(
            "smallest_detectable",
            "Smallest difference to be seen",
            "share",
            (Series("smallest difference", seen),),
            empty=empty,
        ),
        Chart(
            "identical",
            "Two identical programs, time ratio",
            "ratio",
            (Series("ratio", identical),),
            empty=empty,
        ),
    )
    yield Group("Noise over time", charts, grid=True, note=note)


def _floors(source: DataAccess, ident: str) -> Table:
    rows = tuple(
        (
            text_cell(one.conditions.step_class),
            number_cell(one.conditions.threads),
            text_cell(one.conditions.allocator),
            Cell(one.value, format_percent(one.value)),
            number_cell(one.observations),
        )
        for one in source.store.aa_floors(ident)
    )
    empty = "Identical programs were not measured here yet."
    note = "No verdict is given for a difference below this." if rows else ""
    return Table("floors", "What is believed here", FLOORS, rows, note, empty, total=len(rows))


def _doctor(reports: Sequence[DoctorReport]) -> Iterable[Section]:
    if not reports:
        yield Notice("No report of the doctor is stored.", remedy="Make one: torchstone doctor.")
        return
    report = reports[0]
    rows = tuple(
        (
            Cell(one.level.value, one.level.value, mark=LEVEL_MARKS[one.level]),
            text_cell(one.name),
            text_cell(one.message, longest=300),
            text_cell(one.remedy, longest=300),
        )
        for one in report.findings
    )
    title = f"The doctor on {when(report.created)}"
    yield Table("doctor", title, FINDINGS, rows, total=len(rows))
    fixes = "\n".join(sanitise(fix) for one in report.findings for fix in one.fixes)
    if fixes:
        yield Code("fixes", "Commands that would help", fixes)


def _calibration(calibrations: Sequence[Calibration]) -> Iterable[Section]:
    if not calibrations:
        yield Notice("The machine's peaks are not measured.", remedy=f"Measure them: {CALIBRATE}.")
        return
    newest = {one.device: one for one in reversed(calibrations)}
    for device, one in newest.items():
        title = f"Calibration of {sanitise(one.device_name or device)}, {when(one.created)}"
        rows = tuple(_ceilings(one))
        note = " ".join(sanitise(note) for note in one.notes)
        name = f"calibration-{sanitise(device).replace(':', '-')}"
        yield Table(name, title, ROOFS, rows, note, total=len(rows))


def _ceilings(one: Calibration) -> Iterable[tuple[Cell, ...]]:
    for peak in one.compute:
        yield _roof(f"{peak.dtype}{' sparse' if peak.sparse else ''}", peak, "FLOP/s")
    for peak in one.bandwidth:
        yield _roof(peak.level, peak, "B/s")
    if one.clock is not None:
        yield _roof("clock", one.clock, "Hz")
    for name, peak in one.costs.items():
        yield _roof(name, peak, "")


def _roof(name: str, peak: Peak, unit: str) -> tuple[Cell, ...]:
    told = format_si(peak.value, unit) if unit else format_seconds(peak.value, 3)
    return (
        text_cell(name),
        Cell(peak.value, told),
        number_cell(peak.threads or None),
        Cell(peak.spread, format_percent(peak.spread) if peak.samples else ""),
        text_cell(peak.source),
    )


def _runs(source: DataAccess, ident: str) -> Table:
    heads = source.heads(Selection(machine_id=ident), NEWEST_RUNS)
    rows = tuple((run_cell(head), state_cell(head), commit_cell(head)) for head in heads)
    return Table("runs", "Newest runs", RUNS, rows, total=len(rows))
