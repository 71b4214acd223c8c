"""The public JSON of a run: the run, its suites' figures, and every planned case.

Every key is explained in `docs/reference/json.md`; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.records import Mean, RunView, SuiteSummary
from torchstone.show.document import DOCUMENT_SCHEMA, plain, to_text
from torchstone.show.run_fields import case_rows
from torchstone.show.run_words import Tally


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
