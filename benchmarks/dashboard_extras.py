"""What pages show beside nights, made up like the history: a machine's peaks and noise, profiles,
and the branches of pull requests, which fill droplists."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from dashboard_history import BRANCHES, MACHINE, MACHINE_ID, History, Shape, run_of
from view_cost import write_counted

from torchstone.profile import read_profile
from torchstone.records import (
    Calibration,
    CaseMetrics,
    Conditions,
    DoctorReport,
    Estimate,
    Finding,
    GitState,
    Level,
    Outcome,
    Peak,
)
from torchstone.store import BulkRun, Store

PROFILES = 3
FUNCTIONS = 2_000
"""Of a profile: what cProfile counts in a training step of a large model."""
BRANCHES_A_NIGHT = 0.4
"""So that two years have a few hundred."""
FLOORS = {"under 1 ms": 0.021, "1-10 ms": 0.008, "10-100 ms": 0.006}


def are_there(store: Store, shape: Shape) -> bool:
    """Whether `add_extras` has nothing left to do, but for profiles that have no result."""
    return bool(store.list_profiles(1)) and _branches(store, shape) == _wanted_branches(shape)


def add_extras(store: Store, shape: Shape, results: list[str]) -> None:
    """Add what is missing; profiles are those of the results, one each."""
    _add_branches(store, shape)
    if not store.calibrations(MACHINE_ID, 1):
        store.save_calibration(_calibration(shape))
        for name, value in FLOORS.items():
            store.remember_aa_floor(
                MACHINE_ID, Conditions(1, "default", name), value, {"synthetic": True}
            )
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
    measured = store.load(result).arms[-1]
    machine = measured.environment.machine_id if measured.environment else ""
    store.save_profile(replace(named, arm=measured.arm, machine_id=machine))


def _add_branches(store: Store, shape: Shape) -> None:
    """A short run on a branch of its own, at noon after every so manieth night; never after the
    last one, which is to stay the newest."""
    history = History(replace(shape, raw_nights=0))
    plan = history.plan[: shape.variants]
    made = []
    for number in range(_branches(store, shape), _wanted_branches(shape)):
        night = int(number / BRANCHES_A_NIGHT)
        whole = run_of(history, night)
        noon = datetime.fromisoformat(whole.created) + timedelta(hours=10)
        run = replace(
            whole,
            id=f"{BRANCHES}{number:05d}",
            created=noon.isoformat(timespec="seconds"),
            plan=plan,
            label=f"synthetic pull request {number}",
            git=GitState(f"{number:08x}" * 5, f"synthetic/pull-{number:05d}", False),
        )
        cases = [(at, CaseMetrics(one.key, Outcome.OK, speedup=1.2)) for at, one in enumerate(plan)]
        made.append(BulkRun(run, tuple(cases)))
    store.add_runs_in_bulk(made)


def _wanted_branches(shape: Shape) -> int:
    return int((shape.nights - 1) * BRANCHES_A_NIGHT)


def _branches(store: Store, shape: Shape) -> int:
    heads = store.run_heads(limit=10 * shape.nights)
    return sum(head.id.startswith(BRANCHES) for head in heads)
