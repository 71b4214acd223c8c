"""Rules by name, and how they are run."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import cast

from torchstone.records import Check, Level, Result
from torchstone.records.plugins import Registry
from torchstone.validate.base import Rule

_BUILT_IN = {
    "answer": (
        *("constant-output", "fresh-inputs", "late-work", "output-check", "plain-output"),
        "recompiles",
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
    "work": ("coverage", "flops", "working-set"),
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
