"""The public JSON and CSV of a run and of two runs compared.

Every name is explained in `docs/reference/json.md` and `csv.md`; tests hold them together.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchstone.records import (
    CaseChange,
    CaseKey,
    GroupChange,
    Mean,
    Ratio,
    Run,
    RunComparison,
    RunHead,
    RunView,
    SuiteSummary,
)
from torchstone.records.format import finite
from torchstone.records.metrics import METRICS
from torchstone.show.cells import KEY, foreign_data
from torchstone.show.markdown import DOCUMENT_SCHEMA, plain, to_text
from torchstone.show.run import Tally
from torchstone.show.table import sanitise

GROUP_KEY = tuple(name for name in KEY if name != "model")
KIND = "run comparison"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula; the wide forms count in some locales."""
BETWEEN = "; "


def _fields(record: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: plain(getattr(record, name)) for name in names}


def _key(key: CaseKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in KEY}


def case_rows(view: RunView) -> Iterator[dict[str, Any]]:
    """One entry for every planned case, in the plan's order."""
    from torchstone.stats import verdicts  # numpy comes with it: only when it is wanted

    cases = view.complete
    for planned, case, verdict in zip(view.run.plan, cases, verdicts(cases), strict=True):
        row = {**_key(planned.key), "target": planned.target}
        for metric in METRICS:
            row[metric.public_name] = metric.public(case)
            if metric.key == "verdict":
                row["run_verdict"] = verdict.value if verdict else None
        yield {**row, "foreign": foreign_data(case), "definition": case.definition}


def run_document(view: RunView, summaries: Sequence[SuiteSummary]) -> dict[str, Any]:
    """The run as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "run": _run(view.run, Tally.of(summaries)),
        "summaries": [summary_document(summary) for summary in summaries],
        "cases": [plain(row) for row in case_rows(view)],
    }


def run_dumps(view: RunView, summaries: Sequence[SuiteSummary], indent: int | None = 2) -> str:
    """The document as ASCII text."""
    return to_text(run_document(view, summaries), indent)


def _run(run: Run, tally: Tally) -> dict[str, Any]:
    return {
        **_fields(run, ("id", "created", "label", "command", "tier", "notes")),
        "planned": tally.planned,
        "done": tally.planned - tally.not_run,
        "outcomes": {outcome.value: number for outcome, number in tally.outcomes.items()},
        **_fields(run, ("machine_id", "machine", "torch", "packages", "git", "method")),
        **_fields(run, ("version", "origin")),
    }


def summary_document(summary: SuiteSummary) -> dict[str, Any]:
    """The figures of a group of cases."""
    passes = summary.passes
    return {
        **_fields(summary, GROUP_KEY),
        **_fields(passes, ("passed", "counted", "planned")),
        "not_supported": passes.planned - passes.counted,
        "pass_rate": plain(passes.rate),
        "outcomes": plain(passes.outcomes),
        "speedup": mean_document(summary.speedup),
        "compile_cold_s": mean_document(summary.compile_cold_ns, 1e9),
        "compile_warm_s": mean_document(summary.compile_warm_ns, 1e9),
        "memory_ratio": mean_document(summary.memory_ratio),
        "process_memory_ratio": mean_document(summary.process_memory_ratio),
        "compiler_bytes": mean_document(summary.compiler_bytes),
        **_fields(summary, ("verdicts", "no_verdict", "false_discovery_rate")),
        **_fields(summary, ("figures_definition", "definition")),
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


def change_rows(comparison: RunComparison) -> Iterator[dict[str, Any]]:
    """One entry for every case of either run."""
    for case in comparison.cases:
        yield {**_key(case.key), "kind": case.kind.value, **_change(case), **_sides(case)}


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
    base, new = case.base, case.new
    return {
        "moved": case.moved,
        "baseline_time_ratio": finite(case.baseline_time),
        "arm_time_ratio": finite(case.arm_time),
        "compile_cold_ratio": finite(case.compile_cold),
        "compile_warm_ratio": finite(case.compile_warm),
        "arm_peak_ratio": finite(case.memory),
        "costs_changed": list(case.costs_changed),
        "base_outcome": base.outcome.value if base else None,
        "new_outcome": new.outcome.value if new else None,
        "base_reason": base.reason if base else "",
        "new_reason": new.reason if new else "",
        "base_result_id": base.result_id if base else "",
        "new_result_id": new.result_id if new else "",
        "command": list(new.command if new else base.command if base else ()),
    }


def compare_document(comparison: RunComparison) -> dict[str, Any]:
    """The comparison as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "kind": KIND,
        "definition": comparison.definition,
        "base": head_document(comparison.base),
        "new": head_document(comparison.new),
        "refused": plain(comparison.refused),
        "remedy": plain(comparison.remedy),
        "marks": plain(comparison.marks),
        "margin": comparison.margin,
        "false_discovery_rate": comparison.false_discovery_rate,
        "threshold_source": plain(comparison.threshold_source),
        "drift": {
            "value": plain(comparison.drift),
            "spread": plain(comparison.drift_spread),
            "n": comparison.drift_of,
        },
        "groups": [_group(group) for group in comparison.groups],
        "cases": [plain(row) for row in change_rows(comparison)],
    }


def compare_dumps(comparison: RunComparison, indent: int | None = 2) -> str:
    """The document as ASCII text."""
    return to_text(compare_document(comparison), indent)


def head_document(head: RunHead) -> dict[str, Any]:
    """A run without its cases."""
    names = ("id", "created", "label", "commit", "branch", "dirty", "machine_id", "machine")
    more = ("torch", "origin", "tier", "suites", "planned", "done", "outcomes", "state")
    return _fields(head, (*names, *more))


def _group(group: GroupChange) -> dict[str, Any]:
    return {
        **_fields(group.key, GROUP_KEY),
        **_fields(group, ("common", "paired", "counts")),
        "base": None if group.base is None else summary_document(group.base),
        "new": None if group.new is None else summary_document(group.new),
        "base_common": mean_document(group.base_common),
        "new_common": mean_document(group.new_common),
        "speedup": _ratio(group.speedup),
        "threshold": plain(group.threshold),
        "verdict": None if group.verdict is None else group.verdict.value,
        "compile_cold": _cost(group, "compile_cold"),
        "compile_warm": _cost(group, "compile_warm"),
        "memory": _cost(group, "memory"),
        "drift": plain(group.drift),
    }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    ends = plain(ratio.interval)
    whole = ends is not None and None not in ends
    interval = ends if whole else None
    return {"value": plain(ratio.value), "interval": interval, "level": ratio.level}


def _cost(group: GroupChange, name: str) -> dict[str, Any]:
    """The mean ratio with the threshold that it was held to; without one it is not evaluated."""
    mean, limits = getattr(group, name), group.cost_thresholds.get(name)
    return {
        "value": plain(mean.value),
        "n": mean.n,
        "of": mean.of,
        "case_threshold": plain(limits[0]) if limits else None,
        "threshold": plain(limits[1]) if limits else None,
        "changed": name in group.costs_changed if limits else None,
    }


def run_csv(view: RunView) -> str:
    """One row for every planned case."""
    return _csv({"run": view.run.id}, case_rows(view))


def compare_csv(comparison: RunComparison) -> str:
    """One row for every case of either run."""
    runs = {"base": comparison.base.id, "new": comparison.new.id}
    return _csv(runs, change_rows(comparison))


def _csv(lead: Mapping[str, str], rows: Iterator[dict[str, Any]]) -> str:
    """By RFC 4180; empty cells where a figure is not known.

    Write it with `newline=""`: its lines end as the RFC has it.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    for number, row in enumerate(rows):
        if number == 0:
            writer.writerow([*lead, *row])
        ids = [neutral(one) for one in lead.values()]
        writer.writerow([*ids, *(_csv_cell(name, value) for name, value in row.items())])
    return stream.getvalue()


def _csv_cell(name: str, value: Any) -> Any:
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
