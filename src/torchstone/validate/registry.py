"""Rules by name, how they are run, and what their checks ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import cast

from torchstone.records import Check, Comparison, Level, Result, Verdict
from torchstone.records.plugins import Registry
from torchstone.validate.base import Rule, name_of
from torchstone.validate.rules.peaks import WRITE_ALLOWANCE, over_full
from torchstone.validate.rules.statistics import TOO_GOOD, remeasurement, suspicious

_BUILT_IN = {
    "answer": (
        *("constant-output", "fresh-inputs", "late-work", "output-check", "plain-output"),
        *("coverage", "flops", "recompiles", "working-set"),
    ),
    "clocks": ("second-clock",),
    "machine": (
        *("alike", "allocator", "clock", "noise", "precision", "probe", "profiler", "steady"),
        "threads",
        "timer",
    ),
    "peaks": ("peak", "roofline", "time-floor", "utilisation"),
    "settings": ("debug", "leak", "thread-change"),
    "statistics": (
        "definition",
        "floor",
        "identical",
        "replicates",
        "same-time",
        "session",
        "too-good",
    ),
}
"""By module of `rules/`; the function of a rule has its name, with underscores."""
RULES = Registry(
    "torchstone.rules",
    {
        name: f"torchstone.validate.rules.{module}:{name.replace('-', '_')}"
        for module, names in _BUILT_IN.items()
        for name in names
    },
)


def known_rules() -> tuple[metadata.EntryPoint, ...]:
    """Installed rules in order of name. Two of one name both run: no plug-in silences a rule."""
    return RULES.all()


def evaluate(result: Result) -> tuple[Check, ...]:
    """Every check of every installed rule, in a stable order."""
    checks: list[Check] = []
    rules: list[Rule] = []
    for point in known_rules():
        try:
            rules.append(cast("Rule", point.load()))
        except Exception as error:  # a broken plug-in must not cost the measurement
            checks.append(_broken(point.name, error, "could not be loaded"))
    return (*run_rules(rules, result), *checks)


def run_rules(rules: Iterable[Rule], result: Result) -> tuple[Check, ...]:
    """The rules' checks in order; a rule that raises becomes a warning and keeps what it found."""
    checks: list[Check] = []
    for rule in rules:
        try:
            for check in rule.evaluate(result):
                if not isinstance(check, Check):
                    raise TypeError(f"gave a {type(check).__name__} instead of a Check")
                checks.append(check)
        except Exception as error:  # whatever a plug-in does wrong
            checks.append(_broken(getattr(rule, "name", repr(rule)), error, "failed"))
    return tuple(checks)


def _broken(name: str, error: Exception, what: str) -> Check:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return Check(
        str(name),
        Level.WARN,
        f"The rule {name} {what} ({said}), so what it looks for was not checked. "
        "Report it to the rule's author, or remove the plug-in.",
    )


# What an evaluated result asks to be measured again, before it is believed.


def needs_recalibration(result: Result) -> list[tuple[str, int]]:
    """Peaks of which an arm reaches more than the whole: a dtype or a memory level, and threads.
    Measure them again beside the result, put the higher ones into it and evaluate again; what is
    still over then is wrong."""
    beaten = []
    for found in over_full(result):
        if (found.compute or 0.0) > 1:
            beaten.append((found.dtype, found.threads))
        if (found.least_memory or 0.0) > WRITE_ALLOWANCE:
            beaten.append((found.least_level, found.threads))
    return list(dict.fromkeys(beaten))


def needs_spin_off(result: Result) -> list[str]:
    """Arms with CPU time after their turns that may be idle threads, which spin, or work."""
    doubted = {
        name
        for check in result.checks
        if check.rule == "late-work" and check.level in (Level.WARN, Level.FAIL)
        for name in check.arms
    }
    return [
        arm.arm.name
        for arm in result.arms
        if arm.arm.name in doubted
        and (arm.integrity is None or arm.integrity.late_without_spin_ns is None)
    ]


def needs_remeasuring(result: Result) -> list[Comparison]:
    """Comparisons that are too good to be believed unless they are measured once more. A ratio that
    was withheld only because it is too good is put back from its check. Arms that failed another
    check are past saving."""
    failed = {
        name
        for check in result.checks
        if check.level is Level.FAIL and check.rule != TOO_GOOD
        for name in (check.arms or [arm.arm.name for arm in result.arms])
    }
    return [
        comparison
        for comparison in (_with_ratio(c, result) for c in result.comparisons)
        if suspicious(comparison, result)
        and remeasurement(comparison, result) is None
        and failed.isdisjoint((comparison.base, comparison.new))
    ]


def _with_ratio(comparison: Comparison, result: Result) -> Comparison:
    if comparison.time_ratio is not None:
        return comparison
    for check in result.checks:
        speedup = check.figures.get("speedup", 0.0)
        if check.rule == TOO_GOOD and comparison.new in check.arms and speedup > 0:
            return replace(comparison, time_ratio=1 / speedup)
    return comparison


# No verdict for an arm that failed a check.


def withhold(comparisons: Sequence[Comparison], checks: Sequence[Check]) -> tuple[Comparison, ...]:
    """The comparisons, each one with a failed arm turned into `cannot tell`. Its figures go too, as
    for a wrong answer: a ratio that is not to be believed is not to be quoted. The samples are
    still in the record. A failed check without arms speaks of all."""
    failed = [check for check in checks if check.level is Level.FAIL]
    return tuple(_withheld(comparison, failed) for comparison in comparisons)


def _withheld(comparison: Comparison, failed: Sequence[Check]) -> Comparison:
    reasons = [text for text in (_reason(comparison, check) for check in failed) if text]
    if not reasons:
        return comparison
    return replace(
        comparison,
        verdict=Verdict.CANNOT_TELL,
        time_ratio=None,
        interval=None,
        floor=None,
        typical=None,
        smallest_detectable=None,
        deciding_budget_s=None,
        reason="Withheld: " + " and ".join(dict.fromkeys(reasons)) + ".",
    )


def _reason(comparison: Comparison, check: Check) -> str:
    if not check.arms:
        return f"the result fails the check {check.rule}"
    arms = [name_of(name) for name in (comparison.base, comparison.new) if name in check.arms]
    if not arms:
        return ""
    return f"{' and '.join(arms)} fail{'s' if len(arms) == 1 else ''} the check {check.rule}"
