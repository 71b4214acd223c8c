"""The figures of a case by name: one list for the CSV and the JSON, so that both say the same.

Every name is explained in `docs/reference/csv.md`; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchstone.records import CaseFigures, PlannedCase, RunView, Verdict
from torchstone.show.run_foreign import foreign_data


def case_rows(view: RunView) -> Iterator[dict[str, Any]]:
    """One entry for every planned case, in the plan's order."""
    from torchstone.stats import verdicts  # numpy comes with it: only when it is wanted

    cases = view.complete
    corrected = verdicts(cases)
    for planned, case, verdict in zip(view.run.plan, cases, corrected, strict=True):
        yield {
            **_identity(planned, case),
            **_speed(case, verdict),
            **_costs(case),
            **_evidence(case),
        }


def _identity(planned: PlannedCase, case: CaseFigures) -> dict[str, Any]:
    key = planned.key
    return {
        "suite": key.suite,
        "model": key.model,
        "scale": key.scale,
        "mode": key.mode,
        "precision": key.precision,
        "variant": key.variant,
        "device": key.device,
        "threads": key.threads,
        "allocator": key.allocator,
        "target": planned.target,
        "outcome": case.outcome.value,
        "reason": case.reason,
        "failed_arm": case.failed_arm,
        "result_id": case.result_id,
    }


def _speed(case: CaseFigures, corrected: Verdict | None) -> dict[str, Any]:
    low, high = case.interval or (None, None)
    return {
        "speedup": finite(case.speedup),
        "speedup_low": finite(low),
        "speedup_high": finite(high),
        "level": case.level,
        "log_error": finite(case.log_error),
        "log_freedom": finite(case.log_freedom),
        "verdict": case.verdict.value if case.verdict else None,
        "run_verdict": corrected.value if corrected else None,
        "margin": case.margin if case.verdict else None,
        "deciding_budget_s": finite(case.deciding_budget_s),
        "base_s": _seconds(case.base_ns),
        "new_s": _seconds(case.new_ns),
    }


def _costs(case: CaseFigures) -> dict[str, Any]:
    return {
        "compile_cold_s": _seconds(case.compile_cold_ns),
        "compile_warm_s": _seconds(case.compile_warm_ns),
        "base_tensor_bytes": case.base_tensor_bytes,
        "new_tensor_bytes": case.new_tensor_bytes,
        "memory_ratio": finite(case.memory_ratio),
        "base_peak_bytes": case.base_peak_bytes,
        "new_peak_bytes": case.new_peak_bytes,
        "process_memory_ratio": finite(case.process_memory_ratio),
        "base_overhead_bytes": case.base_overhead_bytes,
        "new_overhead_bytes": case.new_overhead_bytes,
        "compiler_bytes": case.compiler_bytes,
        "base_faults_per_call": finite(case.base_faults),
        "new_faults_per_call": finite(case.new_faults),
        "graphs": case.graphs,
        "graph_breaks": case.graph_breaks,
        "break_reasons": list(case.break_reasons),
        "recompiles": case.recompiles,
        "late_recompiles": case.late_recompiles,
        "flops": case.flops,
        "flops_covered": finite(case.flops_covered),
    }


def _evidence(case: CaseFigures) -> dict[str, Any]:
    ran = bool(case.result_id)
    return {
        "agreement": case.agreement,
        "error_ratio": finite(case.error_ratio),
        "outputs_checked": case.outputs_checked if ran else None,
        "worst_check": case.worst_check.value if ran else None,
        "checks": list(case.checks),
        "replicates": case.replicates if ran else None,
        "elapsed_s": finite(case.elapsed_s) if ran else None,
        "command": list(case.command),
        "foreign": foreign_data(case),
        "definition": case.definition,
    }


def finite(value: float | None) -> float | None:
    """The number, or None where there is none that a file can hold."""
    return value if value is not None and math.isfinite(value) else None


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else finite(nanoseconds / 1e9)
