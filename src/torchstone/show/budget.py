"""How long a budget would probably decide what is still open, in words that can be typed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torchstone.records import (
    CASE_KIND,
    CaseKey,
    Comparison,
    Method,
    Result,
    RunComparison,
    RunView,
    Verdict,
)

BENCH, RUN, CALL = "--budget ", "--budget-per-case ", "budget="
"""How a budget is given: to `bench`, to `run`, and to a function."""


def duration(seconds: float) -> str:
    """`45s`, `2m`, `1h`: as the options take it."""
    for unit, size in (("h", 3600.0), ("m", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def budget_advice(
    seconds: float | None, margin: float, flag: str = BENCH, method: Method | None = None
) -> str:
    """`--budget 45s would probably tell 2 %.`; empty where no budget is known to."""
    if seconds is None:
        return ""
    given = f"{seconds:g}" if flag == CALL else duration(seconds)
    asked = f"{flag}{given}{_processes(seconds, method)}"
    return f"{asked} would probably tell {100 * margin:g} %."


def advice_of(comparison: Comparison, result: Result | None = None) -> str:
    """The advice on a comparison that leaves something open, for the command that made it."""
    if not comparison.verdict.undecided:
        return ""
    flag = RUN if result is not None and result.kind == CASE_KIND else BENCH
    method = None if result is None else result.method
    return budget_advice(comparison.deciding_budget_s, comparison.margin, flag, method)


def _processes(seconds: float, method: Method | None) -> str:
    """A number of processes that was asked for has to grow with the budget: more turns in the same
    ones do not show how processes differ."""
    if method is None or not method.asked_replicates or not 0 < method.budget_s < seconds:
        return ""
    return f" --replicates {math.ceil(method.asked_replicates * seconds / method.budget_s)}"


def run_advice(view: RunView, verdicts: Mapping[CaseKey, Verdict | None]) -> str:
    """The same for the cases of a run that are still open; empty where there are none."""
    said = [(case, verdicts[case.key]) for case in view.complete]
    still = [case for case, verdict in said if verdict is not None and verdict.undecided]
    known = [(case.deciding_budget_s, case.margin) for case in still if case.deciding_budget_s]
    if not known:
        return ""
    most, margin = max(seconds for seconds, _ in known), max(size for _, size in known)
    advice = budget_advice(most, margin, RUN, view.run.method).rstrip(".")
    return f"{advice} in {_open(len(known), len(still))}"


def compare_advice(comparison: RunComparison) -> str:
    """The same for two runs, both of which would have to be measured for longer."""
    still = [c for c in comparison.cases if c.verdict is not None and c.verdict.undecided]
    known = [case.deciding_budget_s for case in still if case.deciding_budget_s]
    if not known:
        return ""
    asked = f"{RUN}{duration(max(known))} for both runs, with --replicates raised as much,"
    told = f"{100 * comparison.margin:g} %"
    return f"{asked} would probably tell {told} in {_open(len(known), len(still))}"


def _open(known: int, still: int) -> str:
    many = f"{known} of {still}" if known < still else f"{still}"
    return f"{many} {'case' if still == 1 else 'cases'} still open"
