"""From a stored result to the figures of one case: one definition each (`records.CaseMetrics`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torchstone import stats
from torchstone.records import (
    CaseMetrics,
    Check,
    Comparison,
    Level,
    Measurement,
    Outcome,
    PlannedCase,
    Result,
)
from torchstone.records.format import finite
from torchstone.validate.base import faults_per_call, seconds_per_call

_ORDER = tuple(Level)


def metrics_of(
    result: Result, planned: PlannedCase, arm: str, command: tuple[str, ...]
) -> CaseMetrics:
    """The figures of the case whose new arm in `result` is called `arm`."""
    base = result.arms[0]
    new = next(one for one in result.arms if one.arm.name == arm)
    failed = base if base.outcome is not Outcome.OK else new
    comparison = next((c for c in result.comparisons if c.new == arm), None)
    checks = [one for one in result.checks if _speaks_of(one, base.arm.name, arm)]
    worse = tuple(dict.fromkeys(c.rule for c in checks if c.level in (Level.WARN, Level.FAIL)))
    figures = CaseMetrics(
        key=planned.key,
        outcome=failed.outcome,
        reason=_reason(failed),
        failed_arm="" if failed.outcome is Outcome.OK else failed.arm.name,
        result_id=result.id,
        worst_check=max((c.level for c in checks), key=_ORDER.index, default=Level.OK),
        checks=worse,
        replicates=len(new.replicates),
        elapsed_s=result.method.elapsed_s,
        command=command,
    )
    return _with_answer(_with_costs(_with_speed(figures, base, new, comparison), base, new), new)


def unmeasured(
    planned: PlannedCase, outcome: Outcome, reason: str, command: tuple[str, ...]
) -> CaseMetrics:
    """A case that ended before anything could be measured."""
    return CaseMetrics(planned.key, outcome, reason, command=command)


def _reason(arm: Measurement) -> str:
    if arm.outcome is Outcome.OK:
        return ""
    detail = arm.detail
    where = f"{detail.phase}: " if detail.phase else ""
    return where + (detail.message or arm.outcome.value)


def _with_speed(
    figures: CaseMetrics, base: Measurement, new: Measurement, comparison: Comparison | None
) -> CaseMetrics:
    name = comparison.decided_by if comparison is not None else stats.estimator_of(base)
    if comparison is not None and not comparison.time_ratio:
        return figures  # withheld: its two times would quote it all the same
    base_ns = _nanoseconds(seconds_per_call(base, name))
    figures = replace(figures, base_ns=base_ns, new_ns=_nanoseconds(seconds_per_call(new, name)))
    if comparison is None:
        return figures
    if base_ns is not None and comparison.time_ratio:  # the two times and their ratio agree
        figures = replace(figures, new_ns=base_ns * comparison.time_ratio)
    fit = stats.fit_ratio(base, new, name)
    low, high = comparison.interval or (0.0, math.inf)
    return replace(
        figures,
        speedup=comparison.speedup,
        interval=(1 / high if high else math.inf, 1 / low if low else math.inf),
        level=comparison.floor.level if comparison.floor else 0.95,
        verdict=comparison.verdict,
        margin=comparison.margin,
        deciding_budget_s=comparison.deciding_budget_s,
        log_error=finite(fit.std_error),
        log_freedom=float(fit.df) if fit.replicates > 1 else None,
    )


def _with_costs(figures: CaseMetrics, base: Measurement, new: Measurement) -> CaseMetrics:
    compiled, graphs, flops = new.compile, new.graphs, base.flops or new.flops
    costs: dict[str, Any] = {}
    for side, arm in (("base", base), ("new", new)):
        costs[f"{side}_faults"] = faults_per_call(arm)
        if arm.memory is not None:
            costs[f"{side}_tensor_bytes"] = arm.memory.tensor_peak_bytes
            costs[f"{side}_peak_bytes"] = arm.memory.peak_bytes
            costs[f"{side}_overhead_bytes"] = arm.memory.overhead_bytes
    if compiled is not None and new.arm.compiles:
        costs |= {"compile_cold_ns": compiled.cold_ns, "compile_warm_ns": compiled.warm_ns}
    if graphs is not None:
        costs |= {"graphs": graphs.graphs, "graph_breaks": graphs.breaks}
        costs |= {"break_reasons": graphs.break_reasons, "recompiles": graphs.recompiles}
        costs["late_recompiles"] = graphs.late_recompiles
    if flops is not None:
        costs |= {"flops": flops.total, "flops_covered": flops.time_covered}
    return replace(figures, **costs)


def _with_answer(figures: CaseMetrics, new: Measurement) -> CaseMetrics:
    agreement = new.agreement
    if agreement is None:
        return figures
    # Only then is every leaf's error, and the baseline's own, one against float64.
    ratio = agreement.error_ratio if agreement.method == "fp64" else None
    return replace(
        figures,
        agreement=agreement.method,
        error_ratio=finite(ratio),
        outputs_checked=agreement.timed,
    )


def _speaks_of(check: Check, base: str, arm: str) -> bool:
    """Of the case's arm, of its baseline or of the whole result. A check that names the baseline
    and other arms compares those with it, and is theirs. Failed it is this arm's too: the ratio is
    withheld wherever a failed arm is one of the two."""
    if not check.arms or arm in check.arms or set(check.arms) == {base}:
        return True
    return check.level is Level.FAIL and base in check.arms


def _nanoseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e9
