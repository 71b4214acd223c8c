"""What changed between two trainings, phase by phase.

The unit is a second of either run (a chunk): its mean step. Seconds of one run are alike and steps
are not independent, so the interval is over blocks of seconds, and the verdict is the careful one
where there are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.monitor.journal import MonitorRecord
from torchstone.monitor.views import Totals, totals
from torchstone.records import UsageError
from torchstone.records.format import format_percent
from torchstone.records.monitoring import PHASE_NAMES, PHASES, StepChunk

WARM_UP_CHUNKS = 2
LEAST_CHUNKS = 8
MOST_BLOCKS = 16
"""Seconds in a row are put together into so many, which are then nearly independent."""
LEVEL = 0.95
LEAST_CHANGE = 0.02
"""Within this two trainings take the same time."""


@dataclass(frozen=True)
class PhaseChange:
    """One phase in both, per step."""

    phase: str
    base_s: float | None
    new_s: float | None
    share: float | None
    """Of what the whole step gained or lost."""
    matters: bool


@dataclass(frozen=True)
class Compared:
    """Two trainings."""

    base_id: str
    new_id: str
    ratio: float | None
    """New step over base step."""
    interval: tuple[float, float] | None
    verdict: str
    phases: tuple[PhaseChange, ...]
    blocks: tuple[int, int]
    notes: tuple[str, ...]


def compare(base: MonitorRecord, new: MonitorRecord) -> Compared:
    """B against A."""
    sides = [_steady(one) for one in (base, new)]
    for record, chunks in zip((base, new), sides, strict=True):
        if not chunks:
            raise UsageError(
                f"{record.id} has no second of training after its warm-up.",
                "Compare monitors of trainings that ran for longer.",
            )
    sums = [totals(chunks) for chunks in sides]
    logs = [_blocks(chunks) for chunks in sides]
    ratio, interval = _ratio(logs[0], logs[1])
    phases = _phases(sums[0], sums[1])
    few = min(len(chunks) for chunks in sides) < LEAST_CHUNKS
    return Compared(
        base.id,
        new.id,
        ratio,
        interval,
        _verdict(ratio, interval, phases, few),
        phases,
        (len(sides[0]), len(sides[1])),
        tuple(_notes(sums[0], sums[1], base, new)),
    )


def _steady(record: MonitorRecord) -> list[StepChunk]:
    """Of the first rank, without the warm-up."""
    chunks = record.ranks[0].chunks if record.ranks else []
    return [one for one in chunks[WARM_UP_CHUNKS:] if "train" in one.kinds] or [
        one for one in chunks[WARM_UP_CHUNKS:] if one.steps
    ]


def _blocks(chunks: Sequence[StepChunk]) -> list[float]:
    """The log of the mean step of each block."""
    size = max(1, math.ceil(len(chunks) / MOST_BLOCKS))
    found = []
    for start in range(0, len(chunks), size):
        one = totals(chunks[start : start + size])
        if one.steps:
            found.append(math.log(one.wall_ns / one.steps))
    return found


def _ratio(
    base: Sequence[float], new: Sequence[float]
) -> tuple[float | None, tuple[float, float] | None]:
    """Of the means of blocks, by Welch."""
    if not base or not new:
        return None, None
    change = _mean(new) - _mean(base)
    if min(len(base), len(new)) < 2:
        return math.exp(change), None
    from torchstone.stats.distributions import student_t_quantile

    parts = [_variance(one) / len(one) for one in (base, new)]
    error = sum(parts)
    if not error:
        return math.exp(change), (math.exp(change), math.exp(change))
    freedom = error**2 / sum(
        part**2 / (len(one) - 1) for part, one in zip(parts, (base, new), strict=True)
    )
    half = student_t_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(error)
    return math.exp(change), (math.exp(change - half), math.exp(change + half))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    centre = _mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def _phases(base: Totals, new: Totals) -> tuple[PhaseChange, ...]:
    pairs = {name: (base.phase_s(name), new.phase_s(name)) for name in PHASES}
    known = {n: b - a for n, (a, b) in pairs.items() if a is not None and b is not None}
    total = sum(known.values())
    whole = base.wall_ns / max(1, base.steps) / 1e9
    found = []
    for name, (before, after) in pairs.items():
        share = known[name] / total if name in known and abs(total) > 0.005 * whole else None
        matters = abs(known.get(name, 0.0)) >= LEAST_CHANGE * whole
        found.append(PhaseChange(name, before, after, share, matters))
    return tuple(found)


def _verdict(
    ratio: float | None,
    interval: tuple[float, float] | None,
    phases: Sequence[PhaseChange],
    few: bool,
) -> str:
    if ratio is None:
        return "Cannot tell: one of them has no steps."
    if interval is None or few:
        return f"Cannot tell: fewer than {LEAST_CHUNKS} seconds of one of them were recorded."
    low, high = interval
    if low > 1 - LEAST_CHANGE and high < 1 + LEAST_CHANGE:
        return "B takes the same time as A."
    if low <= 1 <= high:
        return (
            f"Cannot tell: B's step differs from A's by {format_percent(low - 1, signed=True)} "
            f"to {format_percent(high - 1, signed=True)}."
        )
    word = "slower" if ratio > 1 else "faster"
    change = ratio - 1 if ratio > 1 else 1 - ratio
    grown = [one for one in phases if one.share is not None and one.matters and one.share > 0]
    grown.sort(key=lambda one: -(one.share or 0.0))
    why = f"; most of it in {PHASE_NAMES[grown[0].phase]}" if grown else ""
    return f"B is {format_percent(change)} {word} than A{why}."


def _notes(base: Totals, new: Totals, a: MonitorRecord, b: MonitorRecord) -> list[str]:
    notes = []
    heads = a.header, b.header
    if heads[0] and heads[1]:
        for name in ("torch", "device", "host"):
            pair = [getattr(head, name) for head in heads]
            if pair[0] != pair[1]:
                notes.append(f"Another {name}: {pair[0]} and {pair[1]}.")
    delays = [one.delay_ns / one.wall_ns for one in (base, new) if one.delay_ns and one.wall_ns]
    if len(delays) == 2 and abs(delays[1] - delays[0]) >= LEAST_CHANGE:
        notes.append(
            f"The training thread waited for a core {format_percent(delays[0])} of the time in A "
            f"and {format_percent(delays[1])} in B: another process, not the training."
        )
    sizes = [one.samples / one.steps for one in (base, new) if one.samples and one.steps]
    if len(sizes) == 2 and abs(sizes[1] / sizes[0] - 1) >= LEAST_CHANGE:
        notes.append(f"Another batch size: {sizes[0]:.4g} and {sizes[1]:.4g} samples a step.")
    return notes
