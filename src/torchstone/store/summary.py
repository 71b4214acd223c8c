"""A stored result or run in one line: what `list` shows without decoding anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.records import Level, Outcome, Result, Verdict
from torchstone.records.format import count, format_seconds
from torchstone.store.limits import storable

MAX_PARTS = 3
"""Arms spoken of in a headline; it has to fit on a line."""

_FASTEST = "fastest sample"


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
            # The fastest sample: it needs no definition of a statistic.
            samples = [time for turn in arm.turns for time in turn.wall_ns]
            seconds = min(samples) / max(1, arm.loops) / 1e9 if samples else None
            parts.append((name, _FASTEST if samples else "no samples", seconds))
    failed = sum(check.level is Level.FAIL for check in result.checks)
    return json.dumps({"parts": parts, "failed_checks": failed}, separators=(",", ":"))


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
    if word == _FASTEST:
        return f"{name}: {word} {format_seconds(number, 3)}"
    return f"{name}: {number:.2f}x {word}"
