"""Which rank holds up the others: the one that waits *least* for them at the end of backward.

The exchange of gradients makes all ranks end backward together, so that their backward times are
alike whoever is slow. What differs is how long each has waited in it. Ranks are compared second by
second; by chance the same one of n waits least in k of k seconds with n^(1-k), and only then, and
only where the wait is worth speaking of, it is named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchstone.monitor.journal import MonitorRecord
from torchstone.records.monitoring import FALSE_ALARMS, PHASE_NAMES, PHASES, StepChunk

SLOW_RANK_ALPHA = FALSE_ALARMS / 4
WINDOW = 60
"""Seconds that are looked at."""
LEAST_WAIT = 0.1
"""Of the step: less than this is not worth a sentence."""
NAMED_SHARE = 0.8
"""A phase is named when what the slow rank spends more in it covers this much of the wait."""
LEAST_SECONDS = 5


@dataclass(frozen=True)
class SlowRank:
    """A rank that the others wait for."""

    rank: int
    share: float
    """Of a step, that the others wait for it more than it waits for them."""
    seconds: int
    phase: str
    text: str


def slow_rank(record: MonitorRecord, looks: int = 1) -> SlowRank | None:
    """The slow rank of the last minute; None where there is none, or it cannot be told.

    Who looks again and again gives the number of the look: each has a smaller part of the rate.
    """
    rows = _by_second(record)
    ranks = [one.rank for one in record.ranks]
    if len(ranks) < 2 or len(rows) < LEAST_SECONDS:
        return None
    alpha = SLOW_RANK_ALPHA * 6.0 / (math.pi * looks) ** 2
    least = [min(row, key=lambda rank: row[rank]["collective"]) for row in rows]
    culprit = max(set(least), key=least.count)
    hits = least.count(culprit)
    if len(ranks) * _tail(len(rows), hits, 1 / len(ranks)) > alpha:
        return None
    means = {
        rank: {name: sum(row[rank][name] for row in rows) / len(rows) for name in (*rows[0][rank],)}
        for rank in ranks
    }
    others = [means[rank] for rank in ranks if rank != culprit]
    victim = max(one["collective"] for one in others)
    wait = victim - means[culprit]["collective"]
    wall = max(1e-9, sum(means[culprit][name] for name in _COMPARED))
    if wait / wall < LEAST_WAIT:
        return None
    excess = {
        name: means[culprit][name] - sorted(one[name] for one in others)[len(others) // 2]
        for name in _COMPARED
        if name != "collective"
    }
    phase = max(excess, key=lambda name: excess[name])
    named = phase if excess[phase] >= NAMED_SHARE * wait else ""
    why = f"its {PHASE_NAMES[phase]} takes longer" if named else "no single phase explains it"
    text = (
        f"Rank {culprit} holds up the others: they wait {wait / wall * 100:.0f} % of a step "
        f"for it, and {why}."
    )
    return SlowRank(culprit, wait / wall, len(rows), named, text)


_COMPARED = tuple(name for name in PHASES if name != "transfer")


def _by_second(record: MonitorRecord) -> list[dict[int, dict[str, float]]]:
    """Per step, in seconds that all ranks have; a rank is a row of phases."""
    chunks = {
        one.rank: {int(c.time_s): c for c in one.chunks[-WINDOW:] if math.isfinite(c.time_s)}
        for one in record.ranks
    }
    if not chunks:
        return []
    common = set.intersection(*(set(one) for one in chunks.values()))
    rows = []
    for second in sorted(common):
        row = {rank: _per_step(found[second]) for rank, found in chunks.items()}
        if all(row.values()):
            rows.append(row)
    return rows


def _per_step(chunk: StepChunk) -> dict[str, float]:
    sums = chunk.kinds.get("train")
    if sums is None or not sums.steps or sums.phases_ns.get("collective") is None:
        return {}
    return {name: (sums.phases_ns.get(name) or 0) / sums.steps / 1e9 for name in _COMPARED}


def _tail(count: int, hits: int, share: float) -> float:
    """The chance of so many hits or more."""
    return sum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits, count + 1)
    )
