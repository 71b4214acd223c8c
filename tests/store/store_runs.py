"""Runs as `torchstone run` would leave them, made from a seed; also run as a writing process.

`python store_runs.py DB RUN CASES FIRST STEP` waits for a line on stdin, then stores every
STEP-th case from FIRST on that is not stored yet, and prints `stored N`, or `taken N` where
another process was quicker.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from store_cases import failed_result, make_result

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    GitState,
    Level,
    Method,
    Outcome,
    PlannedCase,
    Result,
    Run,
    Verdict,
)

if TYPE_CHECKING:
    from torchstone.store import Store

SUITES = ("huggingface", "timm")
CRASHED = 3
"""Every case whose position leaves this remainder by 5 died."""


def make_run(run_id: str = "run-1", cases: int = 6, label: str = "", **changes: object) -> Run:
    """A plan of `cases` models over two suites; the last one is not supported."""
    plan = [
        PlannedCase(
            CaseKey(
                SUITES[i % 2],
                f"Model{i}",
                "small",
                "inference",
                "fp32",
                "inductor",
            ),
            f"hf:Model{i}@small",
        )
        for i in range(cases)
    ]
    plan[-1] = replace(plan[-1], not_supported="needs a library that is not installed")
    run = Run(
        run_id,
        "2026-11-15T20:00:00+00:00",
        ("torchstone", "run", "huggingface", "timm"),
        tuple(plan),
        label=label,
        machine_id="5f0e" * 4,
        machine="A processor with 2 cores",
        torch="2.13.0",
        git=GitState("c0ffee" * 6, "main", False),
        tier="quick",
        method=Method(20.0, 0.01, 0.02, 0, 60.0, 600.0, replicates=4),
        notes=("one thread, because this machine has 2 cores",),
        version="0.1",
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def make_figures(run: Run, position: int, result_id: str = "") -> CaseMetrics:
    """Figures as `torchstone run` derives them; of a seed, so that a test knows them."""
    key = run.plan[position].key
    if run.plan[position].not_supported:
        return CaseMetrics(key, Outcome.NOT_SUPPORTED, run.plan[position].not_supported)
    if position % 5 == CRASHED:
        died = CaseMetrics(key, Outcome.CRASH, "first call: killed", "inductor")
        return replace(died, result_id=result_id)
    rng = random.Random(position)
    speedup = rng.uniform(0.8, 2.0)
    return CaseMetrics(
        key,
        Outcome.OK,
        result_id=result_id,
        speedup=speedup,
        interval=(speedup * 0.98, speedup * 1.02),
        log_error=rng.uniform(0.002, 0.01),
        log_freedom=3.0,
        verdict=Verdict.FASTER if speedup > 1 else Verdict.SLOWER,
        base_ns=rng.uniform(5e6, 2e8),
        new_ns=rng.uniform(5e6, 2e8),
        compile_cold_ns=rng.randrange(10**10),
        compile_warm_ns=rng.randrange(10**9),
        base_tensor_bytes=2**30 + position,
        new_tensor_bytes=2**29 + position,
        base_peak_bytes=rng.randrange(2**20, 2**32),
        new_peak_bytes=rng.randrange(2**20, 2**32),
        base_overhead_bytes=rng.randrange(2**20, 2**30),
        new_overhead_bytes=rng.randrange(2**20, 2**30),
        base_faults=12.5,
        new_faults=0.25,
        graphs=3,
        graph_breaks=2,
        break_reasons=("call to a function that the compiler skips",),
        recompiles=1,
        late_recompiles=0,
        flops=rng.randrange(10**12),
        flops_covered=0.93,
        agreement="fp64",
        error_ratio=1.1,
        outputs_checked=4,
        worst_check=Level.WARN,
        checks=("noise",),
        replicates=4,
        elapsed_s=31.5,
        command=("torchstone", "bench", "hf:Model@small", "--vs", "inductor", "--threads", "1"),
    )


def make_case(run: Run, position: int) -> tuple[Result | None, CaseMetrics]:
    """The result of a case and its figures; a case that is not supported has no result."""
    if run.plan[position].not_supported:
        return None, make_figures(run, position)
    result_id = f"{run.id}.{position}"
    figures = make_figures(run, position, result_id)
    if figures.outcome is Outcome.CRASH:
        return failed_result(result_id), figures
    return make_result(result_id, seed=position), figures


def fill(store: Store, run: Run, positions: Iterable[int]) -> int:
    """Store some of the run's cases; the bytes told."""
    store.begin_run(run)
    size = 0
    for position in positions:
        result, figures = make_case(run, position)
        size += store.add_cases(run.id, result, [(position, figures)])
    return size


def wanted(run: Run, positions: Iterable[int]) -> tuple[CaseMetrics, ...]:
    return tuple(make_case(run, position)[1] for position in positions)


def statements(store: Store) -> list[str]:
    """The SQL of everything that the store does from now on."""
    from sqlalchemy import event

    seen: list[str] = []

    def see(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(store._engine, "before_cursor_execute", see)
    return seen


def derive(result: Result, planned: PlannedCase, arm: str) -> CaseMetrics:
    """Stands for the one true definition; it can be seen which result and arm it was given."""
    return CaseMetrics(planned.key, Outcome.OK, reason=f"{result.id} {arm}")


def _main() -> None:
    from torchstone.store import AlreadyStored, Store, open_store  # Store: loads what opening needs

    assert Store
    path, run_id = sys.argv[1:3]
    count, first, step = map(int, sys.argv[3:6])
    run = make_run(run_id, count)
    cases = {i: make_case(run, i) for i in range(first, count, step)}
    print("ready", flush=True)
    sys.stdin.readline()  # the test says when, so that processes start together
    with open_store(path) as store:
        store.begin_run(run)
        done = store.done_positions(run.id)
        for position, (result, figures) in cases.items():
            if position in done:
                continue
            try:
                store.add_cases(run.id, result, [(position, figures)])
                print("stored", position, flush=True)
            except AlreadyStored:
                print("taken", position, flush=True)


if __name__ == "__main__":
    _main()
