"""Trials of Torchstone itself, and their raw samples in a compact, lossless form."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any

from aa_blobs import pack, unpack
from aa_journal import Row, number
from aa_load import Size

import torchstone
from torchstone.records import (
    ArmSpec,
    Comparison,
    Estimate,
    Level,
    Measurement,
    Noise,
    Outcome,
    Replicate,
    Turn,
    WarmUp,
)
from torchstone.stats import compare

_COLUMNS = 8
"""Arrays before the samples: one number a turn each, see `encode`."""


def run_ours(
    size: Size, effect: int, trial: int, budget: float, replicates: int | None
) -> Row | None:
    """One whole call of `torchstone.bench`; None when it was interrupted."""
    return run_bench(
        f"{size.target}:make_0",
        f"{size.target}:make_{effect}",
        threads=size.threads,
        env=size.environment,
        budget=budget,
        replicates=replicates,
        seed=1000 * trial + effect,
    )


def run_bench(*targets: str, **options: Any) -> Row | None:
    """One call of `torchstone.bench` on two targets; None when it was interrupted."""
    started = time.monotonic()
    result = torchstone.bench(*targets, **options)
    wall = time.monotonic() - started
    if result.method.stopped_by == "interrupt":
        return None
    found = result.comparisons[0]
    bad = [arm for arm in result.arms if arm.outcome is not Outcome.OK]
    if bad:
        detail = bad[0].detail
        return {"error": f"{bad[0].outcome.value}: {detail.message or detail.phase}"}
    return {
        **_verdict(found),
        "wall_s": wall,
        "replicates": result.method.replicates,
        "stopped_by": result.method.stopped_by,
        "checks": [
            f"{check.rule}: {check.level.value}"
            for check in result.checks
            if check.level in (Level.WARN, Level.FAIL)
        ],
        "raw": [encode(arm) for arm in result.arms],
    }


def judged_again(row: Row, margin: float = 0.02, aa_floor: float = 0.005) -> Row:
    """A trial of ours with the verdict that today's statistics give its samples.

    How long it was measured stays as it was decided then.
    """
    if row.get("tool") != "ours" or not row.get("raw"):
        return row
    arms = [decode(raw, name) for raw, name in zip(row["raw"], ("base", "new"), strict=True)]
    found = compare(*arms, margin=margin, alpha=1.0 - row["level"], aa_floor=aa_floor)
    return {**row, **_verdict(found)}


def _verdict(found: Comparison) -> Row:
    return {
        "verdict": found.verdict.value,
        "reason": found.reason,
        "ratio": number(found.time_ratio),
        "interval": None if found.interval is None else [number(x) for x in found.interval],
        "floor": _estimate(found.floor),
        "typical": _estimate(found.typical),
        "level": found.floor.level if found.floor else None,
        "decided_by": found.decided_by,
    }


def _estimate(estimate: Estimate | None) -> Row | None:
    if estimate is None:
        return None
    low, high = estimate.interval
    return {
        "estimator": estimate.estimator,
        "ratio": number(estimate.time_ratio),
        "interval": [number(low), number(high)],
    }


def encode(arm: Measurement) -> Row:
    """Loops, the time to start each process, and every turn's samples and probes."""
    turns = arm.turns
    columns: list[Sequence[int]] = [
        [t.replicate for t in turns],
        [t.index for t in turns],
        [t.probe_every for t in turns],
        [t.first_ns for t in turns],
        [t.minor_faults for t in turns],
        [t.noise.wall_ns for t in turns],
        [_known(t.noise.wait_ns) for t in turns],
        [_known(t.noise.steal_ns) for t in turns],
    ]
    samples = [getattr(t, name) for name in ("wall_ns", "cpu_ns", "probe_ns") for t in turns]
    return {
        "loops": arm.loops,
        "start_ns": {str(r.index): _start_ns(r) for r in arm.replicates},
        "blob": base64.b85encode(pack([*columns, *samples])).decode("ascii"),
    }


def decode(raw: Row, name: str = "arm") -> Measurement:
    """A measurement with the turns that `encode` packed."""
    arrays = unpack(base64.b85decode(raw["blob"]))
    columns, samples = arrays[:_COLUMNS], arrays[_COLUMNS:]
    count = len(columns[0])
    walls, cpus, probes = (samples[i * count : (i + 1) * count] for i in range(3))
    turns = tuple(
        Turn(
            replicate=replicate,
            index=index,
            wall_ns=walls[i],
            cpu_ns=cpus[i],
            probe_ns=probes[i],
            probe_every=every,
            first_ns=first,
            minor_faults=faults,
            major_faults=0,
            noise=Noise(wall, sum(cpus[i]), _unknown(wait), steal_ns=_unknown(steal)),
        )
        for i, (replicate, index, every, first, faults, wall, wait, steal) in enumerate(
            zip(*columns, strict=True)
        )
    )
    return Measurement(
        arm=ArmSpec(name=name),
        outcome=Outcome.OK,
        loops=raw["loops"],
        turns=turns,
        replicates=tuple(
            Replicate(int(index), start, WarmUp(0, (), True))
            for index, start in raw["start_ns"].items()
        ),
    )


def _start_ns(replicate: Replicate) -> int:
    """Everything a process costs before its first turn."""
    warm = replicate.warm_up
    return replicate.start_ns + warm.first_call_ns + sum(warm.wall_ns)


def _known(value: int | None) -> int:
    return -1 if value is None else value


def _unknown(value: int) -> int | None:
    return None if value < 0 else value
