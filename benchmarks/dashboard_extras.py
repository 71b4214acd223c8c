"""What pages show beside runs, made up like the history: a machine's roofs and noise, profiles."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from dashboard_history import MACHINE, MACHINE_ID, Shape
from view_cost import write_counted

from torchstone.profile import read_profile
from torchstone.records import Calibration, DoctorReport, Estimate, Finding, Level, Peak
from torchstone.store import Store

PROFILES = 3
FUNCTIONS = 2_000
"""Of a profile: what cProfile counts in a training step of a large model."""
FLOORS = {"under 1 ms": 0.021, "1-10 ms": 0.008, "10-100 ms": 0.006}


def add_extras(store: Store, shape: Shape, results: list[str]) -> None:
    """Add what is missing; profiles are those of the results, one each."""
    if not store.calibrations(MACHINE_ID, 1):
        store.save_calibration(_calibration(shape))
        for name, value in FLOORS.items():
            store.remember_aa_floor(MACHINE_ID, 1, name, value, {"synthetic": True})
    known = {one.id: one.reports for one in store.machines()}
    for night in range(known.get(MACHINE_ID, 0), shape.nights):
        store.save_doctor(_report(shape, night))
    have = len(store.list_profiles(PROFILES))
    for number, result in enumerate(results[:PROFILES]):
        if number >= have:
            _add_profile(store, number, result)


def _calibration(shape: Shape) -> Calibration:
    return Calibration(
        id="synthetic-calibration",
        machine_id=MACHINE_ID,
        fingerprint="synthetic",
        created=shape.newest,
        device_name=MACHINE,
        compute=tuple(Peak(9e10 * n, 0.02, 30, "float32", n) for n in (1, 2, 4, 8)),
        bandwidth=tuple(Peak(2e10 * n, 0.04, 20, threads=n, level="DRAM") for n in (1, 8)),
        clock=Peak(2.8e9, 0.01, 10),
        costs={"dispatch": Peak(2.1e-6, 0.1, 100)},
        notes=("synthetic: nothing was measured",),
    )


def _report(shape: Shape, night: int) -> DoctorReport:
    rng = np.random.default_rng([shape.seed, 4, night])
    made = datetime.fromisoformat(shape.newest) - timedelta(days=shape.nights - 1 - night)
    ratio, smallest = float(1 + rng.normal(0, 0.004)), float(0.012 + rng.gamma(1.5, 0.003))
    load = Finding("load", Level.WARN, "synthetic: 1.7 of 8 cores are busy.", remedy="Stop it.")
    return DoctorReport(
        id=f"synthetic-report-{night:05d}",
        machine_id=MACHINE_ID,
        created=made.isoformat(timespec="seconds"),
        findings=(
            Finding("governor", Level.OK, "synthetic: the governor is performance."),
            *((load,) if rng.random() < 0.1 else ()),
        ),
        identical=Estimate("floor", ratio, (ratio - 0.008, ratio + 0.008), 0.95, 4),
        smallest_detectable=smallest,
        calibration="synthetic-calibration",
        machine={"model": MACHINE},
    )


def _add_profile(store: Store, number: int, result: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "synthetic.prof"
        write_counted(file, FUNCTIONS, number)
        made = read_profile(file)
    named = replace(made, id=f"synthetic-profile-{number}", label="synthetic: counted program")
    store.save_profile(named, result)
