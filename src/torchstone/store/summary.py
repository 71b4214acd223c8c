"""A stored result or run in one line: what `list` shows without decoding anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Level, Measurement, Outcome, Result, Verdict
from torchstone.records.format import count, format_seconds
from torchstone.store.limits import storable

MAX_PARTS = 3
"""Arms spoken of in a headline; it has to fit on a line."""

_TIMES = ("floor", "typical")
"""What a number of seconds is called, as in every report."""


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
    """What the headline is made of, as JSON: of each arm its name, a word and a number.

    Its words are put together when it is shown (`sentence`), so that they can change.
    """
    failed_arms = {arm.arm.name for arm in result.arms if arm.outcome is not Outcome.OK}
    # What failed is told by its outcome: "cannot tell" beside it would say it twice. An arm that
    # did not end well may still have been compared (`Outcome.comparable`), and then has a ratio.
    parts: list[tuple[str, str, float | None]] = []
    for one in result.comparisons:
        if one.time_ratio is not None or not failed_arms & {one.base, one.new}:
            times = {Verdict.FASTER: one.speedup, Verdict.SLOWER: one.time_ratio}
            parts.append((storable(one.new), one.verdict.value, times.get(one.verdict)))
    for arm in result.arms:
        name = storable(arm.arm.name)
        if arm.outcome is not Outcome.OK:
            parts.append((name, arm.outcome.words, None))
        elif not result.comparisons:
            parts.append((name, *_time(arm, result.method.estimator)))
    failed = sum(check.level is Level.FAIL for check in result.checks)
    return json.dumps({"parts": parts, "failed_checks": failed}, separators=(",", ":"))


def _time(arm: Measurement, estimator: str) -> tuple[str, float | None]:
    """The figure that leads in a report, by its name there."""
    if not any(turn.wall_ns for turn in arm.turns):
        return "no samples", None
    from torchstone.stats import central_time, estimator_of, is_floor  # numpy comes with it

    name = "floor" if is_floor(estimator or estimator_of(arm)) else "typical"
    seconds = central_time(arm, name)
    return (name, seconds) if seconds is not None else (f"{name} unknown", None)


def sentence(document: str) -> str:
    """The result's verdicts in a few words, failures included; empty where it is damaged."""
    try:
        stored = json.loads(document)
        parts = [_part(*part) for part in stored["parts"]]
        failed = int(stored["failed_checks"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return ""
    text = "; ".join(parts[:MAX_PARTS])
    if len(parts) > MAX_PARTS:
        text += f"; and {len(parts) - MAX_PARTS} more"
    return f"{text} ({count(failed, 'check')} failed)" if failed else text


def _part(name: str, word: str, number: float | None) -> str:
    if number is None:
        return f"{name}: {word}"
    if word in _TIMES:
        return f"{name}: {word} {format_seconds(number, 3)}"
    return f"{name}: {number:.2f}x {word}"
