"""The public JSON of a run: the run, its suites' figures, and every planned case.

Every key is explained in `docs/reference/json.md`; a test holds the two together.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from torchstone.records import CaseMetrics, Mean, PlannedCase, RunView, SuiteSummary, Verdict
from torchstone.show.markdown import DOCUMENT_SCHEMA, plain, to_text
from torchstone.show.run_table import Tally, foreign_data
from torchstone.show.table import sanitise

# The figures of a case by name: one list for the CSV and the JSON, so that both say the same.
#
# Every name is explained in `docs/reference/csv.md`; a test holds the two together.


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


def _identity(planned: PlannedCase, case: CaseMetrics) -> dict[str, Any]:
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


def _speed(case: CaseMetrics, corrected: Verdict | None) -> dict[str, Any]:
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


def _costs(case: CaseMetrics) -> dict[str, Any]:
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


def _evidence(case: CaseMetrics) -> dict[str, Any]:
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


def run_document(view: RunView, summaries: Sequence[SuiteSummary]) -> dict[str, Any]:
    """The run as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "run": _run(view),
        "summaries": [summary_document(summary) for summary in summaries],
        "cases": [plain(row) for row in case_rows(view)],
    }


def run_dumps(view: RunView, summaries: Sequence[SuiteSummary], indent: int | None = 2) -> str:
    """The document as ASCII text."""
    return to_text(run_document(view, summaries), indent)


def _run(view: RunView) -> dict[str, Any]:
    run, tally = view.run, Tally.of(view)
    return {
        "id": plain(run.id),
        "created": plain(run.created),
        "label": plain(run.label),
        "command": plain(run.command),
        "tier": plain(run.tier),
        "notes": plain(run.notes),
        "planned": tally.planned,
        "done": tally.planned - tally.not_run,
        "outcomes": {outcome.value: number for outcome, number in tally.outcomes.items()},
        "machine_id": plain(run.machine_id),
        "machine": plain(run.machine),
        "torch": plain(run.torch),
        "packages": plain(run.packages),
        "git": plain(run.git),
        "method": plain(run.method),
        "version": plain(run.version),
        "origin": plain(run.origin),
    }


def summary_document(summary: SuiteSummary) -> dict[str, Any]:
    """The figures of a group of cases."""
    passes = summary.passes
    return {
        "suite": plain(summary.suite),
        "scale": plain(summary.scale),
        "mode": plain(summary.mode),
        "precision": plain(summary.precision),
        "variant": plain(summary.variant),
        "device": plain(summary.device),
        "threads": summary.threads,
        "allocator": plain(summary.allocator),
        "passed": passes.passed,
        "counted": passes.counted,
        "planned": passes.planned,
        "not_supported": passes.planned - passes.counted,
        "pass_rate": plain(passes.rate),
        "outcomes": plain(passes.outcomes),
        "speedup": mean_document(summary.speedup),
        "compile_cold_s": mean_document(summary.compile_cold_ns, 1e9),
        "compile_warm_s": mean_document(summary.compile_warm_ns, 1e9),
        "memory_ratio": mean_document(summary.memory_ratio),
        "process_memory_ratio": mean_document(summary.process_memory_ratio),
        "compiler_bytes": mean_document(summary.compiler_bytes),
        "verdicts": plain(summary.verdicts),
        "no_verdict": summary.no_verdict,
        "false_discovery_rate": summary.false_discovery_rate,
        "figures_definition": summary.figures_definition,
        "definition": summary.definition,
    }


def mean_document(mean: Mean, unit: float = 1.0) -> dict[str, Any]:
    """A mean with its interval and denominators; an interval that lacks an end is none."""
    value = None if mean.value is None else mean.value / unit
    ends = None if mean.interval is None else [end / unit for end in mean.interval]
    bounded = plain(ends)
    return {
        "value": plain(value),
        "interval": None if bounded is None or None in bounded else bounded,
        "level": mean.level,
        "n": mean.n,
        "of": mean.of,
    }


# The cases of a run as CSV, for spreadsheets and data frames.


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula; the wide forms count in some locales."""
BETWEEN = "; "


def run_csv(view: RunView) -> str:
    """One row for every planned case, by RFC 4180; empty cells where a figure is not known.

    Write it with `newline=""`: its lines end as the RFC has it.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    for number, row in enumerate(case_rows(view)):
        if number == 0:
            writer.writerow(["run", *row])
        writer.writerow([neutral(view.run.id), *(_cell(name, cell) for name, cell in row.items())])
    return stream.getvalue()


def _cell(name: str, value: Any) -> Any:
    """Numbers as they are, texts made harmless."""
    if name == "foreign":
        value = json.dumps(value) if value else ""
    if isinstance(value, list):
        value = shlex.join(value) if name == "command" else BETWEEN.join(value)
    return neutral(value) if isinstance(value, str) else value


def neutral(text: str) -> str:
    """A text that no spreadsheet takes for a formula and no terminal for a command."""
    shown = sanitise(text)
    return f"'{shown}" if text.lstrip(" ").startswith(FORMULA) else shown
