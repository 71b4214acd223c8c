"""Years of nightly runs, made up: a database for the dashboard to be measured on.

Everything in it is synthetic and says so: the runs' label and origin, the machine's name, the
reasons of failures. Speed-ups drift, step and recover, nights are noisy together, cases fail for a
night, for a week or for good. The same seed gives the same history.

    python benchmarks/dashboard_history.py history.db --nights 730
    python benchmarks/dashboard_history.py history.db --queries
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
from dashboard_samples import RawNights

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    GitState,
    Level,
    Method,
    Outcome,
    PlannedCase,
    Run,
)
from torchstone.stats import decide
from torchstone.store import Store, open_store
from torchstone.store.case_rows import BulkRun

ORIGIN = "synthetic history (benchmarks/dashboard_history.py)"
MACHINE = "synthetic machine, 8 cores that do not exist"
MACHINE_ID = "5e17" * 4
SUITES = ("huggingface", "timm", "torchbench")
VARIANTS = (
    "inductor",
    "inductor+dynamic",
    "inductor+max-autotune",
    "inductor+freezing",
    "aot_eager",
    "cudagraphs",
    "export",
    "aoti",
)
MODES = ("inference", "training")
MARGIN = 0.02
REASONS = (
    "synthetic: first call: BackendCompilerFailed: lowering is not there",
    "synthetic: output-check: error 0.031 where 0.002 is allowed",
    "synthetic: build: killed (out of memory)",
    "synthetic: timed turn: no answer for 60 s",
)
FAILED = (Outcome.ERROR, Outcome.WRONG_ANSWER, Outcome.OOM, Outcome.TIMEOUT)
BREAKS = ("synthetic: call to a function that the compiler skips",)
NIGHTS_OF_A_TORCH = 90
WRITERS = "synthetic-writer-"
"""How the ids of runs begin that a benchmark writes while others read."""
BRANCHES = "synthetic-branch-"
"""How the ids of runs of pull requests begin (`dashboard_extras`)."""


@dataclass(frozen=True)
class Shape:
    """How much history."""

    nights: int = 730
    models: int = 60
    variants: int = 8
    raw_nights: int = 30
    """So many of the newest nights have raw samples."""
    seed: int = 0
    newest: str = "2026-11-15T02:00:00+00:00"

    @property
    def cases(self) -> int:
        """Of one night."""
        return len(SUITES) * self.models * self.variants * len(MODES)


class History:
    """What does not change from night to night: the plan, and the character of each series."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.plan = tuple(_plan(shape))
        rng = np.random.default_rng([shape.seed, 1])
        cases = len(self.plan)
        self.base_ns = np.exp(rng.normal(np.log(2e7), 1.0, cases))
        self.log_speedup = rng.normal(0.25, 0.22, cases)
        self.error = np.exp(rng.normal(np.log(0.004), 0.4, cases))
        self.peak = np.exp(rng.normal(np.log(6e8), 0.8, cases))
        self.memory = np.exp(rng.normal(-0.03, 0.12, cases))
        self.cold_ns = np.exp(rng.normal(np.log(2.5e10), 0.5, cases))
        self.breaks = np.where(rng.random(cases) < 0.2, rng.integers(1, 6, cases), 0)
        self.broken = rng.random(cases) < 0.03  # for good
        self.unsupported = rng.random(cases) < 0.02
        self.flaky = np.where(rng.random(cases) < 0.05, 0.08, 0.001)
        self.kind = rng.integers(0, len(FAILED), cases)
        self._steps(rng, cases)
        self.raw = RawNights(shape.seed)

    def _steps(self, rng: np.random.Generator, cases: int) -> None:
        """Nights at which a change made some cases slower or faster, or broke them for a while."""
        nights, number = self.shape.nights, max(2, self.shape.nights // 20)
        self.step_night = rng.integers(0, nights, number)
        self.step_size = rng.normal(0.0, 0.05, number)
        self.step_cases = rng.random((number, cases)) < rng.uniform(0.005, 0.15, (number, 1))
        self.outage_night = rng.integers(0, nights, number)
        self.outage_length = rng.integers(1, 15, number)
        self.outage_cases = rng.random((number, cases)) < 0.01

    def log_speedup_at(self, night: int) -> np.ndarray:
        """The true log speed-ups of a night."""
        past = (self.step_night <= night) * self.step_size
        slow = 0.02 * np.sin(2 * np.pi * night / 365 + np.arange(len(self.plan)))
        return self.log_speedup + past @ self.step_cases + slow

    def failing_at(self, night: int, rng: np.random.Generator) -> np.ndarray:
        """Which cases fail in a night."""
        out = (self.outage_night <= night) & (night < self.outage_night + self.outage_length)
        return self.broken | (out @ self.outage_cases) | (rng.random(len(self.plan)) < self.flaky)


def _plan(shape: Shape) -> Iterator[PlannedCase]:
    for suite in SUITES:
        for i in range(shape.models):
            for mode in MODES:
                for variant in VARIANTS[: shape.variants]:
                    model = f"Synthetic{suite.title()}{i:02d}"
                    key = CaseKey(suite, model, "small", mode, "fp32", variant, "cpu", 1)
                    yield PlannedCase(key, f"{suite}:{model}@small")


def nights(shape: Shape, first: int = 0) -> Iterator[BulkRun]:
    """Every night from that one on, the oldest first."""
    history = History(shape)
    for night in range(first, shape.nights):
        yield one_night(history, night)


def one_night(history: History, night: int) -> BulkRun:
    """A run with all its cases and, if it is new enough, their samples."""
    shape = history.shape
    run = run_of(history, night)
    rng = np.random.default_rng([shape.seed, 2, night])
    results = ()
    if night >= shape.nights - shape.raw_nights:
        results = tuple(history.raw.results(run, rng))
    result_of = {at: one.result.id for one in results for at in one.positions}
    cases = tuple(enumerate(cases_of(history, night, rng, result_of)))
    return BulkRun(run, cases, results)


def run_of(history: History, night: int) -> Run:
    """The run of a night, without its cases."""
    shape = history.shape
    commit = hashlib.sha1(f"{shape.seed} {night}".encode(), usedforsecurity=False).hexdigest()
    version = f"2.{6 + night // NIGHTS_OF_A_TORCH}.0+synthetic"
    return Run(
        id=_id_of(shape, night),
        created=_created(shape, night),
        command=("torchstone", "run", *SUITES),
        plan=history.plan,
        label=f"synthetic night {night}",
        machine_id=MACHINE_ID,
        machine=MACHINE,
        torch=version,
        git=GitState(commit, "main", False),
        tier="synthetic",
        method=Method(20.0, 0.01, 0.02, shape.seed, 60.0, 600.0, replicates=4),
        notes=("synthetic: nothing in this run was measured",),
        origin=ORIGIN,
    )


def _id_of(shape: Shape, night: int) -> str:
    return f"synthetic-{shape.seed}-{night:05d}"


def _created(shape: Shape, night: int) -> str:
    made = datetime.fromisoformat(shape.newest) - timedelta(days=shape.nights - 1 - night)
    return made.astimezone(timezone.utc).isoformat(timespec="seconds")


def cases_of(
    history: History, night: int, rng: np.random.Generator, result_of: dict[int, str]
) -> Iterator[CaseMetrics]:
    """The figures of a night in the plan's order; `result_of` gives the results by place."""
    count = len(history.plan)
    error = history.error * np.exp(rng.normal(0.0, 0.2, count))
    weather = np.exp(rng.normal(0.0, 0.015)) * (1 + rng.gamma(1.5, 0.004, count))
    base = history.base_ns * weather
    log = history.log_speedup_at(night) + error * rng.standard_t(3, count)
    speedup = np.exp(log)
    half = 3.182 * error  # Student's t, 3 degrees of freedom, 95 %
    failing = history.failing_at(night, rng)
    peak = history.peak * np.exp(rng.normal(0.0, 0.01, count))
    columns = zip(
        history.plan,
        failing.tolist(),
        speedup.tolist(),
        np.exp(log - half).tolist(),
        np.exp(log + half).tolist(),
        error.tolist(),
        base.tolist(),
        (base / speedup).tolist(),
        (history.cold_ns * np.exp(rng.normal(0.0, 0.05, count))).astype(np.int64).tolist(),
        peak.astype(np.int64).tolist(),
        (peak / history.memory).astype(np.int64).tolist(),
        (rng.random(count) < 0.08).tolist(),
        strict=True,
    )
    for at, (planned, fails, *figures) in enumerate(columns):
        result_id = result_of.get(at, "")
        if history.unsupported[at]:
            reason = "synthetic: needs an accelerator"
            yield CaseMetrics(planned.key, Outcome.NOT_SUPPORTED, reason)
        elif fails:
            kind = history.kind[at]
            yield CaseMetrics(
                planned.key, FAILED[kind], REASONS[kind], planned.key.variant, result_id
            )
        else:
            yield _passing(planned, result_id, int(history.breaks[at]), *figures)


def _passing(
    planned: PlannedCase,
    result_id: str,
    breaks: int,
    speedup: float,
    low: float,
    high: float,
    error: float,
    base_ns: float,
    new_ns: float,
    cold_ns: int,
    base_peak: int,
    new_peak: int,
    noisy: bool,
) -> CaseMetrics:
    key = planned.key
    ends = -math.log(high), -math.log(low)
    verdict = decide(-math.log(speedup), ends, not low <= 1 <= high, MARGIN, MARGIN / 2)
    return CaseMetrics(
        key=key,
        outcome=Outcome.OK,
        result_id=result_id,
        speedup=speedup,
        interval=(low, high),
        log_error=error,
        log_freedom=3.0,
        verdict=verdict,
        base_ns=base_ns,
        new_ns=new_ns,
        compile_cold_ns=cold_ns,
        compile_warm_ns=cold_ns // 8,
        base_peak_bytes=base_peak,
        new_peak_bytes=new_peak,
        base_tensor_bytes=base_peak // 2,
        new_tensor_bytes=new_peak // 2,
        base_overhead_bytes=base_peak // 3,
        new_overhead_bytes=new_peak // 3,
        base_faults=12.0,
        new_faults=3.5,
        graphs=1 + breaks,
        graph_breaks=breaks,
        break_reasons=BREAKS if breaks else (),
        recompiles=0,
        late_recompiles=0,
        flops=base_peak * 40,
        flops_covered=0.97,
        agreement="fp64",
        error_ratio=1.0625,
        outputs_checked=4,
        worst_check=Level.WARN if noisy else Level.OK,
        checks=("noise",) if noisy else (),
        replicates=4,
        elapsed_s=31.5,
        command=("torchstone", "bench", planned.target, "--vs", key.variant, "--mode", key.mode),
    )


def stored_nights(store: Store, shape: Shape) -> int:
    """How many nights of this history are there; `ValueError` where other runs are."""
    heads = store.run_heads(limit=10 * shape.nights)
    found = {head.id: head for head in heads if is_night(head.id)}
    for night in range(len(found)):
        head = found.get(_id_of(shape, night))
        known = (shape.cases, _created(shape, night))
        if night >= shape.nights or head is None or (head.planned, head.created) != known:
            raise ValueError(f"{store.location.name} holds other runs than this history's")
    return len(found)


def is_night(run_id: str) -> bool:
    """Whether a run is one of the nights, and not beside them."""
    return not run_id.startswith((WRITERS, BRANCHES))


def build(path: Path, shape: Shape, say: bool = False) -> float:
    """Make the history, or go on with it where it was stopped; the seconds that it took."""
    started = time.perf_counter()
    with open_store(str(path)) as store:
        first = stored_nights(store, shape)
        for night, one in enumerate(nights(shape, first), first + 1):
            store.add_runs_in_bulk([one])
            if say and (night % 10 == 0 or night == shape.nights):
                took = time.perf_counter() - started
                print(f"\r{night}/{shape.nights} nights, {took:.0f} s", end="", file=sys.stderr)
    if say:
        print(file=sys.stderr)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("database", type=Path)
    parser.add_argument("--nights", type=int, default=Shape.nights)
    parser.add_argument("--models", type=int, default=Shape.models)
    parser.add_argument("--variants", type=int, default=Shape.variants)
    parser.add_argument("--raw-nights", type=int, default=Shape.raw_nights)
    parser.add_argument("--seed", type=int, default=Shape.seed)
    parser.add_argument("--queries", action="store_true", help="time the store's answers instead")
    asked = parser.parse_args()
    if asked.queries:
        from dashboard_queries import report

        print(report(asked.database))
        return
    if asked.database.exists():
        parser.error(f"{asked.database} exists")
    shape = Shape(asked.nights, asked.models, asked.variants, asked.raw_nights, asked.seed)
    took = build(asked.database, shape, say=True)
    size = os.path.getsize(asked.database)
    cases = shape.nights * shape.cases
    print(f"{cases} cases in {took:.0f} s: {size / 2**20:.0f} MiB, {size / cases:.0f} bytes a case")


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The text above as it is written."""


if __name__ == "__main__":
    main()
