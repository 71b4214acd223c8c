"""The figures of a compared case by name: one list for the CSV and the JSON.

Every name is explained in `docs/reference/json.md`; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchstone.records import CaseChange, RunComparison
from torchstone.show.run_fields import finite


def change_rows(comparison: RunComparison) -> Iterator[dict[str, Any]]:
    """One entry for every case of either run."""
    for case in comparison.cases:
        yield {**_identity(case), **_change(case), **_sides(case), **_evidence(case)}


def _identity(case: CaseChange) -> dict[str, Any]:
    key = case.key
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
        "kind": case.kind,
    }


def _change(case: CaseChange) -> dict[str, Any]:
    ratio = case.speedup
    low, high = ratio.interval if ratio and ratio.interval else (None, None)
    return {
        "base_speedup": finite(case.base.speedup) if case.base else None,
        "new_speedup": finite(case.new.speedup) if case.new else None,
        "ratio": finite(ratio.value) if ratio else None,
        "ratio_low": finite(low),
        "ratio_high": finite(high),
        "level": ratio.level if ratio else None,
        "threshold": finite(case.threshold),
        "verdict": case.verdict.value if case.verdict else None,
        "alone": case.alone.value if case.alone else None,
        "deciding_budget_s": case.deciding_budget_s,
    }


def _sides(case: CaseChange) -> dict[str, Any]:
    return {
        "moved": case.moved,
        "baseline_time_ratio": finite(case.baseline_time),
        "arm_time_ratio": finite(case.arm_time),
        "compile_cold_ratio": finite(case.compile_cold),
        "compile_warm_ratio": finite(case.compile_warm),
        "arm_peak_ratio": finite(case.memory),
        "costs_changed": list(case.costs_changed),
    }


def _evidence(case: CaseChange) -> dict[str, Any]:
    base, new = case.base, case.new
    return {
        "base_outcome": base.outcome.value if base else None,
        "new_outcome": new.outcome.value if new else None,
        "base_reason": base.reason if base else "",
        "new_reason": new.reason if new else "",
        "base_result_id": base.result_id if base else "",
        "new_result_id": new.result_id if new else "",
        "command": list(new.command if new else base.command if base else ()),
    }
