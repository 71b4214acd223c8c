"""The metrics of a case: each declared once, for the database, JSON, CSV, pages and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torchstone.records.measurement import Outcome
from torchstone.records.result import Level, Verdict
from torchstone.records.run import CaseMetrics

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True)
class Metric:
    """One metric of `CaseMetrics`: its attribute `key`, and how it is stored and written."""

    key: str
    kind: type
    """Of the value where there is one: `float`, `int`, `str`, an enumeration, or `tuple`."""
    title: str
    help: str
    unit: str = ""
    """Of the value as it is written."""
    better: str = ""
    """`higher`, `lower`, or empty where neither is."""
    name: str = ""
    """In JSON and CSV; `key` where it is empty."""
    scale: float = 1.0
    """What the value is divided by to be written in `unit`."""
    column: bool = True
    """Whether it has a column in the database; else it is what many cases share, or computed."""
    needs: str = ""
    """An attribute without which the value means nothing, and is not written."""

    @property
    def public_name(self) -> str:
        """In JSON and CSV."""
        return self.name or self.key

    def public(self, case: CaseMetrics) -> Any:
        """The value as JSON and CSV have it: in `unit`, None where there is none to write."""
        value = getattr(case, self.key)
        if value is None or (self.needs and not getattr(case, self.needs)):
            return None
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, tuple):
            return list(value)
        if self.scale != 1.0:
            value = value / self.scale
        return None if isinstance(value, float) and not math.isfinite(value) else value


def _time(key: str, title: str, help: str) -> Metric:
    """A time in nanoseconds that is written in seconds."""
    kind = int if key.startswith("compile") else float
    name = key.removesuffix("_ns") + "_s"
    return Metric(key, kind, title, help, "s", LOWER, name, scale=1e9)


def _bytes(key: str, title: str, help: str) -> Metric:
    return Metric(key, int, title, help, "bytes", LOWER)


METRICS = (
    Metric("outcome", Outcome, "Outcome", "how the case ended"),
    Metric("reason", str, "Reason", "why it is not `ok`", column=False),
    Metric("failed_arm", str, "Failed arm", "which arm it was that failed", column=False),
    Metric("result_id", str, "Result", "the stored result, for `torchstone show`"),
    Metric(
        "speedup", float, "Speed-up", "time of base ÷ time of new; above 1 is faster", "×", HIGHER
    ),
    Metric("low", float, "Speed-up, low end", "of its interval", "×", name="speedup_low"),
    Metric("high", float, "Speed-up, high end", "of its interval", "×", name="speedup_high"),
    Metric("level", float, "Level", "level of the interval"),
    Metric("log_error", float, "Log error", "standard error of log(speed-up)"),
    Metric("log_freedom", float, "Degrees of freedom", "of the standard error"),
    Metric("verdict", Verdict, "Verdict", "of the case by itself"),
    Metric(
        "margin",
        float,
        "Margin",
        "what the verdict calls the same",
        column=False,
        needs="verdict",
    ),
    Metric(
        "deciding_budget_s",
        float,
        "Deciding budget",
        "seconds a case that would probably show a change as small as the margin",
        "s",
    ),
    _time("base_ns", "Eager", "a step of base"),
    _time("new_ns", "Compiled", "a step of new"),
    _time("compile_cold_ns", "Compile, cold", "first-call cost above steady cost, empty cache"),
    _time("compile_warm_ns", "Compile, warm", "the same with the cache of the first process"),
    _bytes("base_tensor_bytes", "Eager tensors", "tensors alive at the peak of a step of base"),
    _bytes("new_tensor_bytes", "Tensors", "tensors alive at the peak of a step of new"),
    Metric(
        "memory_ratio",
        float,
        "Memory ratio",
        "tensors at the peak, base ÷ new; above 1, the new one needs less",
        "×",
        HIGHER,
        column=False,
    ),
    _bytes("base_peak_bytes", "Eager process", "peak of the process of base"),
    _bytes("new_peak_bytes", "Process", "peak of the process of new"),
    Metric(
        "process_memory_ratio",
        float,
        "Process memory ratio",
        "peaks of the two processes, base ÷ new",
        "×",
        HIGHER,
        column=False,
    ),
    _bytes("base_overhead_bytes", "Eager overhead", "resident beyond tensors and torch, base"),
    _bytes("new_overhead_bytes", "Overhead", "resident beyond tensors and torch, new"),
    Metric(
        "compiler_bytes",
        int,
        "Compiler's memory",
        "what the compiler leaves in the process",
        "bytes",
        LOWER,
        column=False,
    ),
    Metric(
        "base_faults",
        float,
        "Eager page faults",
        "minor page faults a call of base",
        better=LOWER,
        name="base_faults_per_call",
    ),
    Metric(
        "new_faults",
        float,
        "Page faults",
        "minor page faults a call of new",
        better=LOWER,
        name="new_faults_per_call",
    ),
    Metric("graphs", int, "Graphs", "graphs that the compiler captured"),
    Metric("graph_breaks", int, "Graph breaks", "graph breaks", better=LOWER),
    Metric("break_reasons", tuple, "Break reasons", "why graphs break", column=False),
    Metric("recompiles", int, "Recompiles", "compilations after the first", better=LOWER),
    Metric("late_recompiles", int, "Late recompiles", "compilations in timed turns", better=LOWER),
    Metric("flops", int, "FLOPs of a step", "of the operators with a formula"),
    Metric("flops_covered", float, "FLOPs cover", "share of the time that those operators took"),
    Metric("agreement", str, "Answer checked", "how the answer was checked"),
    Metric(
        "error_ratio",
        float,
        "Error ratio",
        "error of new against float64 ÷ that of base",
        "×",
        LOWER,
    ),
    Metric("outputs_checked", int, "Outputs checked", "from timed turns", needs="result_id"),
    Metric("worst_check", Level, "Worst check", "worst level of all checks", needs="result_id"),
    Metric("checks", tuple, "Checks", "rules that found worse than a note", column=False),
    Metric("replicates", int, "Replicates", "processes of the new arm", needs="result_id"),
    Metric("elapsed_s", float, "Elapsed", "wall time of the case", "s", needs="result_id"),
    Metric("command", tuple, "Command", "measures this case again", column=False),
    Metric("foreign", tuple, "Other tools", "what another tool's files say", column=False),
)
"""In the order of JSON and CSV. The key of the case, its target, the verdict corrected for the
run, and the definition of the figures are not metrics; they are written beside these."""

BY_KEY = {metric.key: metric for metric in METRICS}
