"""A small database of runs for the tests of the dashboard, made through the store's own methods."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.explain.ledger_synthetic import ledger
from tests.show import synthetic_profile, synthetic_result
from tests.show.synthetic_result import HOSTILE
from tests.show.synthetic_run import bad, key, ok, target
from torchstone.explain.findings.base import with_findings
from torchstone.explain.findings.python import sleep
from torchstone.records import (
    Calibration,
    CaseKey,
    CaseMetrics,
    DoctorReport,
    Estimate,
    Finding,
    GitState,
    LedgerPart,
    Level,
    Outcome,
    Peak,
    PlannedCase,
    Result,
    Run,
)
from torchstone.store import Store, open_store

START = datetime(2026, 11, 1, 2, 0, tzinfo=timezone.utc)
MACHINE = "m-0123"
PROCESSOR = "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz"
SUITES = {
    "huggingface": ("AlbertForMaskedLM", "BertForMaskedLM", "GoogleFnet", "T5Small"),
    "timm": ("ghostnet_100", "mobilenetv3_large_100", "resnet18"),
}
VARIANTS = ("inductor", "inductor+dynamic")
MODES = ("inference", "training")
NIGHTS = 6
SLOWED = "BertForMaskedLM"
"""Its compiled step takes a third more from the last night on."""
BROKEN = "GoogleFnet"
"""It crashes from the fourth night on, in training under inductor."""
FIRST_BAD = 3
SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'


def keys(suites: Iterable[str] = SUITES) -> list[CaseKey]:
    return [
        key(model, suite=suite, mode=mode, variant=variant)
        for suite in suites
        for model in SUITES[suite]
        for mode in MODES
        for variant in VARIANTS
    ]


def make_run(night: int, cases: Sequence[CaseKey], **changes: Any) -> Run:
    made = Run(
        id=f"night{night:02d}x",
        created=(START + timedelta(days=night)).isoformat(),
        command=("torchstone", "run", "huggingface", "timm"),
        plan=tuple(PlannedCase(one, target(one)) for one in cases),
        label=f"nightly-{night}",
        machine_id=MACHINE,
        machine=PROCESSOR,
        torch="2.13.0+cpu",
        git=GitState(f"{night:02x}c0ffee" * 5, "main", False),
        tier="quick",
        method=synthetic_result.method(),
        notes=("one thread, because this machine has 2 cores",),
        version="0.1.0",
    )
    return replace(made, **changes)


def metrics_of(one: CaseKey, night: int) -> CaseMetrics:
    """Steady, with a little noise, and the two changes that the tests look for."""
    broken = (one.model, one.mode, one.variant) == (BROKEN, "training", "inductor")
    if broken and night >= FIRST_BAD:
        return bad(one, Outcome.CRASH, "first call: the worker died of SIGSEGV")
    rng = random.Random(f"{one.name} {night}")
    own = random.Random(one.model)
    speedup = math.exp(own.uniform(0.05, 0.5)) * math.exp(rng.gauss(0, 0.003))
    base = own.uniform(3e6, 9e7) * math.exp(rng.gauss(0, 0.004))
    if one.model == SLOWED and night == NIGHTS - 1:
        speedup /= 1.33
    changes: dict[str, Any] = {
        "base_ns": base,
        "new_ns": base / speedup,
        "compile_cold_ns": int(own.uniform(8e9, 3e10) * math.exp(rng.gauss(0, 0.02))),
        "new_tensor_bytes": int(own.uniform(150, 260) * 2**20),
        "result_id": "",
    }
    if one.model == "ghostnet_100":
        changes |= {"worst_check": Level.WARN, "checks": ("noise",), "graph_breaks": 2}
    return ok(one, speedup, speedup * 0.006, **changes)


def add_night(store: Store, night: int, cases: Sequence[CaseKey], until: int | None = None) -> Run:
    """A run with its cases; the first one of each suite has a result with samples."""
    run = make_run(night, cases)
    store.begin_run(run)
    seen: set[str] = set()
    plain: list[tuple[int, CaseMetrics]] = []
    for place, one in enumerate(cases[:until]):
        figures = replace(metrics_of(one, night), result_id="")
        if one.suite in seen or figures.outcome is not Outcome.OK:
            plain.append((place, figures))
            continue
        seen.add(one.suite)
        made = synthetic_result.two_faster()
        result = replace(made, id=f"r{night:02d}{place:03d}", kind="case", created=run.created)
        store.add_cases(run.id, result, [(place, replace(figures, result_id=result.id))])
    store.add_cases(run.id, None, plain)
    return run


def add_run(
    store: Store,
    run: Run,
    night: int,
    change: Callable[[CaseMetrics], CaseMetrics] = lambda figures: figures,
    until: int | None = None,
) -> Run:
    """A run of that night's figures without samples, each of them as `change` leaves it."""
    store.begin_run(run)
    plan = [one.key for one in run.plan][:until]
    cases = [change(replace(metrics_of(one, night), result_id="")) for one in plan]
    store.add_cases(run.id, None, list(enumerate(cases)))
    return run


def add_machine(store: Store) -> None:
    store.save_calibration(
        Calibration(
            id="cal1",
            machine_id=MACHINE,
            fingerprint="f",
            created=START.isoformat(),
            device_name="Xeon",
            compute=(Peak(9.3e10, 0.02, 30, "float32", 1), Peak(1.8e11, 0.02, 30, "float32", 2)),
            bandwidth=(Peak(2.1e10, 0.04, 20, threads=1, level="DRAM"),),
            clock=Peak(2.8e9, 0.01, 10),
            costs={"dispatch": Peak(2.1e-6, 0.1, 100)},
        )
    )
    for day in range(4):
        store.save_doctor(
            DoctorReport(
                id=f"doc{day}",
                machine_id=MACHINE,
                created=(START + timedelta(days=day)).isoformat(),
                findings=(
                    Finding("governor", Level.OK, "The governor is performance."),
                    Finding("load", Level.WARN, "Load is 1.4.", remedy="Stop other programs."),
                ),
                identical=Estimate("floor", 1.0 + 0.001 * day, (0.99, 1.02), 0.95, 4),
                smallest_detectable=0.012 + 0.002 * day,
                machine={"model": PROCESSOR},
            )
        )


def add_profiles(store: Store) -> None:
    """One of the compiled arm of every result that `add_night` stores, as `profile` keeps it."""
    measured = synthetic_result.two_faster().arms[1]
    assert measured.environment is not None
    of_arm = {"arm": measured.arm, "machine_id": measured.environment.machine_id}
    store.save_profile(replace(synthetic_profile.full(), id="prof1", **of_arm))


def add_ledgers(store: Store, result: Result, name: str = "") -> None:
    """One of each arm, with a finding; names as they are given."""
    for number, measured in enumerate(result.arms):
        made = ledger(
            {"interpreter": 0.2, "kernels": 0.4, "sleep": 0.35},
            arm=measured.arm,
            environment=measured.environment,
            checks=(name or "The thread waited for a core.",),
        )
        parts = (LedgerPart(name or "aten::mm", 3e-3, 3),)
        lines = tuple(replace(line, parts=parts) for line in made.lines)
        made = with_findings(replace(made, lines=lines, id=f"led{number}{result.id}"), [sleep])
        store.save_ledger(replace(made, created=START.isoformat()))


def make_database(path: Path, nights: int = NIGHTS) -> Path:
    """Nightly runs of two suites, a machine, a profile."""
    cases = keys()
    with open_store(str(path)) as store:
        for night in range(nights):
            add_night(store, night, cases)
        add_machine(store)
        add_profiles(store)
        add_ledgers(store, synthetic_result.two_faster())
    return path


def make_hostile(path: Path) -> Path:
    """Names that would like to be something else, wherever a name can stand."""
    formula = "=cmd|' /C calc'!A0"
    names = (SCRIPT, formula, "long" * 75, "a/b/../c?d#e&f", IMAGE, "..")
    cases = [
        key(name, suite=names[place % len(names)], variant=names[-1 - place % len(names)])
        for place, name in enumerate(names)
    ]
    failing = [key(f"{name}-x") for name in names]
    with open_store(str(path)) as store:
        for night in range(2):
            run = make_run(
                night,
                [*cases, *failing],
                id=f"evil{night}",
                label=names[0],
                machine=names[-1],
                machine_id=names[-1],
                torch=formula,
                git=GitState(names[0], names[0], True),
                notes=(*names, *HOSTILE),
                command=(*names, *HOSTILE),
                tier=names[0],
            )
            store.begin_run(run)
            doubtful = {"checks": (names[0],), "worst_check": Level.FAIL, "result_id": ""}
            passed = [ok(one, **doubtful) for one in cases]
            died = [bad(one, Outcome.CRASH, names[0] * 3, names[-1]) for one in failing]
            ended = [*passed, *(replace(one, result_id="") for one in died)]
            store.add_cases(run.id, None, list(enumerate(ended)))
        hostile = replace(synthetic_result.hostile(), id="evilresult")
        store.save(hostile)
        add_ledgers(store, hostile, SCRIPT)
        store.save_profile(replace(synthetic_profile.hostile(), id="evilprofile"))
    return path
