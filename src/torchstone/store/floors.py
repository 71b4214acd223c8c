"""What two identical arms differed by on a machine: the smallest difference worth believing."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from torchstone.store import schema

NEWEST = 50
"""Observations that count. Older ones speak of a machine that may have changed."""

QUANTILE = 0.9
"""Nine of ten identical pairs lay below this; the maximum would only ever rise."""


@dataclass(frozen=True)
class FloorSummary:
    """An A/A floor and how many observations it rests on."""

    threads: int
    step_class: str
    value: float
    observations: int


def remember(
    connection: Connection,
    machine_id: str,
    threads: int,
    step_class: str,
    value: float,
    evidence: Any,
) -> None:
    """Add one observation."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"an A/A floor is a relative difference of 0 or more, not {value!r}")
    row = {
        "machine_id": machine_id,
        "threads": threads,
        "step_class": step_class,
        "value": float(value),
        "evidence": json.dumps(evidence, separators=(",", ":"), allow_nan=False),
    }
    connection.execute(schema.aa_floor.insert().values(**row))


def floor(connection: Connection, machine_id: str, threads: int, step_class: str) -> float | None:
    """The quantile of the newest observations (nearest rank), None if there are none."""
    table = schema.aa_floor
    newest = (
        select(table.c.value)
        .where(table.c.machine_id == machine_id)
        .where(table.c.threads == threads)
        .where(table.c.step_class == step_class)
        .order_by(table.c.seq.desc())
        .limit(NEWEST)
    )
    values = sorted(connection.scalars(newest))
    if not values:
        return None
    return float(values[math.ceil(QUANTILE * len(values)) - 1])


def of_machine(connection: Connection, machine_id: str) -> list[FloorSummary]:
    """Every floor of a machine, by threads and step length."""
    table = schema.aa_floor
    query = (
        select(table.c.threads, table.c.step_class, func.count())
        .where(table.c.machine_id == machine_id)
        .group_by(table.c.threads, table.c.step_class)
        .order_by(table.c.threads, table.c.step_class)
    )
    found = []
    for threads, step_class, number in connection.execute(query).all():
        value = floor(connection, machine_id, threads, step_class)
        if value is not None:
            found.append(FloorSummary(threads, step_class, value, min(number, NEWEST)))
    return found
