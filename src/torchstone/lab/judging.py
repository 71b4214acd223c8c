"""Judging: from what was measured to comparisons and checks. Samples in, words out."""

from __future__ import annotations

from dataclasses import replace

from torchstone import stats, validate
from torchstone.records import Method, Result
from torchstone.validate.facts import estimator


def judge(result: Result, aa_floor: float) -> Result:
    """The result with its comparisons and checks made anew; an arm that fails has no verdict."""
    method = result.method
    name = estimator(result) if result.arms else None
    comparisons = stats.compare_all(result.arms, method.margin, method.alpha, aa_floor, name)
    spent = spent_budget(method)
    if spent is not None:
        comparisons = tuple(stats.with_budget(found, spent) for found in comparisons)
    bare = replace(result, comparisons=comparisons, checks=())
    checks = validate.judge(bare)
    return replace(bare, checks=checks, comparisons=validate.withhold(comparisons, checks))


def judge_again(result: Result) -> Result:
    """The same with the A/A floor that was in force."""
    return judge(result, max((c.aa_floor for c in result.comparisons), default=0.0))


def spent_budget(method: Method) -> float | None:
    """The budget that the data stands for; None where another one would not have given more: it
    ended before the budget did, or its samples were counted."""
    whole = method.stopped_by in ("budget", "replicates") and method.asked_samples is None
    return method.budget_s if whole else None


def interrupted(result: Result) -> Result:
    """The same, ended by Ctrl-C while something was measured beside it."""
    return replace(result, method=replace(result.method, stopped_by="interrupt"))
