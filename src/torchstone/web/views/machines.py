"""Machines that measured: what they can do, and how noisy they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.records import Calibration, DoctorReport, Finding, Peak, RunHead, Selection
from torchstone.records.format import format_percent, format_seconds, format_si
from torchstone.show.cells import (
    commit_cell,
    cut,
    level_cell,
    number_cell,
    run_cell,
    state_cell,
    text_cell,
    when,
    when_s,
)
from torchstone.show.page import (
    Cell,
    Chart,
    Code,
    Facts,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Point,
    Section,
    Series,
    Table,
    field,
    make_table,
)
from torchstone.show.rows import processor_name
from torchstone.show.table import sanitise
from torchstone.store.machines import FloorSummary, MachineSummary, NoisePoint
from torchstone.web.query import NotFound, Query, shown
from torchstone.web.sources import DataAccess

NEWEST_RUNS = 20
NEWEST_REPORTS = 200
"""Of the doctor, in the charts of noise."""
_LONG = 300
"""Characters of a finding's sentence."""
MACHINES: tuple[Field[MachineSummary], ...] = (
    field(
        "machine",
        "Machine",
        lambda m: text_cell(processor_name(m.description) or "?", Link("machine", m.id)),
    ),
    field("id", "Id", lambda m: text_cell(m.id, longest=20)),
    field("runs", "Runs", lambda m: number_cell(m.runs), True),
    field("first_seen", "First seen", lambda m: Cell(m.first_seen_s, when_s(m.first_seen_s))),
    field("last_seen", "Last seen", lambda m: Cell(m.last_seen_s, when_s(m.last_seen_s))),
    field("calibrations", "Calibrations", lambda m: number_cell(m.calibrations), True),
    field("reports", "Machine checks", lambda m: number_cell(m.reports), True),
)
PEAKS: tuple[Field[tuple[str, Peak, str]], ...] = (
    field("roof", "Peak", lambda p: text_cell(p[0])),
    field("value", "Measured", lambda p: _value(p[1].value, p[2]), True),
    field("threads", "Threads", lambda p: number_cell(p[1].threads or None), True),
    field(
        "spread",
        "Spread",
        lambda p: Cell(p[1].spread, format_percent(p[1].spread) if p[1].samples else ""),
        True,
        help="How far the median lies under the best",
    ),
    field("source", "Source", lambda p: text_cell(p[1].source)),
)
FINDINGS: tuple[Field[Finding], ...] = (
    field("level", "Level", lambda f: level_cell(f.level)),
    field("name", "Looked at", lambda f: text_cell(f.name)),
    field("message", "Found", lambda f: text_cell(f.message, longest=_LONG)),
    field("remedy", "What helps", lambda f: text_cell(f.remedy, longest=_LONG)),
)
FLOORS: tuple[Field[FloorSummary], ...] = (
    field("step", "Step", lambda f: text_cell(f.conditions.step_class)),
    field("threads", "Threads", lambda f: number_cell(f.conditions.threads), True),
    field("allocator", "Allocator", lambda f: text_cell(f.conditions.allocator)),
    field(
        "value",
        "Identical programs differ by",
        lambda f: Cell(f.value, format_percent(f.value)),
        True,
    ),
    field("observations", "Observations", lambda f: number_cell(f.observations), True),
)
RUNS: tuple[Field[RunHead], ...] = (
    field("run", "Run", run_cell),
    field("state", "State", state_cell),
    field("commit", "Commit", commit_cell),
)
CALIBRATE = "torchstone doctor --calibrate"


def machines(source: DataAccess, query: Query) -> Page:
    """Last seen first."""
    empty = "No machine is known yet. Run `torchstone doctor`, or a suite."
    table = make_table("machines", "", MACHINES, source.store.machines(), empty=empty)
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
        _runs(source, one),
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
    empty = "No machine check is stored; run `torchstone doctor`."
    charts = (
        Chart(
            "smallest_detectable",
            "Smallest detectable difference",
            "share",
            (Series("smallest difference", seen),),
            empty=empty,
            better="lower",
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
    found = source.store.aa_floors(ident)
    empty = "Identical programs were not measured here yet."
    note = "No verdict is given for a difference below this." if found else ""
    title = "Noise limits of this machine"
    return make_table("floors", title, FLOORS, found, note=note, empty=empty)


def _doctor(reports: Sequence[DoctorReport]) -> Iterable[Section]:
    if not reports:
        yield Notice("No machine check is stored.", remedy="Make one: torchstone doctor.")
        return
    report = reports[0]
    title = f"Machine check of {when(report.created)}"
    yield make_table("doctor", title, FINDINGS, report.findings)
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
        note = " ".join(sanitise(note) for note in one.notes)
        name = f"calibration-{sanitise(device).replace(':', '-')}"
        yield make_table(name, title, PEAKS, list(_peaks(one)), note=note)


def _peaks(one: Calibration) -> Iterable[tuple[str, Peak, str]]:
    """By name, with the unit."""
    for peak in one.compute:
        yield f"{peak.dtype}{' sparse' if peak.sparse else ''}", peak, "FLOP/s"
    for peak in one.bandwidth:
        yield peak.level, peak, "B/s"
    if one.clock is not None:
        yield "clock", one.clock, "Hz"
    for name, peak in one.costs.items():
        yield name, peak, ""


def _value(value: float, unit: str) -> Cell:
    return Cell(value, format_si(value, unit) if unit else format_seconds(value, 3))


def _runs(source: DataAccess, one: MachineSummary) -> Table:
    heads = source.heads(Selection(machine_id=one.id), NEWEST_RUNS)
    note = f"The newest {len(heads)} of {one.runs:,} runs." if len(heads) < one.runs else ""
    return make_table("runs", "Newest runs", RUNS, heads, note=note)
