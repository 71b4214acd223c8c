"""Rules by name, and how they are run."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import cast

from torchstone.records import Check, Level, Result
from torchstone.records.plugins import Registry
from torchstone.validate.base import Rule

RULES = Registry(
    "torchstone.rules",
    {
        "alike": "torchstone.validate.rules.machine:ALIKE",
        "allocator": "torchstone.validate.rules.machine:ALLOCATOR",
        "clock": "torchstone.validate.rules.machine:CLOCK",
        "constant-output": "torchstone.validate.rules.answer:CONSTANT_OUTPUT",
        "coverage": "torchstone.validate.rules.work:COVERAGE",
        "definition": "torchstone.validate.rules.statistics:DEFINITION_RULE",
        "flops": "torchstone.validate.rules.work:FLOPS",
        "fresh-inputs": "torchstone.validate.rules.answer:FRESH_INPUTS",
        "identical": "torchstone.validate.rules.statistics:IDENTICAL",
        "late-work": "torchstone.validate.rules.answer:LATE_WORK",
        "noise": "torchstone.validate.rules.machine:NOISE",
        "output-check": "torchstone.validate.rules.answer:OUTPUT_CHECK",
        "peak": "torchstone.validate.rules.peaks:PEAK",
        "plain-output": "torchstone.validate.rules.answer:PLAIN_OUTPUT",
        "probe": "torchstone.validate.rules.machine:PROBE",
        "profiler": "torchstone.validate.rules.machine:PROFILER",
        "recompiles": "torchstone.validate.rules.answer:RECOMPILES",
        "replicates": "torchstone.validate.rules.statistics:REPLICATES",
        "roofline": "torchstone.validate.rules.peaks:ROOFLINE",
        "same-time": "torchstone.validate.rules.statistics:SAME_TIME",
        "steady": "torchstone.validate.rules.machine:STEADY",
        "time-floor": "torchstone.validate.rules.peaks:TIME_FLOOR",
        "timer": "torchstone.validate.rules.machine:TIMER",
        "too-good": "torchstone.validate.rules.statistics:TOO_GOOD",
        "utilisation": "torchstone.validate.rules.peaks:UTILISATION",
        "working-set": "torchstone.validate.rules.work:WORKING_SET",
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
