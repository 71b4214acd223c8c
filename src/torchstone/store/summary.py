"""A stored result or run in one line: what `list` shows without decoding anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Comparison, Level, Measurement, Outcome, Result, Verdict

MAX_PARTS = 3
"""Arms spoken of in a headline; it has to fit on a line."""

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


@dataclass(frozen=True)
class Summary:
    """One line of a listing. `bytes` is what the case takes in the store."""

    id: str
    created: str
    kind: str
    label: str
    origin: str
    arms: tuple[str, ...]
    outcomes: tuple[str, ...]
    headline: str
    bytes: int


@dataclass(frozen=True)
class RunSummary:
    """One line of a list of runs. `outcomes` counts the `done` cases; the rest was not run yet."""

    id: str
    created: str
    label: str
    origin: str
    planned: int
    done: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    suites: tuple[str, ...] = ()


def headline(result: Result) -> str:
    """The result's verdicts in a few words, failures included."""
    failed_arms = {arm.arm.name for arm in result.arms if arm.outcome is not Outcome.OK}
    # What failed is told by its outcome: "cannot tell" beside it would say it twice. An arm that
    # did not end well may still have been compared (`Outcome.comparable`), and then has a ratio.
    parts = [
        _verdict(c)
        for c in result.comparisons
        if c.time_ratio is not None or not failed_arms & {c.base, c.new}
    ]
    for arm in result.arms:
        if arm.outcome is not Outcome.OK:
            parts.append(f"{arm.arm.name}: {arm.outcome.value.replace('_', ' ')}")
        elif not result.comparisons:
            parts.append(_absolute(arm))
    text = "; ".join(parts[:MAX_PARTS])
    if len(parts) > MAX_PARTS:
        text += f"; and {len(parts) - MAX_PARTS} more"
    failed = sum(check.level is Level.FAIL for check in result.checks)
    if failed:
        text += f" ({failed} {'check' if failed == 1 else 'checks'} failed)"
    return text


def _verdict(comparison: Comparison) -> str:
    name, verdict = comparison.new, comparison.verdict
    ratio, speedup = comparison.time_ratio, comparison.speedup
    if verdict is Verdict.FASTER and speedup is not None:
        return f"{name}: {speedup:.2f}x faster"
    if verdict is Verdict.SLOWER and ratio is not None:
        return f"{name}: {ratio:.2f}x slower"
    return f"{name}: {verdict.value}"


def _absolute(arm: Measurement) -> str:
    """The fastest sample: it needs no definition of a statistic, and those are not made here."""
    times = [time for turn in arm.turns for time in turn.wall_ns]
    if not times:
        return f"{arm.arm.name}: no samples"
    per_call = min(times) / max(1, arm.loops)
    for size, unit in _UNITS:
        if per_call >= size:
            return f"{arm.arm.name}: fastest sample {per_call / size:.3g} {unit}"
    return f"{arm.arm.name}: fastest sample {per_call:.3g} ns"
